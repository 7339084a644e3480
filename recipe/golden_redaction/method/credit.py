"""Which next tokens of a state are better or worse than the others, and how good the state is. Pure.

The actions of a state are the distinct tokens sampled at temperature 1 and the teacher token. Each is rolled out R
times; a rollout's label is 1 (the program maps every example input to its output) or 0, and one that met an
infrastructure error has none. Then

    action reward   q_t = labels of t that are 1 / labels of t
    state reward    V   = sum_t p_t q_t / sum_t p_t        over the tokens with labels, p_t from the current policy
    advantage       A_t in {+1, 0, -1}                     from a test of t against all the other tokens together

**The test.** Given the number S of passes among the N labels of a state, tokens that are all equally good have
exchangeable labels: passes are hypergeometric, whatever the pass rate. p_t is twice the smaller tail of token t's
passes against the pooled labels of the rest (Fisher's exact test). As K tokens are compared, it is replaced by

    p~_t = P(min_u p_u <= p_t | S, all tokens equal)

the exact distribution of the smallest of the K p-values (single-step min-P), and A_t = +1 or -1, by the side of the
rest that q_t is on, where p~_t <= alpha. So in a state whose tokens are equal, P(any label is not 0) <= alpha: for
every pass rate, K, R and number of missing labels, without a prior. The K comparisons are strongly dependent (for
K = 2 they are one comparison), which makes Bonferroni and Holm conservative, but not the joint distribution. Beta
posteriors would need a prior, and their error rate would depend on it and on the pass rate. Where tokens differ, each
token that is as good as the mean of the others is labelled with probability <= alpha: p~_t is never below t's own exact
p-value, and pooling unequal rates has a smaller variance than the equal ones that it assumes.

The rest is pooled by labels, not weighted by p: evidence about a token does not change as the policy moves.

R * K rollouts are needed to see an effect. Power: share of tokens labelled +1 where one token passes at rate q and the
K - 1 others at rate r, at alpha = 0.05, and the error: share of states with any label when all pass at rate r
(20,000 states per cell, standard error below 0.004; `tests/unit/test_golden_credit.py` checks some of them):

     K   R | error at r =          | power for q against r
           |  .1     .3     .5     | .3/.1  .5/.1  .9/.1  .6/.3  .8/.5  .9/.5
     2   8 | .000   .012   .022   |  .03    .21    .93    .13    .12    .22
     2  16 | .008   .019   .021   |  .16    .58   1.00    .27    .27    .58
     2  32 | .011   .030   .034   |  .41    .94   1.00    .62    .64    .94
     4   8 | .016   .023   .023   |  .11    .42    .98    .13    .08    .20
     4  16 | .023   .031   .034   |  .24    .74   1.00    .31    .31    .67
     4  32 | .027   .032   .037   |  .50    .98   1.00    .68    .71    .98
     8   8 | .021   .018   .035   |  .10    .41    .99    .11    .08    .20
     8  16 | .021   .032   .032   |  .24    .80   1.00    .31    .29    .69
     8  32 | .027   .036   .033   |  .54    .98   1.00    .67    .68    .98

At R = 8, 5 of 8 against 4 of 8 is no evidence, as it should be; only large differences are seen. The error is well
below alpha at small R because few passes allow few p-values.

K: actions of a state. R: rollouts of an action. N: labels of a state.

Sources: Fisher (1935), The logic of inductive inference; Westfall and Young (1993), Resampling-Based Multiple Testing,
section 2.3 (min-P, here computed exactly and not by resampling).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from pydantic import Field, model_validator

from verl_ext.core.settings import Settings


class CreditSettings(Settings):
    """Settings of a state's actions and labels."""

    num_next_tokens: int = Field(default=16, ge=1)
    """Next tokens sampled at temperature 1 in a state; the distinct ones and the teacher's are its actions."""

    max_actions: int = Field(default=8, ge=2)
    """Maximum actions of a state: the teacher's and the most frequently sampled."""

    rollouts_per_action: int = Field(default=16, ge=1)
    """Rollouts of each action. recipe/golden_redaction/method/credit.py has the power at 8, 16 and 32: 8 detect only
    large effects."""

    min_labels: int = Field(default=4, ge=1)
    """Minimum labels of an action; one with fewer (because of infrastructure errors) is not compared."""

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Maximum probability that a state whose actions are equally good gets any non-zero advantage."""

    @model_validator(mode="after")
    def _agree(self) -> "CreditSettings":
        if self.min_labels > self.rollouts_per_action:
            raise ValueError(
                f"min_labels={self.min_labels} can never be reached with rollouts_per_action="
                f"{self.rollouts_per_action}: lower the one or raise the other"
            )
        return self


@dataclass(frozen=True, eq=False)
class StateCredit:
    """Credit of a state's actions from its rollouts.

    Attributes:
        num_labels: (K,) int64, labels of each token.
        rewards: (K,) float64 action rewards; NaN without a label.
        p_values: (K,) float64, p~ of the module's docstring; 1 for a token that was not compared.
        advantages: (K,) int64 in {+1, 0, -1}.
        state_reward: V, NaN if no token has a label.
        coverage: Total probability of the tokens that V averages over.
    """

    num_labels: np.ndarray
    rewards: np.ndarray
    p_values: np.ndarray
    advantages: np.ndarray
    state_reward: float
    coverage: float


def action_set(sampled: Sequence[int], teacher: int, max_actions: int | None = None) -> list[int]:
    """The distinct next tokens of a state.

    Args:
        sampled: Token ids drawn at temperature 1.
        teacher: golden[-k]; always an action.
        max_actions: Maximum number of tokens; the least often sampled are dropped, the later first. None: no limit.

    Returns:
        Token ids in the order of their first sample, with the teacher's last if it was not sampled.
    """
    if max_actions is not None and max_actions < 1:
        raise ValueError(f"max_actions must be at least 1 (the teacher token), got {max_actions}")
    counts: dict[int, int] = {}
    for token in [*sampled, teacher]:
        counts[int(token)] = counts.get(int(token), 0) + 1
    ranked = sorted(counts, key=lambda token: (token != teacher, -counts[token]))  # stable: the earlier first
    kept = set(ranked[:max_actions])
    return [token for token in counts if token in kept]


def assign_credit(
    labels: Sequence[Sequence[float | None]], log_probs: Sequence[float] | np.ndarray, settings: CreditSettings
) -> StateCredit:
    """Rewards and advantages of a state's tokens.

    Args:
        labels: For each of K tokens, the labels of its rollouts: 1, 0, or None (no label).
        log_probs: (K,) log-probabilities of the tokens under the current policy, in nats.
        settings: `min_labels` and `alpha` are used.

    Raises:
        ValueError: if there is not one log-prob per token, a label is not 1, 0 or None, or a log-prob is above 0.
    """
    log_probs = np.asarray(log_probs, dtype=np.float64)
    if log_probs.shape != (len(labels),) or not len(labels):
        raise ValueError(
            f"expected one log-prob for each of {len(labels)} token(s), at least one; got {log_probs.shape}"
        )
    if not (log_probs <= 1e-6).all():
        raise ValueError(f"log-probs must be at most 0, got {log_probs.tolist()}")
    known = [[entry for entry in token if entry is not None] for token in labels]
    wrong = sorted({repr(entry) for token in known for entry in token if entry not in (0, 1)})
    if wrong:
        raise ValueError(f"labels must be 1, 0 or None, got {', '.join(wrong[:5])}: the test is of passes and failures")
    num_labels = np.array([len(token) for token in known], dtype=np.int64)
    num_passes = np.array([sum(token) for token in known], dtype=np.int64)
    rewards = np.full(len(labels), np.nan)
    labelled = num_labels > 0
    rewards[labelled] = num_passes[labelled] / num_labels[labelled]
    probabilities = np.exp(log_probs)
    coverage = float(probabilities[labelled].sum())
    # Relative to the largest, because all tokens of a state may be too unlikely for float64.
    weights = np.exp(log_probs[labelled] - log_probs[labelled].max(initial=-np.inf)) if labelled.any() else []
    state_reward = float(np.average(rewards[labelled], weights=weights)) if labelled.any() else float("nan")
    taking_part = num_labels >= settings.min_labels
    p_values, advantages = np.ones(len(labels)), np.zeros(len(labels), dtype=np.int64)
    if taking_part.sum() >= 2:
        p_values[taking_part] = adjusted_p_values(num_passes[taking_part], num_labels[taking_part])
        # q_t is above the rest's rate exactly if it is above the rate of all.
        overall = num_passes[taking_part].sum() / num_labels[taking_part].sum()
        significant = taking_part & (p_values <= settings.alpha)
        advantages[significant] = np.sign(rewards[significant] - overall).astype(np.int64)
    return StateCredit(num_labels, rewards, p_values, advantages, state_reward, coverage)


def adjusted_p_values(num_passes: Sequence[int] | np.ndarray, num_labels: Sequence[int] | np.ndarray) -> np.ndarray:
    """p~ of each token of a state, float64 in (0, 1], exact up to rounding.

    Args:
        num_passes: (K,) int.
        num_labels: (K,) int, at least 1 each.
    """
    passes = [int(value) for value in num_passes]
    sizes = tuple(int(value) for value in num_labels)
    if len(passes) != len(sizes) or not all(0 <= s <= n and n for s, n in zip(passes, sizes, strict=True)):
        raise ValueError(f"expected 0 <= passes <= labels and labels >= 1 for each token, got {passes} of {sizes}")
    # Sorted, because states with the same sizes share a table.
    tables = _tables(tuple(sorted(sizes)), sum(passes))
    return np.array([tables[n][s] for s, n in zip(passes, sizes, strict=True)])


@lru_cache(maxsize=4096)
def _tables(sizes: tuple[int, ...], total: int) -> dict[int, list[float]]:
    """p~ by number of labels and of passes, for a state with these numbers of labels and `total` passes."""
    tails = {n: _two_sided(n, sum(sizes), total) for n in set(sizes)}
    rate = total / sum(sizes)  # keeps the sums below near 1; any rate gives the same ratio
    pmf = {n: np.array([comb(n, s) * rate**s * (1 - rate) ** (n - s) for s in range(n + 1)]) for n in tails}

    def sum_over_tables(smallest: int) -> float:
        """Weight of all (s_1 .. s_K) with sum `total` whose p-values all exceed `smallest`."""
        weight = np.ones(1)
        for n in sizes:
            allowed = np.array([tail > smallest for tail in tails[n]])
            weight = np.convolve(weight, np.where(allowed, pmf[n], 0.0))[: total + 1]
        return float(weight[total]) if len(weight) > total else 0.0

    everything = sum_over_tables(-1)
    ways = comb(sum(sizes), total)
    levels = {tail for table in tails.values() for tail in table}
    # At least the tail itself: 1 - x could fall below it through rounding.
    adjusted = {t: min(1.0, max(t / (2 * ways), 1.0 - sum_over_tables(t) / everything)) for t in levels}
    return {n: [adjusted[tail] for tail in table] for n, table in tails.items()}


def _two_sided(size: int, num_all: int, total: int) -> list[int]:
    """Fisher's p-value times C(num_all, total), an integer, for 0 .. size passes of one token: twice the smaller tail.

    All p-values of a state have this denominator, so they are compared exactly.
    """
    ways = [comb(size, s) * comb(num_all - size, total - s) if s <= total else 0 for s in range(size + 1)]
    denominator = comb(num_all, total)
    return [min(denominator, 2 * min(sum(ways[: s + 1]), sum(ways[s:]))) for s in range(size + 1)]
