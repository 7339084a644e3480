"""Where the log-prob of each labelled token is to go, and what each token weighs in the loss. Pure: numpy.

A token with advantage +1 is asked to half its negative log-prob, p -> p^(1/2); one with -1 to double it, p -> p^2; one
with 0 has no target. What preferred tokens gain has to come from somewhere: three of them at 1/4 ask for 1/2 each,
1.5 together. The mass that they may have together is

    available = [sum_T p - sum_{A=0} p - sum_{A=-1} p^2]  +  mass_from_others * (1 - sum_T p)

in T itself what the preferred have plus what the dispreferred give up (tokens without a label keep theirs), and a share
of what the tokens that nobody tried have. Where they ask for more, all of them go the same share of their way,

    target_t = p_t^(1 - share / 2),   share in [0, 1] the largest with sum_{A=+1} target_t <= available

which exists, because share = 0 asks for nothing more than the tokens have. This never asks a preferred token to fall
(dividing by the sum would: p = .9 and .09, which ask for .949 and .3, would come down to .76 and .24 for a sum of 1),
keeps their order, and shortens every token's way by the same factor in nats, the unit that the loss works in.

What dispreferred tokens give up has to go somewhere, too. A softmax spreads it over all others in proportion to their
probabilities: with P the mass of preferred tokens and U that of tokens without a label, tried or not, each grows by the
factor 1 + given_up / (P + U). That must not carry a preferred token past p^(1/2), so with `balanced` the dispreferred
tokens of such a state go a share of their way, too,

    target_t = p_t^(1 + fall),   fall in [0, 1] the largest with given_up <= (P + U) * (max_{A=+1} p ^ (-1/2) - 1)

Of two tokens with .9 (+1) and .1 (-1), p^2 = .01 would leave .99 for the one that was asked to go to .949. The sum
over T, with the targets of labelled tokens and p of the others, is then at most sum_T p + mass_from_others
(1 - sum_T p), so at most 1; it is below 1, which a softmax reaches with finite logits, where tokens outside T have mass
and mass_from_others is below 1.

K: actions of a state. M: tokens of all states of an update.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from pydantic import Field

from verl_ext.core.settings import Settings

Reduction = Literal["state_mean", "token_mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)

_BISECTIONS = 60


class TargetSettings(Settings):
    """Settings of the targets and the loss."""

    mass_from_others: float = Field(default=0.5, ge=0, le=1)
    """Share of the probability of all tokens that were not tried which preferred tokens may be asked to take. 0: only
    from the state's dispreferred tokens. 1: targets may sum to 1, which no softmax reaches."""

    balanced: bool = True
    """Dispreferred tokens are asked to give up no more than what preferred ones of their state may take. false: always
    to double their negative log-prob, as in the original method."""

    steps: int = Field(default=1, ge=1)
    """Optimizer steps of an update, at most: it ends when every labelled token is near its target. 1: one step, however
    far it moves the tokens."""

    aim: float = Field(default=0.9, gt=0, le=1)
    """Share of its way to the target that a token is brought with steps above 1. What is left is room for what the
    tokens of an update do to each other: with 1 about half of them end a little past their target."""

    reduction: Reduction = "state_mean"
    """state_mean: states weigh the same, and tokens within one. token_mean: all labelled tokens do. sum: each
    weighs 1."""


@dataclass(frozen=True, eq=False)
class Targets:
    """Of one state.

    Attributes:
        log_probs: (K,) float64 target log-probs in nats; NaN for a token without a label.
        share: How much of their way the preferred tokens are asked to go, in [0, 1]; 1 where there are none.
        fall: The same of dispreferred tokens.
    """

    log_probs: np.ndarray
    share: float
    fall: float


def target_log_probs(
    log_probs: Sequence[float] | np.ndarray, advantages: Sequence[int] | np.ndarray, settings: TargetSettings
) -> Targets:
    """Targets of one state's tokens.

    Args:
        log_probs: (K,) of different tokens of one softmax, in nats, finite and at most 0.
        advantages: (K,) in {+1, 0, -1}.
        settings: `mass_from_others` and `balanced` are used.

    Raises:
        ValueError: if shapes differ, an advantage is another number, or the log-probs are not of one distribution.
    """
    log_probs, advantages = np.asarray(log_probs, dtype=np.float64), np.asarray(advantages)
    if log_probs.ndim != 1 or log_probs.shape != advantages.shape:
        raise ValueError(f"expected one advantage a token, got {log_probs.shape} and {advantages.shape}")
    if not np.isin(advantages, (-1, 0, 1)).all():
        raise ValueError(f"advantages must be +1, 0 or -1, got {advantages.tolist()}")
    # A few float32 ulps above 1 are what a log-softmax gives.
    if not np.isfinite(log_probs).all() or (log_probs > 1e-6).any() or np.exp(log_probs).sum() > 1 + 1e-4:
        raise ValueError(
            f"expected finite log-probs of different tokens of one state, which sum to at most 1; got "
            f"{log_probs.tolist()} (sum of p {np.exp(log_probs).sum():.4g}): is a token there twice?"
        )
    log_probs = np.minimum(log_probs, 0.0)
    preferred, dispreferred = advantages > 0, advantages < 0
    targets = np.full(len(log_probs), np.nan)
    fall = _largest_fall(log_probs, preferred, dispreferred) if settings.balanced else 1.0
    targets[dispreferred] = (1.0 + fall) * log_probs[dispreferred]
    others = max(0.0, 1.0 - float(np.exp(log_probs).sum()))
    given_up = float((np.exp(log_probs[dispreferred]) - np.exp(targets[dispreferred])).sum())
    available = float(np.exp(log_probs[preferred]).sum()) + given_up + settings.mass_from_others * others
    share = _largest_share(log_probs[preferred], available)
    targets[preferred] = (1.0 - share / 2.0) * log_probs[preferred]
    return Targets(targets, share, fall)


def _largest_share(log_probs: np.ndarray, available: float) -> float:
    """Largest share in [0, 1] with sum exp((1 - share / 2) log p) <= available; the sum rises with the share."""
    return _largest(lambda share: float(np.exp((1.0 - share / 2.0) * log_probs).sum()) <= available)


def _largest_fall(log_probs: np.ndarray, preferred: np.ndarray, dispreferred: np.ndarray) -> float:
    """Largest share of their way that dispreferred tokens can go without carrying a preferred one past its own."""
    if not preferred.any():
        return 1.0
    probs = np.exp(log_probs)
    growth = float(np.exp(-log_probs[preferred].max() / 2.0)) - 1.0
    takes = (1.0 - float(probs[dispreferred].sum())) * growth
    return _largest(
        lambda fall: float((probs[dispreferred] - np.exp((1.0 + fall) * log_probs[dispreferred])).sum()) <= takes
    )


def _largest(fits: Callable[[float], bool]) -> float:
    """Largest number in [0, 1] that fits, where 0 does and none does above one that does not."""
    if fits(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def token_weights(
    states: Sequence[int] | np.ndarray, advantages: Sequence[int] | np.ndarray, reduction: str
) -> np.ndarray:
    """What each token of an update weighs in the loss; computed once over all states of the update.

    The loss is the sum of weight times term, so it is the same however the states are cut into micro-batches and
    ranks. A token counts whether or not it has reached its target: as targets are reached the loss falls, and the
    others do not take over their weight.

    Args:
        states: (M,) number of the state that each token belongs to.
        advantages: (M,) in {+1, 0, -1}.
        reduction: One of `REDUCTIONS`; states without a labelled token do not count.

    Returns:
        (M,) float64, 0 for a token without a label.

    Raises:
        ValueError: if shapes differ or the reduction is unknown.
    """
    states, labelled = np.asarray(states), np.asarray(advantages) != 0
    if states.shape != labelled.shape or states.ndim != 1:
        raise ValueError(f"expected one state and one advantage a token, got {states.shape} and {labelled.shape}")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")
    weights = labelled.astype(np.float64)
    if reduction == "sum" or not labelled.any():
        return weights
    if reduction == "token_mean":
        return weights / labelled.sum()
    _, group, counts = np.unique(states[labelled], return_inverse=True, return_counts=True)
    weights[labelled] = 1.0 / (len(counts) * counts[group])
    return weights
