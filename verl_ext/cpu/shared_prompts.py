"""Rows with the same prompt as one row of a model's input, so that the prompt is computed once. Pure.

The rollouts of a prompt repeat its tokens. With a mask they fit into one row,

    prompt | response 1 | response 2 | ...

in which the positions of every response continue those of the prompt, and a token attends to the prompt and to its own
response. Every token then sees what it sees in its own row, so log-probs and gradients are those of separate rows, up
to rounding. It is the layout of Prefix Grouper (https://arxiv.org/abs/2506.05433), with a dense mask instead of two
calls of attention: simple, and fast enough for rows of several hundred tokens.

Letters of shapes: G distinct prompts, L tokens of the longest packed row, K columns with logits, N predicted tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


def order_by_prompt(rows: Sequence[Row]) -> list[int]:
    """Positions of the rows: those of a prompt next to each other, and prompts by their packed length."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, row in enumerate(rows):
        groups.setdefault(row.prompt, []).append(position)
    by_length = sorted(groups.values(), key=lambda group: _packed_length([rows[position] for position in group]))
    return [position for group in by_length for position in group]


def sizes_within(rows: Sequence[Row], max_tokens: int) -> list[int]:
    """Numbers of rows per micro-batch that divide their number, and leave no micro-batch too large.

    Args:
        rows: In the order of `order_by_prompt`.
        max_tokens: Most tokens of a packed micro-batch, padding included.
    """
    count = len(rows)
    return [
        size
        for size in range(1, count + 1)
        if count % size == 0 and all(packed_tokens(part) <= max_tokens for part in _parts(rows, size))
    ]


def tokens_in_parts(rows: Sequence[Row], size: int) -> int:
    """Tokens of all packed micro-batches with this many rows each, padding included."""
    return sum(packed_tokens(part) for part in _parts(rows, size))


def packed_tokens(rows: Sequence[Row]) -> int:
    """G x L of rows in the order of `order_by_prompt`."""
    lengths = [_packed_length(group) for group in _groups(rows)]
    return len(lengths) * max(lengths, default=0)


def _parts(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    return (list(group) for _, group in groupby(rows, key=lambda row: row.prompt))


def _packed_length(group: Sequence[Row]) -> int:
    return len(group[0].prompt) + sum(row.response_length for row in group)


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


def pack(prompts: Sequence[Tensor], responses: Sequence[Tensor], pad_id: int) -> Packed:
    """Pack rows.

    Args:
        prompts: Token ids of every row's prompt, at least one; equal ones must be next to each other to be shared.
        responses: Of its response.
        pad_id: For padding.
    """
    ids: list[list[Tensor]] = []
    positions: list[list[Tensor]] = []
    # 0 for the prompt's tokens, another number for each response.
    segments: list[list[Tensor]] = []
    groups: list[Tensor] = []
    columns: list[Tensor] = []
    places: list[Tensor] = []
    begin, last = 0, None
    for prompt, response in zip(prompts, responses, strict=True):
        if last is None or not torch.equal(prompt, last):
            ids.append([prompt])
            positions.append([torch.arange(len(prompt))])
            segments.append([torch.zeros(len(prompt), dtype=torch.long)])
            last = prompt
        used = sum(len(part) for part in ids[-1])
        continued = torch.arange(len(response))
        # The first token is predicted by the prompt's last, the others by the one before.
        predicting = used - 1 + continued
        if len(response):
            predicting[0] = len(prompt) - 1
        groups.append(torch.full_like(predicting, len(ids) - 1))
        columns.append(predicting)
        places.append(begin + len(prompt) - 1 + continued)
        ids[-1].append(response)
        positions[-1].append(len(prompt) + continued)
        segments[-1].append(torch.full_like(continued, len(ids[-1]) - 1))
        begin += len(prompt) + len(response)

    input_ids_GL, position_ids_GL, segment_GL = (
        torch.nn.utils.rnn.pad_sequence([torch.cat(parts) for parts in rows], batch_first=True, padding_value=padding)
        for rows, padding in ((ids, pad_id), (positions, 0), (segments, -1))
    )
    is_earlier_LL = torch.ones(2 * (input_ids_GL.shape[1],), dtype=torch.bool).tril()
    sees_GLL = (segment_GL[:, None, :] == 0) | (segment_GL[:, None, :] == segment_GL[:, :, None])
    column_N = torch.cat(columns)
    columns_K, column_N = torch.unique(column_N, return_inverse=True)
    return Packed(
        input_ids_GL,
        position_ids_GL,
        is_earlier_LL & sees_GLL,
        columns_K,
        torch.cat(groups),
        column_N,
        torch.cat([*responses]),
        torch.repeat_interleave(torch.tensor([len(response) for response in responses])),
        torch.cat(places),
    )
