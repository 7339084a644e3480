"""Rows that share a prompt, or its beginning, in one row: every token sees what it sees in its own row."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config

from verl_ext.cpu.shared_prompt_engine import best_size, takes_masks
from verl_ext.cpu.shared_prompts import (
    Packed,
    Row,
    costs_by_size,
    families,
    micro_batches,
    order_by_prompt,
    pack,
    row_cost,
)

VOCABULARY, PAD = 11, 10
# Norms compute in float32; tests/integration/test_shared_prompts.py has 1e-10.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
# Of a model so wide that attention is free, so that every common token is shared, and of a narrow one.
WIDE, NARROW = 10**6, 4
hidden_sizes = st.sampled_from([WIDE, 16, NARROW])
tokens = st.lists(st.integers(0, PAD - 1), max_size=4)
beginnings = st.sampled_from([[1, 2, 3, 4, 5], [1, 2, 3], [7], []])
prompts = st.tuples(beginnings, tokens).map(lambda parts: parts[0] + parts[1]).filter(bool)
# Few different prompts, in any order, with responses that may be empty.
batches = st.lists(prompts, min_size=1, max_size=4).flatmap(
    lambda few: st.lists(st.tuples(st.sampled_from(few), tokens), min_size=1, max_size=6)
)


Batch = Sequence[tuple[Sequence[int], Sequence[int]]]


def _pack(batch: Batch, hidden_size: int) -> Packed:
    prompts, responses = (
        [torch.tensor(part, dtype=torch.long) for part in parts] for parts in zip(*batch, strict=True)
    )
    return pack(prompts, responses, PAD, hidden_size)


def _ordered(batch: Batch, hidden_size: int) -> Batch:
    return [batch[position] for position in order_by_prompt(_rows(batch), hidden_size)]


def _rows(batch: Batch) -> list[Row]:
    return [Row(tuple(prompt), len(response)) for prompt, response in batch]


# ------------------------------ packed rows ------------------------------


@given(batches, hidden_sizes)
def test_a_token_sees_the_tokens_of_its_own_row_at_their_positions(batch: Batch, hidden_size: int):
    batch = _ordered(batch, hidden_size)
    packed = _pack(batch, hidden_size)
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


@given(batches, hidden_sizes)
def test_every_predicted_token_has_its_place_among_the_tokens_of_all_rows(batch: Batch, hidden_size: int):
    packed = _pack(batch, hidden_size)
    following = torch.tensor([token for prompt, response in batch for token in (*prompt, *response)]).roll(-1)
    assert torch.equal(following[packed.place_N], packed.labels_N)
    assert len(packed.place_N) == len(set(packed.place_N.tolist())) == sum(len(response) for _, response in batch)


@given(batches, hidden_sizes)
def test_every_token_sees_itself_so_that_no_softmax_is_empty(batch: Batch, hidden_size: int):
    assert _pack(batch, hidden_size).attention_mask_GLL.diagonal(dim1=1, dim2=2).all()


@given(batches, hidden_sizes)
def test_prompts_of_a_packed_row_begin_with_the_tokens_they_share(batch: Batch, hidden_size: int):
    for family in families(_rows(batch), hidden_size):
        assert family.shared > 0
        assert len({row.prompt[: family.shared] for row in family.rows}) == 1


@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config])
def test_log_probs_and_gradients_are_those_of_separate_rows(kind: type):
    model = _model(kind)
    batch = [([1, 2], [4]), ([1, 2, 3, 4], [5, 6]), ([1, 2, 3, 4], []), ([1, 2, 3, 4], [7, 8, 9]), ([1, 2, 5], [1, 4])]
    batch += [([3], [1]), ([3], [1, 1, 2])]
    rows = [(torch.tensor(p), torch.tensor(r, dtype=torch.long)) for p, r in batch]
    packed = _pack(batch, WIDE)
    assert packed.input_ids_GL.shape == (2, 13)
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


@given(batches, hidden_sizes)
def test_rows_of_a_prompt_are_neighbours(batch: Batch, hidden_size: int):
    rows = _rows(batch)
    order = order_by_prompt(rows, hidden_size)
    assert sorted(order) == list(range(len(rows)))
    runs = [prompt for prompt, _ in itertools.groupby(rows[position].prompt for position in order)]
    assert len(runs) == len(set(runs))


@given(batches, st.integers(1, 40), hidden_sizes)
def test_micro_batches_divide_the_rows_and_stay_within_the_limit(batch: Batch, max_tokens: int, hidden_size: int):
    batch = _ordered(batch, hidden_size)
    costs = costs_by_size(_rows(batch), max_tokens, hidden_size)
    for size in range(1, len(batch) + 1):
        shapes = [
            _pack(batch[start : start + size], hidden_size).input_ids_GL.shape for start in range(0, len(batch), size)
        ]
        assert (size in costs) == (len(batch) % size == 0 and all(shape.numel() <= max_tokens for shape in shapes))
        if size in costs:
            assert costs[size] == pytest.approx(sum(num * row_cost(length, hidden_size) for num, length in shapes))


def test_tokens_include_the_padding_to_the_longest_packed_row():
    (batch,) = micro_batches([Row((1, 2), 3), Row((1, 2), 4), Row((5,), 1)], 3, WIDE)
    assert (batch.num_rows, batch.length, batch.tokens) == (2, 9, 18)


def test_prompts_share_a_row_while_that_costs_less_than_two():
    few_common, most_common = (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 7, 8)
    rows = [Row(few_common + (9,) * 20, 4), Row(few_common + (8,) * 20, 4)]
    assert len(list(families(rows, WIDE))) == 1
    # 30 tokens twice, or 54 of which each sees up to 54: attention costs more than six tokens.
    assert len(list(families(rows, 16))) == 2
    rows = [Row(most_common * 8 + (9,), 4), Row(most_common * 8 + (8,), 4)]
    assert len(list(families(rows, 16))) == 1
    assert list(families([], WIDE)) == []


def test_the_ranks_take_the_size_that_costs_least_of_those_that_all_can_have():
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
