"""Rows that share a prompt in one row: every token sees what it sees in its own row, and nothing else."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config

from verl_ext.cpu.shared_prompt_engine import best_size, takes_masks
from verl_ext.cpu.shared_prompts import Row, order_by_prompt, pack, packed_tokens, sizes_within, tokens_in_parts

VOCABULARY, PAD = 11, 10
# Norms compute in float32; tests/integration/test_shared_prompts.py has 1e-10.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
tokens = st.lists(st.integers(0, PAD - 1), max_size=4)
prompts = st.lists(st.integers(0, PAD - 1), min_size=1, max_size=4)
# Few different prompts, in any order, with responses that may be empty.
batches = st.lists(prompts, min_size=1, max_size=3).flatmap(
    lambda few: st.lists(st.tuples(st.sampled_from(few), tokens), min_size=1, max_size=6)
)


def _rows(batch: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Row]:
    return [Row(tuple(prompt), len(response)) for prompt, response in batch]


# ------------------------------ packed rows ------------------------------


@given(batches)
def test_a_token_sees_the_tokens_of_its_own_row_at_their_positions(batch: list[tuple[list[int], list[int]]]):
    batch = [batch[position] for position in order_by_prompt(_rows(batch))]
    packed = pack([torch.tensor(p) for p, _ in batch], [torch.tensor(r, dtype=torch.long) for _, r in batch], PAD)
    seen = packed.attention_mask_GLL
    for group, column_K, label, row in zip(
        packed.group_N.tolist(), packed.column_N.tolist(), packed.labels_N.tolist(), packed.row_N.tolist(), strict=True
    ):
        column = int(packed.columns_K[column_K])
        context = seen[group, column].nonzero()[:, 0]
        prompt, response = batch[row]
        position = int(packed.position_ids_GL[group, column])
        # The context of a prediction: this row's tokens up to the one before the predicted token.
        whole = [*prompt, *response]
        assert packed.input_ids_GL[group, context].tolist() == whole[: position + 1]
        assert packed.position_ids_GL[group, context].tolist() == list(range(position + 1))
        assert whole[position + 1] == label


@given(batches)
def test_every_predicted_token_has_its_place_among_the_tokens_of_all_rows(batch: list[tuple[list[int], list[int]]]):
    packed = pack([torch.tensor(p) for p, _ in batch], [torch.tensor(r, dtype=torch.long) for _, r in batch], PAD)
    following = torch.tensor([token for prompt, response in batch for token in (*prompt, *response)]).roll(-1)
    assert torch.equal(following[packed.place_N], packed.labels_N)
    assert len(packed.place_N) == len(set(packed.place_N.tolist())) == sum(len(response) for _, response in batch)


@given(batches)
def test_every_token_sees_itself_so_that_no_softmax_is_empty(batch: list[tuple[list[int], list[int]]]):
    packed = pack([torch.tensor(p) for p, _ in batch], [torch.tensor(r, dtype=torch.long) for _, r in batch], PAD)
    assert packed.attention_mask_GLL.diagonal(dim1=1, dim2=2).all()


@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config])
def test_log_probs_and_gradients_are_those_of_separate_rows(kind: type):
    model = _model(kind)
    batch = [([1, 2, 3, 4], [5, 6]), ([1, 2, 3, 4], []), ([1, 2, 3, 4], [7, 8, 9]), ([3], [1]), ([3], [1, 1, 2])]
    rows = [(torch.tensor(p), torch.tensor(r, dtype=torch.long)) for p, r in batch]
    packed = pack([p for p, _ in rows], [r for _, r in rows], PAD)
    assert packed.input_ids_GL.shape == (2, 9)
    output = model(
        input_ids=packed.input_ids_GL,
        position_ids=packed.position_ids_GL,
        attention_mask=packed.attention_mask_GLL[:, None],
        logits_to_keep=packed.columns_K,
    )
    logits_NV = output.logits[packed.group_N, packed.column_N]
    shared_N = logits_NV.log_softmax(-1).gather(1, packed.labels_N[:, None])[:, 0]
    separate_N = torch.cat([_log_probs(model, prompt, response) for prompt, response in rows])
    torch.testing.assert_close(shared_N, separate_N, **CLOSE)
    weights_N = torch.randn(len(shared_N), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for ours, theirs in zip(
        *(torch.autograd.grad(weights_N @ log_probs, list(model.parameters())) for log_probs in (shared_N, separate_N)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, **CLOSE)


def _model(kind: type, **settings: object) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = kind(vocab_size=VOCABULARY, num_key_value_heads=1, head_dim=8, **sizes | settings)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").double()


def _log_probs(model: nn.Module, prompt: torch.Tensor, response: torch.Tensor) -> torch.Tensor:
    logits_TV = model(input_ids=torch.cat([prompt, response])[None]).logits[0]
    return logits_TV[len(prompt) - 1 : -1].log_softmax(-1).gather(1, response[:, None])[:, 0]


# ------------------------------ micro-batches ------------------------------


@given(batches)
def test_rows_of_a_prompt_are_neighbours(batch: list[tuple[list[int], list[int]]]):
    rows = _rows(batch)
    order = order_by_prompt(rows)
    assert sorted(order) == list(range(len(rows)))
    runs = [prompt for prompt, _ in itertools.groupby(rows[position].prompt for position in order)]
    assert len(runs) == len(set(runs))


@given(batches, st.integers(1, 40))
def test_micro_batches_divide_the_rows_and_stay_within_the_limit(
    batch: list[tuple[list[int], list[int]]], max_tokens: int
):
    rows = _rows(batch)
    rows = [rows[position] for position in order_by_prompt(rows)]
    for size in range(1, len(rows) + 1):
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        is_possible = len(rows) % size == 0 and all(packed_tokens(part) <= max_tokens for part in parts)
        assert (size in sizes_within(rows, max_tokens)) == is_possible
        assert tokens_in_parts(rows, size) == sum(packed_tokens(part) for part in parts)


def test_tokens_include_the_padding_to_the_longest_prompt():
    assert packed_tokens([Row((1, 2), 3), Row((1, 2), 4), Row((5,), 1)]) == 2 * 9
    assert packed_tokens([]) == 0


def test_the_ranks_take_the_size_with_the_fewest_tokens_that_all_can_have():
    assert best_size([({1: 50, 2: 30, 4: 25}, 50), ({1: 50, 2: 30}, 50)]) == 2
    assert best_size([({1: 50, 2: 30, 4: 30}, 50)]) == 4
    # Nothing in common, nothing to save, no plan.
    assert best_size([({4: 30}, 50), ({2: 30}, 50)]) is None
    assert best_size([({1: 50, 2: 45}, 50)]) is None
    assert best_size([({}, 0)]) is None


# ------------------------------ models ------------------------------


def test_models_with_windows_or_other_attention_are_left_alone():
    assert takes_masks(_model(Qwen2Config))
    assert takes_masks(_model(LlamaConfig))
    assert not takes_masks(_model(MistralConfig, sliding_window=4))
    assert not takes_masks(_model(Gemma2Config))
    eager = _model(LlamaConfig)
    eager.set_attn_implementation("eager")
    assert not takes_masks(eager)
