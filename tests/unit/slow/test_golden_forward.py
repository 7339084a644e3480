"""One forward per state for all its tokens: equal to un-padded single states, and to one row per token.

The model is a tiny Qwen2 in float64, so that 1e-10 separates exact from nearly right.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe.golden_redaction.loss.forward import left_padded, next_token_logits, plan_micro_batches
from recipe.golden_redaction.loss.loss import target_loss, token_log_probs

VOCABULARY = 40
LAYERS = 3
STATES = ([3, 1, 4, 1, 5, 9, 2], [6], [5, 3, 5], [8, 9, 7, 9, 3, 2, 3, 8, 4], [2, 6, 5])
TOKENS = ([7, 0, 39], [2], [5, 6, 8, 11], [1, 30], [9, 4])


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        attn_implementation="sdpa",
    )
    model = Qwen2ForCausalLM(config)
    # Qwen2's own norm computes in float32, which would limit what a float64 test can see.
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "Qwen2RMSNorm":
                setattr(module, name, nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def gradients(model: nn.Module, loss: torch.Tensor) -> torch.Tensor:
    """The gradients of all parameters, as one vector."""
    parts = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    return torch.cat([part.flatten() for part in parts])


# ------------------------------ micro-batches ------------------------------


@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 5), st.integers(1, 120))
def test_every_state_is_planned_once_and_no_part_is_too_large(lengths: list[int], num_ranks: int, max_tokens: int):
    plan = plan_micro_batches(lengths, num_ranks, max_tokens)
    assert sorted(index for parts in plan for part in parts for index in part) == list(range(len(lengths)))
    for parts in plan:
        # Every micro-batch has a part for every rank: all ranks run the same number of forwards.
        assert len(parts) == num_ranks
        assert any(parts)
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        for part in filter(None, parts):
            assert len(part) == 1 or len(part) * max(lengths[index] for index in part) <= max_tokens
    shortest = [min(lengths[index] for part in parts for index in part) for parts in plan]
    longest = [max(lengths[index] for part in parts for index in part) for parts in plan]
    assert all(low >= high for low, high in zip(shortest, longest[1:], strict=False))


def test_a_micro_batch_takes_as_many_states_as_fit():
    assert plan_micro_batches([5, 2, 9, 5, 1], 2, 10) == [[[2], [0]], [[3, 4], [1]]]
    assert plan_micro_batches([5, 5, 5, 5], 1, 10) == [[[0, 1]], [[2, 3]]]
    assert plan_micro_batches([50], 3, 10) == [[[0], [], []]]
    assert plan_micro_batches([], 3, 10) == []


@pytest.mark.parametrize(("lengths", "num_ranks", "max_tokens"), [([1, 0], 1, 1), ([1], 0, 1), ([1], 1, 0)])
def test_empty_states_ranks_and_budgets_are_refused(lengths: list[int], num_ranks: int, max_tokens: int):
    with pytest.raises(ValueError, match=f"at least 1 rank, token and .*got {num_ranks}, {max_tokens}, "):
        plan_micro_batches(lengths, num_ranks, max_tokens)


# ------------------------------ logits ------------------------------


def test_states_are_padded_on_the_left_and_positions_begin_at_the_first_token():
    inputs = left_padded([[7, 8, 9], [5]], "cpu")
    assert {name: tensor.tolist() for name, tensor in inputs.items()} == {
        "input_ids": [[7, 8, 9], [0, 0, 5]],
        "attention_mask": [[1, 1, 1], [0, 0, 1]],
        "position_ids": [[0, 1, 2], [0, 0, 0]],
    }
    assert all(tensor.dtype == torch.int64 for tensor in inputs.values())


def test_logits_are_those_of_each_state_alone(model: nn.Module):
    logits, norms = next_token_logits(model, STATES, "cpu")
    assert logits.shape == (len(STATES), VOCABULARY)
    assert norms is None
    for row, state in zip(logits, STATES, strict=True):
        torch.testing.assert_close(row, model(torch.tensor([state])).logits[0, -1], rtol=0, atol=1e-10)


def test_the_head_computes_one_position_a_state(model: nn.Module):
    shapes = []
    with model.get_submodule("lm_head").register_forward_hook(lambda _, args, out: shapes.append(out.shape)):
        next_token_logits(model, STATES, "cpu")
    assert shapes == [(len(STATES), 1, VOCABULARY)]


def test_hidden_norms_are_of_the_last_position_of_each_state_alone(model: nn.Module):
    _, norms = next_token_logits(model, STATES, "cpu", with_hidden_norms=True)
    assert norms is not None
    assert (norms.shape, norms.dtype, norms.requires_grad) == ((LAYERS,), torch.float32, False)
    wanted = torch.zeros(LAYERS)
    for state in STATES:
        for layer, hidden in enumerate(model(torch.tensor([state]), output_hidden_states=True).hidden_states[:-1]):
            squares = [value**2 for value in hidden[0, -1].tolist()]
            wanted[layer] += math.sqrt(sum(squares) / len(squares)) / len(STATES)
    torch.testing.assert_close(norms, wanted, rtol=1e-5, atol=0)


# ------------------------------ the loss ------------------------------


def targets_of(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(M,) targets, advantages and weights; some targets are already reached, some tokens have none."""
    with torch.no_grad():
        log_probs = one_row_a_token(model)
    advantages = torch.tensor([1, -1, 0, 1, -1, 1, 0, 1, -1, -1, 1, 1])
    targets = torch.where(advantages > 0, log_probs / 2, log_probs * 2)
    targets[5] = log_probs[5] - 0.5  # past it
    targets[advantages == 0] = float("nan")
    return targets, advantages, torch.linspace(0.1, 1.0, len(advantages), dtype=torch.float64)


def one_row_a_token(model: nn.Module) -> torch.Tensor:
    """(M,) log-probs: each token ends a separate row, as in an ordinary trainer."""
    return torch.stack(
        [
            model(torch.tensor([[*state, token]])).logits[0, -2].log_softmax(dim=-1)[token]
            for state, tokens in zip(STATES, TOKENS, strict=True)
            for token in tokens
        ]
    )


def shared_row(model: nn.Module, places: list[int]) -> torch.Tensor:
    """Log-probs of the tokens of the states at `places`, with one forward per state."""
    logits, _ = next_token_logits(model, [STATES[place] for place in places], "cpu")
    rows = [row for row, place in enumerate(places) for _ in TOKENS[place]]
    return token_log_probs(
        logits, torch.tensor(rows), torch.tensor([token for place in places for token in TOKENS[place]])
    )


def test_the_gradient_is_that_of_one_row_a_token(model: nn.Module):
    targets, advantages, weights = targets_of(model)
    log_probs = shared_row(model, list(range(len(STATES))))
    rows = one_row_a_token(model)
    torch.testing.assert_close(log_probs, rows, rtol=0, atol=1e-10)
    loss = target_loss(log_probs, targets, advantages, weights)
    wanted = sum(
        w * torch.relu(a * (target - value))
        for value, target, a, w in zip(rows, targets, advantages, weights, strict=True)
        if a != 0
    )
    assert isinstance(wanted, torch.Tensor)
    torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=0)
    got, expected = gradients(model, loss), gradients(model, wanted)
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("num_ranks", "max_tokens"), [(1, 1), (1, 10), (2, 20), (3, 9), (1, 1000)])
def test_the_gradient_does_not_depend_on_how_states_are_cut(model: nn.Module, num_ranks: int, max_tokens: int):
    targets, advantages, weights = targets_of(model)
    whole = target_loss(shared_row(model, list(range(len(STATES)))), targets, advantages, weights)
    starts = [sum(map(len, TOKENS[:place])) for place in range(len(STATES))]
    plan = plan_micro_batches([len(state) for state in STATES], num_ranks, max_tokens)
    loss, gradient = 0.0, torch.zeros(())
    for part in (part for parts in plan for part in parts if part):
        own = [number for place in part for number in range(starts[place], starts[place] + len(TOKENS[place]))]
        piece = target_loss(shared_row(model, part), targets[own], advantages[own], weights[own])
        loss += piece.item()
        gradient = gradient + gradients(model, piece)
    assert loss == pytest.approx(whole.item(), rel=1e-10)
    torch.testing.assert_close(gradient, gradients(model, whole), rtol=1e-9, atol=1e-10)
