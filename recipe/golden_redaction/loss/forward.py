"""One forward of a state for all its tokens. Torch; nothing distributed.

The log-probs of all candidate tokens of a state are read from one row of logits, at the state's last position. States
are padded on the left, so that this position is the last one of every row, and the model computes the logits only
there: a state of T tokens costs T positions of the body and one of the head, however many tokens are tried.

S: states of a micro-batch. T: tokens of the longest. V: vocabulary. L: layers.
"""

from collections.abc import Sequence

import torch


def plan_micro_batches(lengths: Sequence[int], num_ranks: int, max_tokens: int) -> list[list[list[int]]]:
    """Divide states among micro-batches and ranks so that all ranks run the same number of forwards.

    States of similar length go together, longest first; every rank's part of a micro-batch is at most `max_tokens`
    with its padding, unless it is a single state.

    Args:
        lengths: Tokens of each state, at least 1.
        num_ranks: At least 1.
        max_tokens: Token limit of one rank's forward, with padding.

    Returns:
        [micro-batch][rank][state]: indices into `lengths`, each exactly once; a rank's part may be empty.
    """
    if num_ranks < 1 or max_tokens < 1 or any(length < 1 for length in lengths):
        raise ValueError(
            f"expected at least 1 rank, token and token per state, got {num_ranks}, {max_tokens}, {list(lengths)}"
        )
    waiting = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    plan = []
    while waiting:
        # The first is the longest of this micro-batch: all others are padded to it.
        size = num_ranks * max(1, max_tokens // lengths[waiting[0]])
        part, waiting = waiting[:size], waiting[size:]
        plan.append([part[rank::num_ranks] for rank in range(num_ranks)])
    return plan


def left_padded(states: Sequence[Sequence[int]], device: torch.device | str) -> dict[str, torch.Tensor]:
    """`input_ids`, `attention_mask` and `position_ids`, each (S, T) int64, padded on the left; positions from 0."""
    longest = max(len(state) for state in states)
    input_ids = torch.zeros(len(states), longest, dtype=torch.int64)
    attention_mask = torch.zeros_like(input_ids)
    for row, state in enumerate(states):
        input_ids[row, longest - len(state) :] = torch.tensor(list(state), dtype=torch.int64)
        attention_mask[row, longest - len(state) :] = 1
    position_ids = (attention_mask.cumsum(dim=-1) - 1).clamp(min=0)
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def next_token_logits(
    module: torch.nn.Module,
    states: Sequence[Sequence[int]],
    device: torch.device | str,
    with_hidden_norms: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Logits of the token after each state.

    Args:
        module: A causal language model of transformers (or one wrapped by peft or FSDP2) that takes `logits_to_keep`.
        states: Token ids.
        device: Device of the inputs.
        with_hidden_norms: Also measure the residual stream.

    Returns:
        (S, V) logits with gradient; and (L,) float32 root mean square of the residual stream at the states' last
        positions before each layer, averaged over states (None unless asked for).
    """
    output = module(
        **left_padded(states, device), logits_to_keep=1, use_cache=False, output_hidden_states=with_hidden_norms
    )
    norms = None
    if with_hidden_norms:
        # transformers' last entry is after the final norm.
        last = torch.stack([hidden[:, -1].detach().float() for hidden in output.hidden_states[:-1]])
        norms = last.square().mean(dim=-1).sqrt().mean(dim=-1)
    return output.logits[:, -1], norms
