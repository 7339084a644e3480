"""Competitors that generate and then keep groups with mixed rewards: verl's filter_groups, Pilot-Commit and GRESO."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from learning_lab import Policy, Rollout
from sampling_methods import Batch, Method

# A step ends with what it has after so many groups per prompt of the pool: a pool may have nothing to keep.
MAX_PASSES = 4


def pass_rate(rollouts: list[Rollout]) -> float:
    """Mean reward."""
    return sum(rollout.reward for rollout in rollouts) / len(rollouts)


class PlainFilterGroups(Method):
    """verl's filter_groups (DAPO, arXiv 2503.14476) without Ray and TransferQueue, for many runs.

    Generates what `FilterGroups` does with verl's own buffer: `batch` groups at first; for each group of equal rewards
    two more, up to `batch` at a time, until `batch` groups are mixed. These are trained on, the surplus is discarded:
    here the last ones, in verl any, as its buffer sorts the finished groups by their step only.

    Differs if there is nothing to learn: verl never stops.
    """

    def _collect(self, policy: Policy) -> Batch:
        mixed: list[list[Rollout]] = []
        equal: list[list[Rollout]] = []
        size, credit = self.batch, 0
        while len(mixed) < self.batch and len(mixed) + len(equal) < MAX_PASSES * self.num_prompts:
            prompts = list(itertools.islice(self._order, size))
            self.num_screened += size
            groups = self._generate_groups(policy, prompts, [self.group] * size)
            is_mixed = [direction(rollouts) == 0 for rollouts in groups]
            mixed += list(itertools.compress(groups, is_mixed))
            equal += [group for group, kept in zip(groups, is_mixed, strict=True) if not kept]
            credit += 2 * is_mixed.count(False)
            size = min(credit, self.batch)
            credit -= size
        return Batch.of_groups((mixed or equal)[: self.batch])


@dataclass
class Waiting:
    """A prompt whose pilot rollouts were within the band, and the step in which they were generated."""

    prompt: int
    pilots: list[Rollout]
    step: int


class PilotCommit(Method):
    """Pilot-Commit (arXiv 2605.26606; databricks/pilot-commit, recipe/pc).

    Pilot: every new prompt gets a quarter of its N rollouts, which estimate its pass rate p. Commit: prompts with

        p_lower <= p <= 1 - p_upper        (.125 and .25: the hard side is preferred)

    get the other rollouts and are trained on with all N. p = 1 evicts a prompt for good; others outside the band are
    deferred to the next epoch. A round generates the pilots of 3 x `batch` new prompts together with the commitments to
    survivors of earlier rounds, drawn at random; survivors that were not drawn wait at most 4 steps.

    Follows the published code where its README differs (which reads as an upper end of .25, not .75). Simplified: the
    published runs have 16 or 32 pilots; with fewer, a prompt is evicted after 8 right ones in a row (the code's default
    number of pilots), in as many visits as that takes, since 2 of 2 would evict most of what can be learned. When every
    prompt is evicted, all are admitted again.

    Raises:
        ValueError: If a group has fewer than 2 rollouts.
    """

    def __init__(
        self,
        num_prompts: int,
        *,
        batch: int,
        group: int,
        seed: int,
        p_lower: float = 0.125,
        p_upper: float = 0.25,
        pilot_share: float = 0.25,
        prompts_per_round: int = 3,
        max_wait: int = 4,
        evict_after: int = 8,
    ) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed)
        if group < 2:
            raise ValueError(
                f"expected at least 2 rollouts per prompt, got {group}: a pilot needs two outcomes to vary"
            )
        self.p_lower, self.p_upper = p_lower, p_upper
        self.max_wait, self.evict_after = max_wait, evict_after
        self.num_pilots = max(2, round(pilot_share * group))
        self.round_size = prompts_per_round * batch
        self.waiting: list[Waiting] = []
        self.evicted: set[int] = set()
        self.right_in_a_row = np.zeros(num_prompts, dtype=np.int64)  # pilots of a prompt
        self._rng = np.random.default_rng([seed, 1])
        self._step = 0

    def is_kept(self, rate: float) -> bool:
        """Whether a prompt of this pass rate among its pilots is committed to."""
        return self.p_lower <= rate <= 1 - self.p_upper

    def _collect(self, policy: Policy) -> Batch:
        self._step += 1
        full: list[list[Rollout]] = []
        screened: list[list[Rollout]] = []
        while len(full) < self.batch:
            drawn = self._draw_waiting(self.batch - len(full))
            new = self._new_prompts() if len(screened) < MAX_PASSES * self.num_prompts else []
            if not drawn and not new:
                break
            prompts = new + [entry.prompt for entry in drawn]
            sizes = [self.num_pilots] * len(new) + [self.group - self.num_pilots] * len(drawn)
            groups = self._generate_groups(policy, prompts, sizes)
            pilots, commitments = groups[: len(new)], groups[len(new) :]
            full += [entry.pilots + rest for entry, rest in zip(drawn, commitments, strict=True)]
            screened += pilots
            for prompt, rollouts in zip(new, pilots, strict=True):
                self._judge(prompt, rollouts)
        self.waiting = [entry for entry in self.waiting if self._step - entry.step <= self.max_wait]
        return Batch.of_groups(full or screened[: self.batch])

    def _draw_waiting(self, wanted: int) -> list[Waiting]:
        order = self._rng.permutation(len(self.waiting)).tolist()
        drawn, left = order[:wanted], order[wanted:]
        entries = self.waiting
        self.waiting = [entries[place] for place in sorted(left)]
        return [entries[place] for place in drawn]

    def _new_prompts(self) -> list[int]:
        if len(self.evicted) == self.num_prompts:
            self.evicted.clear()
            self.right_in_a_row[:] = 0
        unavailable = self.evicted | {entry.prompt for entry in self.waiting}
        wanted = min(self.round_size, self.num_prompts - len(unavailable))
        chosen: dict[int, None] = {}
        while len(chosen) < wanted:
            prompt = next(self._order)
            if prompt not in unavailable:
                chosen[prompt] = None
        self.num_screened += len(chosen)
        return list(chosen)

    def _judge(self, prompt: int, pilots: list[Rollout]) -> None:
        rate = pass_rate(pilots)
        self.right_in_a_row[prompt] = self.right_in_a_row[prompt] + len(pilots) if rate == 1.0 else 0
        if self.right_in_a_row[prompt] >= self.evict_after:
            self.evicted.add(prompt)
        elif self.is_kept(rate):
            self.waiting.append(Waiting(prompt, pilots, self._step))


class Greso(Method):
    """GRESO (arXiv 2506.02177; Infini-AI-Lab/GRESO): dynamic sampling that skips prompts likely to be useless.

    A prompt whose last z groups all had zero variance, in one direction, is generated for with probability

        p_explore ** z, at least .01       (p_explore apart for easy, all right, and hard, all wrong prompts)

    After each step beyond the first epoch p_explore falls by .01 where that kind's share of the groups reached its
    target and rises by .01 where it did not, within .05 and .95; the targets are 1/12 easy and 1/6 hard (a quarter, in
    thirds). Groups of zero variance are not trained on; the step continues until the batch is full, in rounds of

        min(1.5 x batch, 1.25 x missing / (1 - share of zero variance in the last round)) prompts.

    Simplified: the published code takes a short batch after a round smaller than 1.5 x batch; here a batch is filled.
    """

    def __init__(
        self,
        num_prompts: int,
        *,
        batch: int,
        group: int,
        seed: int,
        explore: float = 0.5,
        change: float = 0.01,
        target_zero_variance: float = 0.25,
        oversampling: float = 1.5,
        margin: float = 1.25,
    ) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed)
        self.explore_easy = self.explore_hard = explore
        self.change, self.margin = change, margin
        self.target_easy, self.target_hard = target_zero_variance / 3, 2 * target_zero_variance / 3
        self.largest_round = math.ceil(oversampling * batch)
        self.streaks = np.zeros(num_prompts, dtype=np.int64)  # z, below 0 for groups that were all wrong
        self._rng = np.random.default_rng([seed, 1])
        self._offered = 0

    def explore_probability(self, prompt: int) -> float:
        """Of generating for a prompt when its turn comes."""
        streak = int(self.streaks[prompt])
        base = self.explore_easy if streak > 0 else self.explore_hard
        return max(base ** abs(streak), 0.01)

    def round_size(self, missing: int, zero_share: float) -> int:
        """Prompts of the next round, of which a share 1 - zero_share may be expected to be kept."""
        if zero_share == 1.0:
            return self.largest_round
        return min(self.largest_round, math.ceil(self.margin * missing / (1 - zero_share)))

    def _collect(self, policy: Policy) -> Batch:
        kept: list[list[Rollout]] = []
        screened: list[list[Rollout]] = []
        directions: list[int] = []  # 1 all right, -1 all wrong, 0 mixed
        size = self.largest_round
        while len(kept) < self.batch and len(screened) < MAX_PASSES * self.num_prompts:
            prompts = self._unskipped(size)
            groups = self._generate_groups(policy, prompts, [self.group] * len(prompts))
            found = [direction(rollouts) for rollouts in groups]
            self._extend_streaks(prompts, found)
            screened, directions = screened + groups, directions + found
            kept += list(itertools.compress(groups, [sign == 0 for sign in found]))
            size = self.round_size(self.batch - len(kept), sum(map(abs, found)) / len(found))
        if self._offered > self.num_prompts:
            self.adjust(directions.count(1) / len(directions), directions.count(-1) / len(directions))
        return Batch.of_groups((kept or screened)[: self.batch])

    def _unskipped(self, size: int) -> list[int]:
        chosen: dict[int, None] = {}
        while len(chosen) < min(size, self.num_prompts):
            prompt = next(self._order)
            self._offered += 1
            if self._rng.random() < self.explore_probability(prompt):
                chosen[prompt] = None
        self.num_screened += len(chosen)
        return list(chosen)

    def _extend_streaks(self, prompts: list[int], directions: list[int]) -> None:
        for prompt, sign in zip(prompts, directions, strict=True):
            streak = int(self.streaks[prompt])
            self.streaks[prompt] = streak + sign if streak * sign > 0 else sign

    def adjust(self, easy_share: float, hard_share: float) -> None:
        """Explore less of the kind whose share of a step's groups reached its target, more of the other."""
        easy = -self.change if easy_share >= self.target_easy else self.change
        hard = -self.change if hard_share >= self.target_hard else self.change
        self.explore_easy = min(max(self.explore_easy + easy, 0.05), 0.95)
        self.explore_hard = min(max(self.explore_hard + hard, 0.05), 0.95)


def direction(rollouts: list[Rollout]) -> int:
    """1 for a group that is all right, -1 for all wrong, 0 for mixed rewards."""
    rate = pass_rate(rollouts)
    return 1 if rate == 1.0 else -1 if rate == 0.0 else 0
