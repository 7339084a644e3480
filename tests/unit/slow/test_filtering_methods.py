"""Pilot-Commit and GRESO: what their papers say about a rate, a streak and a round."""

import itertools
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from competitors_play import EASY, HOPELESS, RATES, FixedPassRates, group_sizes, make, play
from filtering_methods import Greso, PilotCommit
from learning_lab import Rollout

# ------------------------------ Pilot-Commit ------------------------------


@pytest.mark.parametrize(
    ("rate", "kept"), [(0.0, False), (0.124, False), (0.125, True), (0.75, True), (0.751, False), (1.0, False)]
)
def test_pilot_commit_keeps_the_band_from_an_eighth_to_three_quarters(rate, kept):
    assert make("pilot_commit").is_kept(rate) == kept


def test_pilot_commit_spends_a_quarter_on_a_prompt_that_it_does_not_commit_to():
    method = PilotCommit(120, batch=4, group=16, seed=0)
    policy = FixedPassRates(RATES)
    batch = method.next_batch(policy)
    assert set(group_sizes(batch)) == {16}
    trained = {rollout.prompt for rollout in batch.rollouts}
    waiting = {entry.prompt for entry in method.waiting}
    assert {policy.asked[prompt] for prompt in set(policy.asked) - trained} <= {4, 8}  # two passes at most
    assert all(policy.asked[prompt] % 16 in (0, 4) for prompt in trained)
    assert all(RATES[prompt] == 0.4 for prompt in trained | waiting)


def test_pilot_commit_evicts_prompts_after_eight_right_pilots_and_defers_hopeless_ones():
    method, policy = PilotCommit(120, batch=4, group=16, seed=0), FixedPassRates(RATES)  # 4 pilots per visit
    play(method, policy, 40)
    assert {policy.asked[prompt] for prompt in EASY} == {8}
    assert set(EASY) <= method.evicted
    assert all(policy.asked[prompt] >= 12 for prompt in HOPELESS)
    assert not set(HOPELESS) & method.evicted


@pytest.mark.parametrize(("group", "visits"), [(8, 4), (64, 1)])
def test_pilot_commit_needs_eight_right_pilots_however_many_a_visit_has(group, visits):
    method = PilotCommit(2, batch=1, group=group, seed=0)
    right = [Rollout(0, [1], torch.zeros(1), 1.0)] * method.num_pilots
    for visit in range(1, visits + 1):
        assert 0 not in method.evicted, visit
        method._judge(0, right)
    assert 0 in method.evicted


def test_pilot_commit_lets_survivors_wait_four_steps():
    # All prompts are in the band; 3 x batch are piloted per round and only `batch` committed to: most must go unused.
    method = PilotCommit(1000, batch=4, group=8, seed=0)
    method.p_lower, method.p_upper = 0.0, -1.0
    policy = FixedPassRates([0.5] * 1000)
    for step in range(1, 9):
        method.next_batch(policy)
        assert min(entry.step for entry in method.waiting) >= step - 4
    assert min(entry.step for entry in method.waiting) == 4
    assert max(entry.step for entry in method.waiting) == 8


def test_pilot_commit_trains_on_pilots_and_commitment_together():
    method, policy = PilotCommit(120, batch=4, group=16, seed=0), FixedPassRates(RATES)
    method.next_batch(policy)
    held = {entry.prompt: list(map(id, entry.pilots)) for entry in method.waiting}
    batch = method.next_batch(policy)
    trained = set(map(id, batch.rollouts))
    used = [ids for prompt, ids in held.items() if prompt not in {entry.prompt for entry in method.waiting}]
    assert used
    assert all(set(ids) <= trained for ids in used)


# ------------------------------ GRESO ------------------------------


def test_greso_explores_with_the_power_of_the_streak():
    method = make("greso")
    method.explore_easy, method.explore_hard = 0.5, 0.3
    method.streaks[:4] = [0, 1, 3, -2]
    chances = [method.explore_probability(prompt) for prompt in range(4)]
    assert chances == pytest.approx([1.0, 0.5, 0.125, 0.09])
    method.streaks[0] = -20
    assert method.explore_probability(0) == 0.01


def test_greso_counts_a_streak_of_one_direction():
    method = make("greso", num_prompts=1)
    seen = []
    for sign in (1, 1, -1, -1, 0, 1):
        method._extend_streaks([0], [sign])
        seen.append(int(method.streaks[0]))
    assert seen == [1, 2, -1, -2, 0, 1]


def test_greso_skips_as_often_as_it_says():
    method = make("greso", num_prompts=2)
    method.streaks[:] = [2, 0]  # explored with probability 1/4 and 1
    drawn = Counter(itertools.chain.from_iterable(method._unskipped(1) for _ in range(8000)))
    assert drawn[0] / drawn[1] == pytest.approx(0.25, abs=0.03)


def test_greso_turns_towards_its_targets_within_bounds():
    method = make("greso")
    method.adjust(easy_share=1 / 12, hard_share=0.1)
    assert (method.explore_easy, method.explore_hard) == pytest.approx((0.49, 0.51))
    for _ in range(100):
        method.adjust(easy_share=1.0, hard_share=0.0)
    assert (method.explore_easy, method.explore_hard) == pytest.approx((0.05, 0.95))


def test_greso_rounds_are_as_large_as_what_is_missing_needs():
    method = Greso(1000, batch=64, group=8, seed=0)
    assert method.round_size(missing=64, zero_share=0.9) == 96  # 1.5 x 64, not 1.25 x 640
    assert method.round_size(missing=8, zero_share=0.75) == 40  # 1.25 x 8 / .25
    assert method.round_size(missing=1, zero_share=1.0) == 96


def test_greso_trains_on_mixed_groups_only():
    method = make("greso")
    for batch in play(method, FixedPassRates(RATES), 20):
        rewards = {}
        for rollout, group in zip(batch.rollouts, batch.groups, strict=True):
            rewards.setdefault(group, set()).add(rollout.reward)
        assert all(len(values) == 2 for values in rewards.values())


def test_greso_adjusts_from_the_second_epoch_on():
    method = make("greso")
    policy = FixedPassRates(RATES)
    changed_at = None
    while changed_at is None:
        method.next_batch(policy)
        if method.explore_hard != 0.5:
            changed_at = method._offered
    assert 120 < changed_at < 240
