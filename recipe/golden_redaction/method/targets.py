"""The target log-prob of each labelled token, and each token's weight in the loss. Pure: numpy.

The target of a token with advantage +1 is half its log-prob, p -> p^(1/2); with -1 it is twice its log-prob, p -> p^2;
with 0 there is no target. The probability that preferred tokens gain must come from others: three of them at 1/4 would
need 1/2 each, 1.5 in total. The mass available to them is

    available = [sum_T p - sum_{A=0} p - sum_{A=-1} p^2]  +  mass_from_others * (1 - sum_T p)

within T, the preferred tokens' own mass plus what the dispreferred give up (tokens without a label keep theirs), and a
share of the mass of the untried tokens. If they need more, all of them move the same share of their distance,

    target_t = p_t^(1 - share / 2),   share in [0, 1] the largest with sum_{A=+1} target_t <= available

which exists, because with share = 0 the tokens keep what they have. This never lowers a preferred token
(dividing by the sum would: p = .9 and .09 with targets .949 and .3 would be scaled to .76 and .24 for a sum of 1),
keeps their order, and shortens every token's distance by the same factor in nats, the unit that the loss works in.

The mass that dispreferred tokens give up also has to go somewhere. A softmax spreads it over all others in proportion
to their
probabilities: with P the mass of preferred tokens and U that of tokens without a label, tried or not, each grows by the
factor 1 + given_up / (P + U). That must not carry a preferred token past p^(1/2), so with `balanced` the dispreferred
tokens of such a state also move only a share of their distance,

    target_t = p_t^(1 + fall),   fall in [0, 1] the largest with given_up <= (P + U) * (max_{A=+1} p ^ (-1/2) - 1)

Of two tokens with .9 (+1) and .1 (-1), p^2 = .01 would leave .99 for the one whose target is .949. The sum
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
    """Share of the probability of all untried tokens that preferred tokens' targets may take. 0: they take only from
    the state's dispreferred tokens. 1: targets may sum to 1, which no softmax reaches."""

    balanced: bool = True
    """Dispreferred tokens give up no more than the preferred ones of their state may take. false: the target is always
    twice the log-prob, as in the original method."""

    steps: int = Field(default=1, ge=1)
    """Maximum optimizer steps of an update, which ends when every labelled token is near its target. 1: one step,
    however far it moves the tokens."""

    aim: float = Field(default=0.9, gt=0, le=1)
    """With steps above 1, share of the distance to the target that a token is moved. The rest is room for the tokens'
    effect on each other: with 1, about half of them end slightly past their target."""

    scale_lr: bool = True
    """Multiply the learning rate by the square root of the number of labelled states in the update, so that a log-prob
    moves as far with many states as with one. (The gradient is clipped to norm 1, which their gradients, mostly
    orthogonal, share.) false: the learning rate is the length of a step whatever the number of states."""

    reduction: Reduction = "state_mean"
    """state_mean: states have equal weight, and so have the tokens within one. token_mean: all labelled tokens have
    equal weight. sum: each has weight 1."""


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of one state.

    Attributes:
        log_probs: (K,) float64 target log-probs in nats; NaN for a token without a label.
        share: Share of their distance that the preferred tokens should move, in [0, 1]; 1 if there are none.
        fall: The same for dispreferred tokens.
    """

    log_probs: np.ndarray
    share: float
    fall: float


def target_log_probs(
    log_probs: Sequence[float] | np.ndarray, advantages: Sequence[int] | np.ndarray, settings: TargetSettings
) -> Targets:
    """Targets of one state's tokens.

    Args:
        log_probs: (K,) of distinct tokens of one softmax, in nats, finite and at most 0.
        advantages: (K,) in {+1, 0, -1}.
        settings: `mass_from_others` and `balanced` are used.

    Raises:
        ValueError: if shapes differ, an advantage is another number, or the log-probs cannot be of one distribution.
    """
    log_probs, advantages = np.asarray(log_probs, dtype=np.float64), np.asarray(advantages)
    if log_probs.ndim != 1 or log_probs.shape != advantages.shape:
        raise ValueError(f"expected one advantage per token, got {log_probs.shape} and {advantages.shape}")
    if not np.isin(advantages, (-1, 0, 1)).all():
        raise ValueError(f"advantages must be +1, 0 or -1, got {advantages.tolist()}")
    # A log-softmax can exceed 1 by a few float32 ulps.
    if not np.isfinite(log_probs).all() or (log_probs > 1e-6).any() or np.exp(log_probs).sum() > 1 + 1e-4:
        raise ValueError(
            f"expected finite log-probs of different tokens of one state, which sum to at most 1; got "
            f"{log_probs.tolist()} (sum of p {np.exp(log_probs).sum():.4g}): is a token duplicated?"
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
    """Largest share of their distance that dispreferred tokens can move without pushing a preferred one past its
    target."""
    if not preferred.any():
        return 1.0
    probs = np.exp(log_probs)
    growth = float(np.exp(-log_probs[preferred].max() / 2.0)) - 1.0
    takes = (1.0 - float(probs[dispreferred].sum())) * growth
    return _largest(
        lambda fall: float((probs[dispreferred] - np.exp((1.0 + fall) * log_probs[dispreferred])).sum()) <= takes
    )


def _largest(fits: Callable[[float], bool]) -> float:
    """Largest number in [0, 1] that fits, by bisection: 0 fits, and fitting is monotone."""
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
    """Each token's weight in the loss, computed once over all states of the update.

    The loss is the sum of weight times term, so it does not depend on the split into micro-batches and ranks. Tokens
    count whether or not they have reached their target, so the others do not take over their weight.

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
        raise ValueError(f"expected one state and one advantage per token, got {states.shape} and {labelled.shape}")
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
