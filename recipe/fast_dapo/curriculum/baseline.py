"""A baseline for each rollout, from everything known about its prompt before it. Pure.

A group's mean is a poor baseline: with 2 rollouts it is the other one, with 1 there is none, and where all rewards are
equal nothing is learned. The posterior of the prompt's pass rate knows more. Rollout i has the advantage r_i - b_i with

    b_i = (s m + sum of r_j) / (s + number of j),      j: the other rollouts of its stage, and all of earlier stages

where m is the mean reward that was expected of the prompt and s the number of rollouts this expectation counts as: for
0/1 rewards with pass rate ~ Beta(a, b), m = a / (a + b) and s = a + b, so that b_i = (a + S - r_i) / (a + b + N - 1) is
the posterior mean given the N - 1 others. Rewards of any other scale are shrunk in the same way.

The gradient stays unbiased, whatever m and s are. Given the prompt, rollouts y_i are independent draws from the policy,
so for every b_i that does not depend on y_i

    E[(r_i - b_i) grad log pi(y_i)] = E[r_i grad log pi(y_i)] - E[b_i] E[grad log pi(y_i)] = grad E[r],

and b_i does not depend on y_i: m and s come from earlier steps, and what is generated in a later stage, which may well
depend on y_i (only a mixed screening is continued), is left out. A prompt whose number of rollouts N was decided
between stages therefore adds E[N] grad E[r] to a sum over rollouts: its own gradient, times the rollouts spent on it.
No Horvitz-Thompson weight is needed, as nothing that was generated is thrown away.

Sources: Williams (1992), Simple statistical gradient-following algorithms, on baselines; Kool, van Hoof and Welling
(2019), Buy 4 REINFORCE samples, get a baseline for free, on leaving one out; James and Stein (1961) on shrinking.
"""

import numpy as np


def leave_one_out_baselines(rewards_G: np.ndarray, stages_G: np.ndarray, mean: float, strength: float) -> np.ndarray:
    """The baseline of each of a prompt's rollouts.

    Args:
        rewards_G: (G,) rewards.
        stages_G: (G,) int, the stage that generated each: the first rollouts of a prompt have 0, those requested after
            their rewards were known have 1, and so on.
        mean: Reward expected of the prompt before its first rollout.
        strength: Rollouts that this expectation counts as, at least 0. With 0 the only rollout of a first stage has
            the baseline 0.

    Returns:
        (G,) float64.

    Raises:
        ValueError: If the lengths differ or the strength is negative.

    Example:
        >>> leave_one_out_baselines(np.array([1.0, 0.0]), np.array([0, 0]), mean=0.5, strength=2.0)
        array([0.33333333, 0.66666667])
    """
    rewards_G, stages_G = np.asarray(rewards_G, dtype=np.float64), np.asarray(stages_G)
    if rewards_G.shape != stages_G.shape or rewards_G.ndim != 1:
        raise ValueError(f"expected one stage per reward, got shapes {stages_G.shape} and {rewards_G.shape}")
    if strength < 0:
        raise ValueError(f"expected a strength of at least 0 rollouts, got {strength}")
    known_GG = stages_G[None, :] <= stages_G[:, None]  # rows: whose baseline, columns: what it may use
    np.fill_diagonal(known_GG, False)
    weights_G = strength + known_GG.sum(1)
    sums_G = strength * mean + known_GG @ rewards_G
    return np.divide(sums_G, weights_G, out=np.zeros_like(sums_G), where=weights_G > 0)


class RewardScale:
    """What a pass and a failure are rewarded with on average: a line through (success, reward) of all rollouts so far.

    The posterior is of pass rates; a reward may be -1 and 1, or graded. The line of a prompt's own rollouts is drawn
    without them (`line`, before `add`), so that its baselines stay independent of them.

    Attributes:
        sums: (5,) of 1, x, r, x^2 and x r over all rollouts, x the success and r the reward.
    """

    def __init__(self) -> None:
        self.sums = np.zeros(5)

    @staticmethod
    def sums_of(successes_G: np.ndarray, rewards_G: np.ndarray) -> np.ndarray:
        """The sums over some rollouts."""
        x, r = np.asarray(successes_G, dtype=np.float64), np.asarray(rewards_G, dtype=np.float64)
        return np.array([len(x), x.sum(), r.sum(), (x * x).sum(), (x * r).sum()])

    def add(self, sums: np.ndarray) -> None:
        """Take rollouts into account."""
        self.sums = self.sums + sums

    def line(self, others: np.ndarray) -> tuple[float, float]:
        """(reward of a failure, further reward of a pass), from what was added and these sums.

        The identity where nothing is known; where all successes are the same, a slope of 1 through their mean reward.
        """
        count, x, r, xx, xr = self.sums + others
        if not count:
            return 0.0, 1.0
        spread = xx - x * x / count
        slope = (xr - x * r / count) / spread if spread > 1e-9 * count else 1.0
        return float((r - slope * x) / count), float(slope)


def credibility(rewards_PG: list[np.ndarray]) -> tuple[float, float]:
    """Mean and strength of one common prior for all prompts of a pool, for groups without a posterior.

    Buehlmann's credibility: the strength is the variance within groups over that between their means, by unbiased
    moments. Prompts that are all alike give a large one, at most 1e6.

    Args:
        rewards_PG: Rewards per group; at least two groups need two or more.

    Returns:
        (mean, strength); a strength of 0 where there are too few groups.

    Source: Buehlmann and Straub (1970), Glaubwuerdigkeit fuer Schadensaetze.
    """
    groups = [np.asarray(rewards, dtype=np.float64) for rewards in rewards_PG if len(rewards) > 1]
    everything = np.concatenate([np.asarray(rewards, dtype=np.float64) for rewards in rewards_PG] or [np.zeros(0)])
    mean = float(everything.mean()) if len(everything) else 0.0
    if len(groups) < 2:
        return mean, 0.0
    sizes = np.array([len(group) for group in groups])
    means = np.array([group.mean() for group in groups])
    within = sum(((group - group.mean()) ** 2).sum() for group in groups) / (sizes - 1).sum()
    total = sizes.sum()
    overall = (sizes * means).sum() / total
    spread = (sizes * (means - overall) ** 2).sum() - (len(groups) - 1) * within
    between = max(spread / (total - (sizes**2).sum() / total), 0.0)
    return mean, float(min(within / between, 1e6)) if between > 0 else 1e6
