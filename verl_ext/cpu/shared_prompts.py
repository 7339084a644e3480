"""Rows with the same prompt, or the same beginning of it, as one row of a model's input, so that it is computed once.

The rollouts of a prompt repeat its tokens, and prompts may begin alike: with a system prompt, with worked examples.
With a mask they fit into one row,

    beginning | rest of prompt 1 | response 1 | response 2 | ... | rest of prompt 2 | response 1 | ...

in which the positions of every part continue those of what it follows in its own row, and a token attends to the
beginning, to its own prompt and to its own response. Every token then sees what it sees in its own row, so log-probs
and gradients are those of separate rows, up to rounding. For one prompt it is the layout of Prefix Grouper
(https://arxiv.org/abs/2506.05433), with a dense mask instead of two calls of attention: simple, and fast enough for
rows of some thousand tokens. Pure.

Letters of shapes: G packed rows, L tokens of the longest packed row, K columns with logits, N predicted tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """A prompt and a response.

    Attributes:
        prompt: Ids of its tokens; at least one.
        response_length: Number of the response's tokens.
    """

    prompt: tuple[int, ...]
    response_length: int


def row_cost(length: int, hidden_size: int) -> float:
    """Of a row with a dense mask, in tokens of a short row.

    Per token and layer, a transformer's matrices take about 24 h^2 operations, and attention to L tokens 4 L h.

    Args:
        length: L.
        hidden_size: h.
    """
    return length * (1 + length / (6 * hidden_size))


@dataclass(frozen=True)
class Family:
    """Neighbouring rows that become one packed row.

    Attributes:
        rows: At least one; equal prompts next to each other.
        shared: Number of tokens with which all of their prompts begin.
    """

    rows: tuple[Row, ...]
    shared: int

    @property
    def length(self) -> int:
        """Tokens of the packed row."""
        rests = sum(len(prompt) - self.shared for prompt, _ in groupby(row.prompt for row in self.rows))
        return self.shared + rests + sum(row.response_length for row in self.rows)

    def with_next(self, other: "Family") -> "Family":
        """Both in one packed row."""
        common = _common_length(self.rows[-1].prompt, other.rows[0].prompt)
        return Family(self.rows + other.rows, min(self.shared, other.shared, common))


def families(rows: Sequence[Row], hidden_size: int) -> Iterator[Family]:
    """Rows of a prompt, with those of the next prompts as long as one packed row costs less than two."""
    last: Family | None = None
    for prompt, group in groupby(rows, key=lambda row: row.prompt):
        following = Family(tuple(group), len(prompt))
        if last is None:
            last = following
            continue
        both = last.with_next(following)
        if row_cost(both.length, hidden_size) < sum(row_cost(each.length, hidden_size) for each in (last, following)):
            last = both
        else:
            yield last
            last = following
    if last is not None:
        yield last


def _common_length(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def order_by_prompt(rows: Sequence[Row], hidden_size: int) -> list[int]:
    """Positions of the rows: those of a packed row next to each other, and packed rows by their length."""
    by_prompt = sorted(range(len(rows)), key=lambda position: rows[position].prompt)
    left = iter(by_prompt)
    found = [
        (family.length, [next(left) for _ in family.rows])
        for family in families([rows[position] for position in by_prompt], hidden_size)
    ]
    found.sort(key=lambda pair: pair[0])
    return [position for _, positions in found for position in positions]


@dataclass(frozen=True)
class MicroBatch:
    """What a micro-batch takes: G packed rows, padded to L tokens."""

    num_rows: int
    length: int

    @property
    def tokens(self) -> int:
        """G x L."""
        return self.num_rows * self.length


def micro_batches(rows: Sequence[Row], size: int, hidden_size: int) -> list[MicroBatch]:
    """Of `size` rows each, in the order of `order_by_prompt`."""
    parts = (rows[start : start + size] for start in range(0, len(rows), size))
    lengths = [[family.length for family in families(part, hidden_size)] for part in parts]
    return [MicroBatch(len(each), max(each)) for each in lengths]


def costs_by_size(rows: Sequence[Row], max_tokens: int, hidden_size: int) -> dict[int, float]:
    """Cost of all micro-batches, by their number of rows: numbers that divide that of all rows, and leave no
    micro-batch too large.

    Args:
        rows: In the order of `order_by_prompt`.
        max_tokens: Most tokens of a packed micro-batch, padding included.
        hidden_size: Of the model.
    """
    costs = {}
    for size in range(1, len(rows) + 1):
        if len(rows) % size == 0:
            found = micro_batches(rows, size, hidden_size)
            if max(batch.tokens for batch in found) <= max_tokens:
                costs[size] = sum(batch.num_rows * row_cost(batch.length, hidden_size) for batch in found)
    return costs


@dataclass(frozen=True)
class Packed:
    """A micro-batch with every prompt once.

    Attributes:
        input_ids_GL: Tokens, padded at the end.
        position_ids_GL: Of every token in its own row.
        attention_mask_GLL: Whether a token (second dimension) sees another.
        columns_K: The columns whose logits predict a token of a response, in increasing order.
        group_N, column_N: For every token of a response, the place of the logits that predict it in [G, K].
        labels_N: These tokens.
        row_N: Their rows.
        place_N: Where their log-probs belong among the tokens of all rows, one row after the other: at the position
            that predicts them.
    """

    input_ids_GL: Tensor
    position_ids_GL: Tensor
    attention_mask_GLL: Tensor
    columns_K: Tensor
    group_N: Tensor
    column_N: Tensor
    labels_N: Tensor
    row_N: Tensor
    place_N: Tensor


@dataclass
class _PackedRow:
    """A packed row in the making: of every token its id, its position, its prompt and its response.

    Prompts and responses have numbers from 1; what belongs to all of them has 0.
    """

    ids: list[Tensor] = field(default_factory=list)
    positions: list[Tensor] = field(default_factory=list)
    prompts: list[Tensor] = field(default_factory=list)
    responses: list[Tensor] = field(default_factory=list)
    length: int = 0

    def append(self, ids: Tensor, position: int, prompt: int, response: int) -> None:
        """Tokens from a position on."""
        self.ids.append(ids)
        self.positions.append(position + torch.arange(len(ids)))
        self.prompts.append(torch.full((len(ids),), prompt))
        self.responses.append(torch.full((len(ids),), response))
        self.length += len(ids)


def pack(prompts: Sequence[Tensor], responses: Sequence[Tensor], pad_id: int, hidden_size: int) -> Packed:
    """Pack rows.

    Args:
        prompts: Token ids of every row's prompt, at least one; only neighbours are shared.
        responses: Of its response.
        pad_id: For padding.
        hidden_size: Of the model.
    """
    rows = [Row(tuple(prompt.tolist()), len(answer)) for prompt, answer in zip(prompts, responses, strict=True)]
    packed_rows: list[_PackedRow] = []
    groups: list[Tensor] = []
    columns: list[Tensor] = []
    places: list[Tensor] = []
    number = begin = 0
    for family in families(rows, hidden_size):
        packed_row = _PackedRow()
        packed_row.append(prompts[number][: family.shared], 0, 0, 0)
        last, end, num_prompts = None, 0, 0
        for row in family.rows:
            prompt, response = prompts[number], responses[number]
            if row.prompt != last:
                last, num_prompts = row.prompt, num_prompts + 1
                packed_row.append(prompt[family.shared :], family.shared, num_prompts, 0)
                # A prompt may be the beginning of the others.
                end = (packed_row.length if len(prompt) > family.shared else family.shared) - 1
            continued = torch.arange(len(response))
            # The first token is predicted by the prompt's last, the others by the one before.
            predicting = packed_row.length - 1 + continued
            predicting[:1] = end
            groups.append(torch.full_like(predicting, len(packed_rows)))
            columns.append(predicting)
            places.append(begin + len(prompt) - 1 + continued)
            number += 1
            packed_row.append(response, len(prompt), num_prompts, number)
            begin += len(prompt) + len(response)
        packed_rows.append(packed_row)

    input_ids_GL, position_ids_GL, prompt_GL, response_GL = (
        torch.nn.utils.rnn.pad_sequence([torch.cat(parts) for parts in each], batch_first=True, padding_value=padding)
        for each, padding in (
            ([row.ids for row in packed_rows], pad_id),
            ([row.positions for row in packed_rows], 0),
            ([row.prompts for row in packed_rows], -1),
            ([row.responses for row in packed_rows], -1),
        )
    )
    is_earlier_LL = torch.ones(2 * (input_ids_GL.shape[1],), dtype=torch.bool).tril()
    columns_K, column_N = torch.unique(torch.cat(columns), return_inverse=True)
    return Packed(
        input_ids_GL,
        position_ids_GL,
        is_earlier_LL & _is_common_or_own(prompt_GL) & _is_common_or_own(response_GL),
        columns_K,
        torch.cat(groups),
        column_N,
        torch.cat([*responses]),
        torch.repeat_interleave(torch.tensor([row.response_length for row in rows])),
        torch.cat(places),
    )


def _is_common_or_own(part_GL: Tensor) -> Tensor:
    """[G, L, L]: whether what a token sees belongs to all parts, or to its own."""
    return (part_GL[:, None, :] == 0) | (part_GL[:, None, :] == part_GL[:, :, None])
