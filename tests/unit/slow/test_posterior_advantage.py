"""The posterior baseline through verl's own functions: against its formula by hand, however rows are ordered."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from recipe.fast_dapo import posterior_advantage
from recipe.fast_dapo.curriculum.baseline import RewardScale, credibility, leave_one_out_baselines
from recipe.fast_dapo.posterior_advantage import KnownPrompt, prepare
from verl_ext.core.errors import SignalError
from verl_ext.serving.rollout_key import uid_of

WIDTH = 5
PAD = "pad0123"


@pytest.fixture(autouse=True)
def _nothing_from_before() -> None:
    """Clears what other tests left: within one process, a run remembers its batches."""
    posterior_advantage._prepared.clear()
    posterior_advantage._earlier.clear()


def advantages_of(keys: Sequence[str], rewards: Sequence[float], *, through_verls_trainer: bool = True) -> np.ndarray:
    """One number per row, as verl computes it; asserts that all tokens of a response share it, and no others have one.

    Args:
        keys: `{uid}_{session}_{output}`; row i has 1 + i % 4 tokens, and one of PAD has none that counts.
        rewards: The reward of each row, at its last token.
    """
    mask, scores = torch.zeros(len(keys), WIDTH), torch.zeros(len(keys), WIDTH)
    for row, (key, reward) in enumerate(zip(keys, rewards, strict=True)):
        length = 1 + row % (WIDTH - 1)
        mask[row, :length] = 0.0 if key.startswith(PAD) else 1.0
        scores[row, length - 1] = reward
    data = DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={"uid": np.array([uid_of(key) for key in keys], dtype=object)},
    )
    if through_verls_trainer:
        data = compute_advantage_for_multi_trajectories(data, list(keys), "posterior", config=None)
    else:
        data = compute_advantage(data, "posterior", config=None)
    advantages = data.batch["advantages"]
    assert torch.equal(advantages, data.batch["returns"])
    assert torch.equal(advantages, advantages[:, :1] * mask)
    return advantages[:, 0].numpy()


def keys_of(uid: str, num: int) -> list[str]:
    return [f"{uid}_{session}_0" for session in range(num)]


def by_hand(rewards: Sequence[float], known: KnownPrompt, line: tuple[float, float] = (0.0, 1.0)) -> np.ndarray:
    """A group's advantages from the formula, with rewards on a line (failure, gain) of successes."""
    strength = known.alpha + known.beta
    mean = line[0] + line[1] * known.alpha / strength
    return np.array(rewards) - leave_one_out_baselines(np.array(rewards), np.array(known.stages), mean, strength)


# A mixed prompt that was continued, one that always failed, and one of a single rollout.
GROUPS = {
    "u_1": (KnownPrompt(0.3, 0.9, [1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]), [1.0, 0.0, 1.0, 1.0]),
    "u_2": (KnownPrompt(0.2, 4.2, [0.0, 0.0], [0, 0]), [0.0, 0.0]),
    "u_3": (KnownPrompt(2.0, 1.0, [1.0], [0]), [1.0]),
}
KNOWN = {uid: known for uid, (known, _) in GROUPS.items()}
KEYS = [key for uid, (known, _) in GROUPS.items() for key in keys_of(uid, len(known.stages))]
REWARDS = [reward for _, rewards in GROUPS.values() for reward in rewards]
EXPECTED = np.concatenate([by_hand(rewards, known) for known, rewards in GROUPS.values()])


# ------------------------------ with the curriculum's posteriors ------------------------------


@pytest.mark.parametrize("through_verls_trainer", [True, False])
@given(order=st.permutations(range(len(KEYS))))
def test_advantages_are_those_of_the_formula_whatever_the_order_of_rows(order: list[int], through_verls_trainer: bool):
    keys = [KEYS[row] for row in order]
    prepare(keys, KNOWN, RewardScale())
    got = advantages_of(keys, [REWARDS[row] for row in order], through_verls_trainer=through_verls_trainer)
    assert got == pytest.approx(EXPECTED[order], abs=1e-6)


def test_a_rollout_alone_or_among_equal_ones_teaches():
    prepare(KEYS, KNOWN, RewardScale())
    got = dict(zip(KEYS, advantages_of(KEYS, REWARDS), strict=True))
    assert got["u_3_0_0"] == pytest.approx(1 - 2 / 3)
    assert got["u_2_0_0"] == got["u_2_1_0"] == pytest.approx(-0.2 / 5.4)


def test_a_later_stage_has_no_say_in_the_baseline_of_an_earlier_one():
    known = {"u": KnownPrompt(1.0, 1.0, [1.0, 0.0, 0.0, 0.0], [0, 0, 1, 1])}
    first = []
    for rewards in ([1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]):
        prepare(keys_of("u", 4), known, RewardScale())
        first.append(advantages_of(keys_of("u", 4), rewards)[:2].tolist())
    assert first[0] == first[1] == pytest.approx([1 - 1 / 3, 0 - 2 / 3])


@given(order=st.permutations(range(6)))
def test_all_outputs_of_a_session_share_the_advantage_of_the_last(order: list[int]):
    """Its reward is the session's; the rewards of the other outputs' rows are not read."""
    keys = ["u_0_0", "u_0_1", "u_0_2", "u_1_0", "u_2_0", "u_2_1"]
    rewards = [7.0, -7.0, 1.0, 0.0, 7.0, 1.0]
    known = KnownPrompt(0.4, 0.6, [1.0, 0.0, 1.0], [0, 0, 1])
    expected = by_hand([1.0, 0.0, 1.0], known)[[0, 0, 0, 1, 2, 2]]
    scale = RewardScale()
    prepare([keys[row] for row in order], {"u": known}, scale)
    got = advantages_of([keys[row] for row in order], [rewards[row] for row in order])
    assert got == pytest.approx(expected[order], abs=1e-6)
    assert scale.sums[0] == 3


def test_rows_that_fill_up_the_batch_have_no_advantage_and_no_say():
    keys = [*KEYS[:4], f"{PAD}_0_0", *KEYS[4:], f"{PAD}_1_0"]
    rewards = [*REWARDS[:4], 0.0, *REWARDS[4:], 0.0]
    scale = RewardScale()
    prepare(keys, KNOWN, scale)
    got = advantages_of(keys, rewards)
    assert got[[4, -1]].tolist() == [0, 0]
    assert np.delete(got, [4, -1]) == pytest.approx(EXPECTED, abs=1e-6)
    assert scale.sums[0] == len(KEYS)


def test_rewards_of_minus_one_and_one_give_twice_the_advantages_of_zero_and_one():
    """From the first batch on: the line is drawn through the other prompts' rollouts."""
    signed = [2 * reward - 1 for reward in REWARDS]
    scale = RewardScale()
    for _ in range(2):
        prepare(KEYS, KNOWN, scale)
        got = advantages_of(KEYS, signed)
        assert got == pytest.approx(2 * EXPECTED, abs=1e-6)
    assert scale.line(np.zeros(5)) == pytest.approx((-1, 2))


def test_graded_rewards_are_expected_by_the_line_of_all_others():
    """Those of earlier batches, and of the other prompts of this one."""
    rewards = np.array([0.9, 0.2, 0.7, 1.0, 0.1, 0.0, 0.8])
    successes = np.concatenate([known.successes for known, _ in GROUPS.values()])
    before = np.array([0.0, 0.0, 1.0]), np.array([0.3, 0.1, 0.6])
    scale = RewardScale()
    scale.add(RewardScale.sums_of(*before))
    sums, expected = scale.sums.copy(), []
    for uid, known in KNOWN.items():
        is_own = np.array([uid_of(key) == uid for key in KEYS])
        gain, failure = np.polyfit(np.append(before[0], successes[~is_own]), np.append(before[1], rewards[~is_own]), 1)
        expected.append(by_hand(rewards[is_own], known, (failure, gain)))
    prepare(KEYS, KNOWN, scale)
    assert advantages_of(KEYS, rewards) == pytest.approx(np.concatenate(expected), abs=1e-6)
    # Rollouts that were used are known from then on.
    assert scale.sums == pytest.approx(sums + RewardScale.sums_of(successes, rewards))


def test_other_rows_than_were_prepared_are_refused():
    scale = RewardScale()
    prepare(KEYS, KNOWN, scale)
    with pytest.raises(SignalError, match="expected the 7 rows that the curriculum collected, got 6: "):
        advantages_of(KEYS[:-1], REWARDS[:-1])
    assert not scale.sums.any()


def test_what_was_prepared_is_used_for_one_batch():
    scale = RewardScale()
    prepare(KEYS, KNOWN, scale)
    advantages_of(KEYS, REWARDS)
    assert advantages_of(KEYS, REWARDS) == pytest.approx(leave_one_out(REWARDS, [4, 2, 1]), abs=1e-6)
    assert scale.sums[0] == len(KEYS)


# ------------------------------ without it ------------------------------


def leave_one_out(rewards: Sequence[float], sizes: Sequence[int], mean: float = 0.0, strength: float = 0.0) -> Any:
    """Advantages of groups of these sizes, one after the other, all of one stage."""
    groups = np.split(np.array(rewards), np.cumsum(sizes)[:-1])
    return np.concatenate(
        [group - leave_one_out_baselines(group, np.zeros(len(group)), mean, strength) for group in groups]
    )


def test_without_a_curriculum_the_first_batch_is_plain_leave_one_out_and_later_ones_expect_what_was_seen():
    rng = np.random.default_rng(0)
    keys = [key for number in range(6) for key in keys_of(f"u{number}", 4)]
    batches = [rng.integers(0, 2, 24).astype(float) for _ in range(12)]
    earlier: list[list[np.ndarray]] = []
    for number, rewards in enumerate(batches):
        order = rng.permutation(24)
        got = advantages_of([keys[row] for row in order], rewards[order])
        expectation = credibility([group for batch in earlier[-8:] for group in batch])
        assert got == pytest.approx(leave_one_out(rewards, [4] * 6, *expectation)[order], abs=1e-6)
        assert (expectation[1] > 0) == (number > 0)
        earlier.append(np.split(rewards, 6))


def test_without_a_curriculum_rows_that_fill_up_the_batch_are_no_group():
    keys = [*keys_of("a", 2), f"{PAD}_0_0", *keys_of("b", 2), f"{PAD}_1_0"]
    got = advantages_of(keys, [1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    assert got.tolist() == [1, -1, 0, 0, 0, 0]
    (batch,) = posterior_advantage._earlier
    assert [group.tolist() for group in batch] == [[1, 0], [1, 1]]
