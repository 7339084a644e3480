"""The redaction controller: k moves as the rewards say and no further, every problem gets its turn, states survive."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.method.redaction import RedactionController, RedactionSettings

SETTINGS = st.builds(
    lambda initial_k, low, band, patience, growth, seed: RedactionSettings(
        initial_k=initial_k, grow_above=min(1.0, low + band), shrink_below=low, patience=patience, growth=growth,
        seed=seed,
    ),
    st.integers(1, 30), st.floats(0, 0.5), st.floats(0.01, 0.5), st.integers(1, 4), st.floats(1, 4), st.integers(0, 5),
)  # fmt: skip
LENGTHS = st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.integers(1, 60), min_size=1, max_size=12)
REWARD = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, float("nan")]))


@settings(deadline=None)
@given(LENGTHS, SETTINGS, st.lists(REWARD, max_size=60))
def test_k_stays_between_1_and_the_golden_solutions_length(lengths, setting, rewards):
    controller = RedactionController(lengths, setting)
    for reward in rewards:
        for state in controller.next_states(3):
            assert 1 <= state.k <= lengths[state.problem]
            assert state.k == controller.k(state.problem)
            assert 1 <= controller.observe(state.problem, state.k, reward) <= lengths[state.problem]


def reference_k(length: int, setting: RedactionSettings, rewards: list[float | None]) -> int:
    """The rule of the docstring, by looking back at the visits since the last change."""
    k, since = min(setting.initial_k, length), []
    for reward in rewards:
        if reward is None or reward != reward:
            continue
        since.append("high" if reward >= setting.grow_above else "low" if reward <= setting.shrink_below else "")
        last = since[-setting.patience :]
        if len(last) == setting.patience and set(last) == {"high"}:
            k, since = min(length, max(k + 1, int(k * setting.growth))), []
        elif len(last) == setting.patience and set(last) == {"low"}:
            k, since = max(1, min(k - 1, -int(-k / setting.growth // 1))), []
    return k


@settings(deadline=None)
@given(st.integers(1, 60), SETTINGS, st.lists(REWARD, max_size=40))
def test_k_follows_the_stated_rule(length, setting, rewards):
    controller = RedactionController({"a": length}, setting)
    for reward in rewards:
        controller.observe("a", controller.k("a"), reward)
    assert controller.k("a") == reference_k(length, setting, rewards)


@settings(deadline=None)
@given(st.integers(2, 200), SETTINGS)
def test_high_rewards_hide_everything_and_low_ones_one_token(length, setting):
    controller = RedactionController({"a": length}, setting)
    for reward, end in ((setting.grow_above, length), (setting.shrink_below, 1)):
        lengths = [controller.observe("a", controller.k("a"), reward) for _ in range(setting.patience * length)]
        assert lengths[-1] == end
        assert lengths == sorted(lengths, reverse=end == 1)


@settings(deadline=None)
@given(SETTINGS, st.floats(0, 1))
def test_k_rests_in_the_band_between_the_thresholds(setting, share):
    reward = setting.shrink_below + share * (setting.grow_above - setting.shrink_below)
    if setting.shrink_below < reward < setting.grow_above:
        controller = RedactionController({"a": 100}, setting)
        before = controller.k("a")
        assert {controller.observe("a", before, reward) for _ in range(20)} == {before}


def test_patience_needs_visits_in_a_row():
    controller = RedactionController({"a": 9}, RedactionSettings(patience=2, growth=1))
    ks = [controller.observe("a", controller.k("a"), reward) for reward in (1, 0.5, 1, 0, 1, None, 1, 1, 1)]
    # Broken by the band, broken by a low visit, not broken by a visit without a label; a change starts anew.
    assert ks == [1, 1, 1, 1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("boundary", [1, 5, 20, 79])
def test_k_stays_near_the_length_up_to_which_the_policy_solves(boundary):
    controller = RedactionController({"a": 80}, RedactionSettings(growth=1.25))
    ks = [controller.observe("a", controller.k("a"), float(controller.k("a") <= boundary)) for _ in range(200)]
    assert max(ks) <= max(boundary + 1, 1.25 * boundary)
    assert min(ks[100:]) >= boundary / 1.25 - 1


def test_a_reward_of_another_k_changes_nothing():
    controller = RedactionController({"a": 9}, RedactionSettings(growth=1))
    assert controller.observe("a", 1, 1.0) == 2
    assert controller.observe("a", 1, 0.0) == 2
    assert controller.metrics()["golden/k/num_stale"] == 1


def test_problems_do_not_touch_each_other():
    controller = RedactionController({"a": 9, "b": 9}, RedactionSettings(initial_k=3))
    controller.observe("a", 3, 1.0)
    controller.observe("b", 3, 0.0)
    assert (controller.k("a"), controller.k("b")) == (4, 2)


@settings(deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(1, 8), max_size=8), st.integers(0, 5))
def test_turns_are_fair_and_all_different(num_problems, counts, seed):
    controller = RedactionController({str(i): 5 for i in range(num_problems)}, RedactionSettings(seed=seed))
    visits = Counter({str(i): 0 for i in range(num_problems)})
    for count in counts:
        chosen = [state.problem for state in controller.next_states(count)]
        assert len(chosen) == len(set(chosen)) == min(count, num_problems)
        visits.update(chosen)
        assert max(visits.values()) - min(visits.values()) <= 1


def test_an_excluded_problem_catches_up():
    controller = RedactionController(dict.fromkeys("abcd", 5), RedactionSettings())
    for _ in range(2):
        assert {state.problem for state in controller.next_states(4, exclude={"a"})} == set("bcd")
    assert [controller.next_states(1)[0].problem for _ in range(2)] == ["a", "a"]
    assert controller.next_states(4, exclude="abcd") == []


def test_the_order_is_drawn_anew_each_epoch_from_the_seed():
    def orders(seed: int) -> list[str]:
        controller = RedactionController(dict.fromkeys("abcdefgh", 5), RedactionSettings(seed=seed))
        return ["".join(state.problem for state in controller.next_states(8)) for _ in range(20)]

    assert orders(0) == orders(0)
    assert len(set(orders(0))) == 20
    assert orders(0) != orders(1)
    firsts = Counter(order[0] for seed in range(100) for order in orders(seed))
    assert min(firsts.values()) > 0.7 * 2000 / 8


@settings(deadline=None)
@given(LENGTHS, SETTINGS, st.lists(REWARD, max_size=20), st.lists(REWARD, max_size=20))
def test_a_resumed_controller_continues_as_if_nothing_had_happened(lengths, setting, before, after):
    def play(controller: RedactionController, rewards: list) -> list:
        seen = []
        for reward in rewards:
            for state in controller.next_states(2):
                seen.append((state, controller.observe(state.problem, state.k, reward), controller.metrics()))
        return seen

    straight = RedactionController(lengths, setting)
    play(straight, before)
    resumed = RedactionController(lengths, setting)
    resumed.load_state_dict(json.loads(json.dumps(straight.state_dict())))
    assert play(resumed, after) == play(straight, after)


PROBABILITIES = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=40)


@settings(deadline=None)
@given(PROBABILITIES, st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=20), st.floats(0.5, 0.99))
def test_decided_lengths_are_passed_over_in_the_direction_of_the_last_change(probabilities, rewards, decided_above):
    length = len(probabilities)
    controller = RedactionController({"a": length}, RedactionSettings(growth=1.0, decided_above=decided_above))
    undecided = [k for k in range(1, length + 1) if math.exp(math.log(probabilities[-k])) <= decided_above]
    is_falling = False
    for reward in rewards:
        state = controller.next_states(1)[0]
        settled = controller.settle(state, [math.log(p) for p in probabilities])
        lower, upper = [k for k in undecided if k <= state.k], [k for k in undecided if k >= state.k]
        expected = (lower or [1])[-1] if is_falling else (upper or [length])[0]
        assert settled.k == controller.k("a") == expected
        after = controller.observe("a", settled.k, reward)
        if after != settled.k:
            is_falling = after < settled.k


def test_every_undecided_length_is_visited_on_the_way_up():
    # Golden tokens from the first to the last; k counts from the last.
    probabilities = [0.5, 1.0, 0.6, 1.0, 1.0, 0.7, 1.0]
    controller = RedactionController({"a": 7}, RedactionSettings(growth=1.0))
    visited = []
    for _ in range(5):
        state = controller.settle(controller.next_states(1)[0], np.log(probabilities).tolist())
        visited.append(state.k)
        controller.observe("a", state.k, 1.0)
    assert visited == [2, 5, 7, 7, 7]
    assert controller.metrics()["golden/k/num_passed_over"] == 1 + 2 + 1


def test_without_a_threshold_no_length_is_passed_over():
    controller = RedactionController({"a": 3}, RedactionSettings(decided_above=None))
    state = controller.next_states(1)[0]
    assert controller.settle(state, [0.0, 0.0, 0.0]) == state


def test_a_streak_does_not_outlive_a_length_that_is_passed_over():
    controller = RedactionController({"a": 4}, RedactionSettings(patience=2, growth=1.0))
    controller.next_states(1)
    controller.observe("a", 1, 1.0)
    settled = controller.settle(controller.next_states(1)[0], np.log([0.5, 0.5, 0.5, 1.0]).tolist())
    assert settled.k == 2
    assert controller.observe("a", 2, 1.0) == 2


def test_metrics():
    controller = RedactionController({"a": 2, "b": 8}, RedactionSettings(initial_k=2, growth=1))
    assert "golden/state_reward/mean" not in controller.metrics()
    controller.next_states(1)
    controller.observe("b", 2, 1.0)
    controller.observe("b", 3, 0.5)
    controller.observe("a", 2, 0.0)
    controller.observe("a", 1, None)
    assert controller.metrics() == {
        "golden/k/mean": 2, "golden/k/min": 1, "golden/k/max": 3, "golden/k/share": (1 / 2 + 3 / 8) / 2,
        "golden/k/share_complete": 0, "golden/k/num_grown": 1, "golden/k/num_shrunk": 1, "golden/k/num_stale": 0,
        "golden/k/num_unlabelled": 1,
        "golden/k/num_passed_over": 0, "golden/visits/min": 0, "golden/visits/max": 1, "golden/state_reward/mean": 0.25,
    }  # fmt: skip


def test_a_checkpoint_of_something_else_is_refused_and_changes_nothing():
    controller = RedactionController({"a": 5, "b": 5}, RedactionSettings())
    state = controller.state_dict()
    for lengths, words in (
        ({"a": 5}, "this run lacks 1 problem.* b"),
        ({"a": 5, "b": 5, "c": 5}, "the checkpoint lacks 1 problem.* c"),
        ({"a": 5, "b": 6}, "golden solution of b has 6 tokens, the checkpoint's had 5"),
    ):
        other = RedactionController(lengths, RedactionSettings())
        before = other.state_dict()
        with pytest.raises(ValueError, match=words):
            other.load_state_dict(state)
        assert other.state_dict() == before
    with pytest.raises(ValueError, match="state_version 1, got 2"):
        controller.load_state_dict({**state, "state_version": 2})


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="at least one problem"):
        RedactionController({}, RedactionSettings())
    with pytest.raises(ValueError, match="at least one token are needed; empty: b"):
        RedactionController({"a": 1, "b": 0}, RedactionSettings())
    controller = RedactionController({"a": 1}, RedactionSettings())
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1\.5"):
        controller.observe("a", 1, 1.5)
    with pytest.raises(KeyError, match="no problem 'z'"):
        controller.k("z")
    with pytest.raises(ValueError, match="count must be at least 0"):
        controller.next_states(-1)
    with pytest.raises(ValueError, match="each of the 1 golden tokens of a, got 2"):
        controller.settle(controller.next_states(1)[0], [-1.0, -1.0])


@pytest.mark.parametrize(
    "setting",
    [{"initial_k": 0}, {"patience": 0}, {"patience": True}, {"seed": -1}, {"grow_above": 1.1}, {"grow_above": 0.25},
     {"growth": 0.9}, {"growth": float("inf")}, {"growth": "fast"}, {"decided_above": 1.0}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must be .*got"):
        RedactionSettings(**setting)
