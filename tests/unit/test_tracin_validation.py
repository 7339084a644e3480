"""The validation set of TracIn: prompts, rollouts, advantages, and that a resumed run repeats its choices."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.tracin.method.validation import STRATEGIES, Choice, ValidationSet, ValidationSettings


def make(num_prompts: int = 40, **settings) -> ValidationSet:
    settings.setdefault("ties", "random")
    if settings.get("strategy") == "top":
        settings.setdefault("field", "toxicity")
        return ValidationSet(ValidationSettings(**settings), num_prompts, np.arange(num_prompts) % 7)
    return ValidationSet(ValidationSettings(**settings), num_prompts)


def rewards_at(step: int, count: int) -> np.ndarray:
    return np.random.default_rng([99, step]).choice([0.0, 0.5, 1.0], count)


def play(validation: ValidationSet, steps: range) -> list[tuple]:
    """What a trainer does at each step: (step, prompts rolled out, rollouts and advantages of the gradient)."""
    history = []
    for step in steps:
        prompts = np.empty(0, int)
        if validation.needs_refresh(step):
            prompts = np.repeat(validation.prompts_to_roll_out(step), validation.settings.rollouts_per_prompt)
            validation.choose(step, rewards_at(step, len(prompts)), prompts)
        chosen = validation.choice or Choice(np.empty(0, int), np.empty(0))
        history.append((step, prompts.tolist(), chosen.indices.tolist(), chosen.advantages.tolist()))
    return history


SMALL = {"pool_size": 12, "k": 4, "refresh_every": 3, "rollouts_per_prompt": 2}


# ------------------------------ prompts ------------------------------


@settings(deadline=None)
@given(
    num_prompts=st.integers(1, 60),
    size=st.integers(1, 70),
    refresh_every=st.integers(1, 4),
    seed=st.integers(0, 5),
    strategy=st.sampled_from(["quality", "contrast", "random"]),
)
def test_no_prompt_comes_twice_in_an_epoch_of_draws(
    num_prompts: int, size: int, refresh_every: int, seed: int, strategy: str
):
    sizes = {"k": size} if strategy == "random" else {"pool_size": size, "k": 2, "rollouts_per_prompt": 2}
    validation = make(num_prompts, strategy=strategy, refresh_every=refresh_every, seed=seed, **sizes)
    per_epoch = num_prompts // min(size, num_prompts)
    for epoch in range(2):
        seen: list[int] = []
        for refresh in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            draws = {
                tuple(validation.prompts_to_roll_out(1 + refresh * refresh_every + i)) for i in range(refresh_every)
            }
            assert len(draws) == 1  # every step of a refresh period names the same prompts
            seen += draws.pop()
        assert len(set(seen)) == len(seen) == per_epoch * min(size, num_prompts)
        assert set(seen) <= set(range(num_prompts))


def test_draws_differ_between_refreshes_epochs_and_seeds():
    validation = make(100, strategy="random", k=50, refresh_every=1)
    draws = [frozenset(validation.prompts_to_roll_out(step).tolist()) for step in range(1, 9)]
    assert len(set(draws)) == 8
    other = make(100, strategy="random", k=50, refresh_every=1, seed=1)
    assert set(other.prompts_to_roll_out(1)) != draws[0]
    assert {prompt for draw in draws for prompt in draw} == set(range(100))


def test_fixed_is_the_whole_set_and_in_batch_needs_no_rollouts():
    assert make(5, strategy="fixed").prompts_to_roll_out(3).tolist() == [0, 1, 2, 3, 4]
    in_batch = make(0, strategy="in_batch")
    assert in_batch.prompts_to_roll_out(1).tolist() == []
    assert not any(in_batch.needs_refresh(step) for step in range(1, 30))
    with pytest.raises(ValueError, match="no rollouts of its own"):
        in_batch.choose(1, [], [])


@settings(deadline=None)
@given(st.lists(st.integers(-2, 2), min_size=1, max_size=20), st.integers(1, 25), st.booleans())
def test_top_takes_the_prompts_at_one_end_of_a_field(values: list[int], k: int, descending: bool):
    settings = ValidationSettings(strategy="top", field="toxicity", k=k, descending=descending)
    prompts = ValidationSet(settings, len(values), values).prompts_to_roll_out(1).tolist()
    sign = -1 if descending else 1
    assert set(prompts) == set(sorted(range(len(values)), key=lambda p: (sign * values[p], p))[:k])


@pytest.mark.parametrize("values", [None, [1.0], [1.0, np.nan, 2.0]])
def test_top_needs_its_field_for_every_prompt(values: list[float] | None):
    with pytest.raises(ValueError, match=r"finite extra_info\.toxicity for each of 3 prompts"):
        ValidationSet(ValidationSettings(strategy="top", field="toxicity"), 3, values)


# ------------------------------ refreshes ------------------------------


@pytest.mark.parametrize(
    ("settings", "refreshes"),
    [
        ({"strategy": "quality"}, [1, 4, 7]),
        ({"strategy": "contrast"}, [1, 4, 7]),
        ({"strategy": "fixed"}, [1, 2, 3, 4, 5, 6, 7]),
        ({"strategy": "fixed", "cached": True}, [1, 4, 7]),
        ({"strategy": "random"}, [1, 2, 3, 4, 5, 6, 7]),
        ({"strategy": "random", "cached": True}, [1, 4, 7]),
        ({"strategy": "top", "cached": True}, [1, 4, 7]),
        ({"strategy": "in_batch"}, []),
    ],
)
def test_rollouts_are_made_anew_when_the_strategy_says_so(settings: dict, refreshes: list[int]):
    history = play(make(**SMALL | settings), range(1, 8))
    assert [step for step, prompts, _, _ in history if prompts] == refreshes


@settings(deadline=None)
@given(strategy=st.sampled_from(STRATEGIES), seed=st.integers(0, 3), cached=st.booleans(), until=st.integers(1, 9))
def test_a_resumed_run_goes_on_as_if_nothing_had_happened(strategy: str, seed: int, cached: bool, until: int):
    settings = {**SMALL, "strategy": strategy, "seed": seed, "cached": cached}
    straight = make(**settings)
    expected = play(straight, range(1, 12))
    stopped = make(**settings)
    play(stopped, range(1, until + 1))
    state = json.loads(json.dumps(stopped.state_dict(), allow_nan=False))
    resumed = make(**settings)
    resumed.load_state_dict(state)
    assert resumed.metrics() == stopped.metrics()
    assert play(resumed, range(until + 1, 12)) == expected[until:]
    assert resumed.state_dict() == straight.state_dict()


@pytest.mark.parametrize("strategy", ["quality", "random"])
def test_what_is_chosen_depends_on_seed_and_step_not_on_the_past(strategy: str):
    settings = {**SMALL, "strategy": strategy, "seed": 2}
    whole = play(make(**settings), range(1, 11))
    assert play(make(**settings), range(10, 11)) == whole[9:]  # 10 begins a period


def test_a_run_that_lost_its_rollouts_makes_them_again_for_the_same_prompts():
    validation = make(**SMALL)
    play(validation, range(1, 3))
    prompts = validation.prompts_to_roll_out(1)
    assert not validation.needs_refresh(3)
    validation.forget_rollouts()
    assert validation.needs_refresh(3)
    resumed = make(**SMALL)
    resumed.load_state_dict(validation.state_dict())
    assert resumed.needs_refresh(3)
    assert resumed.prompts_to_roll_out(3).tolist() == prompts.tolist()
    play(resumed, range(3, 4))
    assert not resumed.needs_refresh(3)
    assert resumed.needs_refresh(4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state_version": 7}, "expected state_version 1, got 7"),
        ({"num_prompts": 9}, "num_prompts=9, this run has 40"),
        ({"strategy": "top"}, "strategy=top, this run has quality"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change: dict, message: str):
    validation = make(**SMALL)
    play(validation, range(1, 3))
    state = validation.state_dict()
    with pytest.raises(ValueError, match=message):
        validation.load_state_dict(make().state_dict() | change)
    assert validation.state_dict() == state


# ------------------------------ rollouts ------------------------------


@pytest.mark.parametrize("num_equal", [1, 2, 3, 7])
@pytest.mark.parametrize("strategy", ["fixed", "random", "top", "contrast"])
def test_equal_rewards_are_degenerate_also_in_floating_point(strategy: str, num_equal: int):
    validation = make(num_equal, strategy=strategy, k=16)
    prompts = validation.prompts_to_roll_out(1)
    assert validation.choose(1, np.full(len(prompts), 0.1), prompts).is_degenerate
    assert validation.metrics()["tracin/validation/is_degenerate"] == 1


def test_quality_of_equal_rewards_is_degenerate_only_if_none_is_good():
    validation = make(**SMALL)
    assert validation.choose(1, np.zeros(12), np.arange(12)).is_degenerate
    choice = validation.choose(1, np.ones(12), np.arange(12))
    assert not choice.is_degenerate
    assert choice.advantages.tolist() == [1] * 4
    assert not make(**SMALL, min_reward=None).choose(1, np.zeros(12), np.arange(12)).is_degenerate


def test_rewards_are_centred_within_prompts_if_there_are_several_rollouts_of_each():
    rewards, prompts = [1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]
    grouped = make(2, strategy="fixed", rollouts_per_prompt=2).choose(1, rewards, prompts)
    assert (grouped.indices.tolist(), grouped.advantages.tolist()) == ([0, 1], [0.5, -0.5])
    together = make(2, strategy="fixed").choose(1, rewards, prompts)
    assert together.advantages.tolist() == [0.25, -0.75, 0.25, 0.25]


@settings(deadline=None)
@given(st.sampled_from(["quality", "contrast", "fixed"]), st.permutations(range(12)), st.integers(0, 5))
def test_the_order_in_which_rollouts_return_does_not_matter(strategy: str, order: list[int], seed: int):
    rewards, prompts = np.array([0.0, 1.0, 1.0, 0.5] * 3), np.arange(12)
    validation = make(**SMALL, strategy=strategy, seed=seed)
    straight = validation.choose(1, rewards, prompts)
    shuffled = validation.choose(1, rewards[order], prompts[order])
    expected = dict(zip(prompts[straight.indices].tolist(), straight.advantages, strict=True))
    assert dict(zip(prompts[order][shuffled.indices].tolist(), shuffled.advantages, strict=True)) == expected


def test_ties_are_drawn_anew_at_every_refresh():
    validation = make(100, pool_size=100, k=5, refresh_every=1)
    chosen = {tuple(sorted(validation.choose(step, np.ones(100), np.arange(100)).indices)) for step in range(1, 20)}
    assert len(chosen) == 19


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 9)), min_size=1, max_size=20), st.integers(1, 8))
def test_of_equal_rewards_the_least_likely_come_first(rollouts: list[tuple[float, int]], k: int):
    rewards, surprises = np.array(rollouts).T
    validation = make(20, pool_size=20, k=k, ties="least_likely", min_reward=None)
    chosen = validation.choose(1, rewards, np.arange(len(rollouts)), surprises / 10).indices
    wanted = sorted(rollouts, key=lambda rollout: (-rollout[0], -rollout[1]))[:k]
    assert [rollouts[place] for place in chosen] == wanted


def test_surprises_are_asked_for_where_they_are_needed():
    validation = make(3, ties="least_likely")
    with pytest.raises(ValueError, match="expected a surprise for each of 2 rollouts, got 0"):
        validation.choose(1, [1.0, 1.0], [0, 1])
    failed = validation.choose(1, [np.nan, 1.0, 1.0], [0, 1, 2], [0.9, 0.1, 0.2])
    assert failed.indices.tolist() == [2, 1]


def test_failed_rollouts_are_never_chosen():
    rewards = np.array([np.nan, 1.0, np.inf, 0.0, -np.inf])
    for strategy in ("quality", "contrast", "fixed"):
        choice = make(5, **SMALL | {"rollouts_per_prompt": 1}, strategy=strategy).choose(1, rewards, np.arange(5))
        assert set(choice.indices.tolist()) <= {1, 3}
        assert 1 in choice.indices
    assert make(5).choose(1, np.full(5, np.nan), np.arange(5)).is_degenerate


def test_metrics_tell_what_was_chosen():
    validation = make(**SMALL)
    assert validation.metrics() == {}
    validation.choose(2, [0.0, 1.0, 1.0, np.nan], [0, 1, 2, 3])
    assert validation.metrics() == {
        "tracin/validation/num_rollouts": 2,
        "tracin/validation/is_degenerate": 0,
        "tracin/validation/chosen_at_step": 2,
        "tracin/validation/reward_pool": pytest.approx(2 / 3),
        "tracin/validation/reward_chosen": 1,
    }
    validation.choose(3, [np.nan], [0])
    assert "tracin/validation/reward_pool" not in validation.metrics()


# ------------------------------ refusals ------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"strategy": "best"}, {"pool_size": 0}, {"k": 0}, {"k": 2.0}, {"refresh_every": 0}, {"rollouts_per_prompt": 0},
     {"seed": -1}, {"cached": 1}, {"descending": "yes"}, {"min_reward": "high"}, {"min_reward": float("nan")},
     {"k": 5, "strategy": "contrast"}, {"field": ""}, {"field": 3}, {"ties": "likely"}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict):
    with pytest.raises(ValueError, match=rf"{next(iter(settings))} must be .*got"):
        ValidationSettings(**settings)


def test_contradicting_settings_are_refused():
    with pytest.raises(ValueError, match=r"k=64 rollouts cannot be chosen from .* 10: raise pool_size or lower k"):
        ValidationSettings(pool_size=5, rollouts_per_prompt=2)
    with pytest.raises(ValueError, match="strategy=top needs field"):
        ValidationSettings(strategy="top")


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="at least one validation prompt, got 0"):
        make(0)
    with pytest.raises(ValueError, match="steps count from 1, got 0"):
        make().needs_refresh(0)
    with pytest.raises(ValueError, match="one reward and one prompt per rollout"):
        make().choose(1, [1.0, 0.0], [3])
    with pytest.raises(ValueError, match="expected prompts from 0 to 39, got 3 to 40"):
        make().choose(1, [1.0, 0.0], [3, 40])
