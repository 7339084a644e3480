"""The redaction controller: k moves as the rewards say and no further, every problem gets its turn, states survive."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.method.progress import RedactionSettings
from recipe.golden_redaction.method.redaction import RedactedState, RedactionController

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
    k, since, visited = min(setting.initial_k, length), [], set()
    for reward in rewards:
        if reward is None or reward != reward:
            continue
        # Below everything that was visited, the lengths above were passed over on the way down.
        visited = {k} if visited and k < min(visited) else visited | {k}
        since.append("high" if reward >= setting.grow_above else "low" if reward <= setting.shrink_below else "")
        last = since[-setting.patience :]
        if len(last) == setting.patience and set(last) == {"high"}:
            first_new = next(new for new in range(k + 1, length + 2) if new not in visited)
            k, since = min(length, first_new, max(k + 1, int(k * setting.growth))), []
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
    # Broken by the band, broken by a low visit, not broken by a visit without a label; a change restarts the count.
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


def test_a_random_order_is_another_one_every_turn_and_drawn_from_the_seed():
    def orders(seed: int) -> list[str]:
        controller = RedactionController(dict.fromkeys("abcdefgh", 5), RedactionSettings(order="random", seed=seed))
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


def visits(controller: RedactionController, golden_log_probs: list[float], rewards: list) -> list[int]:
    """The lengths that one problem, a, is visited at."""
    visited = []
    for reward in rewards:
        state = controller.settle(controller.next_states(1)[0], golden_log_probs)
        visited.append(state.k)
        controller.observe("a", state.k, reward(state.k) if callable(reward) else reward)
    return visited


def test_every_undecided_length_is_visited_on_the_way_up():
    # Golden tokens from the first to the last; k counts from the last.
    probabilities = [0.5, 1.0, 0.6, 1.0, 1.0, 0.7, 1.0]
    controller = RedactionController({"a": 7}, RedactionSettings(growth=1.0))
    assert visits(controller, np.log(probabilities).tolist(), [1.0] * 5) == [2, 5, 7, 7, 7]
    assert controller.metrics()["golden/k/num_passed_over"] == 1 + 2 + 1


@settings(deadline=None)
@given(PROBABILITIES, SETTINGS, st.lists(REWARD, max_size=60))
def test_k_never_rises_past_an_undecided_length_that_was_not_visited(probabilities, setting, rewards):
    length = len(probabilities)
    controller = RedactionController({"a": length}, setting)
    undecided = {k for k in range(1, length + 1) if probabilities[-k] <= setting.decided_above}
    lengths = visits(controller, np.log(probabilities).tolist(), rewards)
    labelled = set()
    for k, after, reward in zip(lengths, lengths[1:], rewards, strict=False):
        labelled |= set() if reward is None or reward != reward else {k}
        assert {new for new in undecided if k < new < after} <= labelled


def test_the_shipped_settings_visit_all_25_undecided_tokens_of_300():
    open_tokens = np.random.default_rng(0).choice(300, size=25, replace=False)
    probabilities = np.ones(300)
    probabilities[open_tokens] = 0.5
    controller = RedactionController({"a": 300}, RedactionSettings())
    visited = visits(controller, np.log(probabilities).tolist(), [0.9] * 40)
    assert {300 - place for place in open_tokens} <= set(visited)
    # Of the other lengths, only the first and the last cost visits; checks of the solved problem are of the last.
    assert set(visited) <= {300 - place for place in open_tokens} | {1, 300}
    assert len(set(visited[:27])) == len(set(visited))


def test_after_a_fall_k_comes_back_by_the_factor_over_lengths_that_it_has_visited():
    controller = RedactionController({"a": 200}, RedactionSettings(decided_above=None, growth=1.5))
    up = [controller.observe("a", controller.k("a"), 1.0) for _ in range(89)]
    assert up == list(range(2, 91))
    assert [controller.observe("a", controller.k("a"), 0.0) for _ in range(3)] == [60, 40, 27]
    assert [controller.observe("a", controller.k("a"), 1.0) for _ in range(5)] == [40, 60, 90, 91, 92]


def test_below_the_first_length_of_all_k_grows_by_one():
    controller = RedactionController({"a": 90}, RedactionSettings(decided_above=None, growth=2, initial_k=80))
    assert [controller.observe("a", controller.k("a"), 0.0) for _ in range(2)] == [40, 20]
    assert [controller.observe("a", controller.k("a"), 1.0) for _ in range(3)] == [21, 22, 23]


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


# ------------------------------ turns ------------------------------


def play(controller: RedactionController, turns: int, rewards: dict[str, float], count: int = 1) -> list[str]:
    """Which problems are visited, with a reward for each problem."""
    seen = []
    for _ in range(turns):
        for state in controller.next_states(count):
            seen.append(state.problem)
            controller.observe(state.problem, state.k, rewards[state.problem])
    return seen


def test_a_turn_goes_from_easy_to_hard():
    controller = RedactionController(dict.fromkeys("cab", 5), RedactionSettings(seed=7))
    assert play(controller, 7, dict.fromkeys("abc", 0.5)) == list("cabcabc")


def solved_and_open(**setting) -> RedactionController:
    """`a` is solved with its third visit."""
    controller = RedactionController({"a": 1, "b": 9, "c": 9}, RedactionSettings(check_after=4, **setting))
    assert play(controller, 9, {"a": 1.0, "b": 0.5, "c": 0.5}) == list("abcabcabc")
    return controller


def test_a_solved_problem_retires_and_comes_back_for_checks():
    controller = solved_and_open()
    assert controller.metrics()["golden/retired/share"] == pytest.approx(1 / 3)
    rewards = {"a": 1.0, "b": 0.5, "c": 0.5}
    # Four turns of the others, the check, and again.
    assert "".join(play(controller, 18, rewards)) == "bcbcbcbcabcbcbcbcb"
    assert controller.metrics()["golden/retired/num_checks"] == 1
    assert "".join(play(controller, 4, rewards)) == "cabc"
    assert controller.metrics()["golden/retired/num_checks"] == 2
    assert controller.metrics()["golden/retired/num_returned"] == 0


@pytest.mark.parametrize("reward", [0.6, 0.0])
def test_a_check_with_a_lower_reward_brings_a_problem_back(reward):
    controller = solved_and_open()
    assert "".join(play(controller, 15, {"a": reward, "b": 0.5, "c": 0.5})) == "bcbcbcbcabcabca"
    assert controller.metrics()["golden/retired/share"] == 0
    assert controller.metrics()["golden/retired/num_returned"] == 1


def test_a_check_without_a_label_is_made_again_in_the_next_turn():
    controller = solved_and_open()
    assert "".join(play(controller, 14, {"a": float("nan"), "b": 0.5, "c": 0.5})) == "bcbcbcbcabcabc"
    assert controller.metrics()["golden/retired/num_checks"] == 0


def test_retiring_needs_the_whole_solution_in_a_row_and_can_be_switched_off():
    controller = RedactionController({"a": 2, "b": 9}, RedactionSettings(retire_after=2, initial_k=2))
    for reward, share in ((1.0, 0), (0.5, 0), (1.0, 0), (None, 0), (1.0, 0.5)):
        controller.observe("a", 2, reward)
        assert controller.metrics()["golden/retired/share"] == share
    controller = RedactionController({"a": 2, "b": 9}, RedactionSettings(retire_after=1))
    controller.observe("a", 1, 1.0)
    assert controller.metrics()["golden/retired/share"] == 0
    controller = solved_and_open(retire_after=None)
    assert play(controller, 3, {"a": 1.0, "b": 0.5, "c": 0.5}) == list("abc")


def test_checks_come_early_where_too_few_problems_are_left():
    controller = solved_and_open()
    assert sorted(play(controller, 1, {"a": 1.0, "b": 0.5, "c": 0.5}, count=3)) == list("abc")
    everything = RedactionController({"a": 1, "b": 1}, RedactionSettings(retire_after=1))
    assert len(play(everything, 20, {"a": 1.0, "b": 1.0})) == 20


# ------------------------------ prompts ------------------------------


def test_the_visits_of_a_problem_take_turns_through_its_prompts_also_after_a_resume():
    def make() -> RedactionController:
        return RedactionController({"a": 9, "b": 9}, RedactionSettings(), {"a": 3})

    controller = make()
    first = [state.prompt for _ in range(4) for state in controller.next_states(1, exclude=["b"])]
    resumed = make()
    resumed.load_state_dict(controller.state_dict())
    then = [state.prompt for _ in range(3) for state in resumed.next_states(1, exclude=["b"])]
    assert first + then == [0, 1, 2, 0, 1, 2, 0]
    assert [state.prompt for _ in range(3) for state in resumed.next_states(1, exclude=["a"])] == [0, 0, 0]


def test_passing_over_decided_tokens_stays_with_the_prompt():
    controller = RedactionController({"a": 9}, RedactionSettings(), {"a": 2})
    controller.next_states(1)
    (state,) = controller.next_states(1)
    settled = controller.settle(state, [-3.0] * 6 + [0.0] * 3)
    assert (settled.k, settled.prompt) == (4, 1)


# ------------------------------ what an earlier run has done ------------------------------


def test_k_goes_on_where_an_earlier_run_ended():
    controller = RedactionController({"a": 90, "b": 9}, RedactionSettings())
    assert controller.restore("a", [(40, 1.0), (50, 0.5), (50, None), (62, 1.0), (77, 1.0)]) == 78
    assert controller.k("b") == 1
    assert controller.restore("b", [(3, 0.5)]) == 3
    metrics = controller.metrics()
    assert [metrics[f"golden/k/num_{name}"] for name in ("grown", "shrunk", "stale", "unlabelled")] == [0] * 4
    assert controller.next_states(2) == [RedactedState("a", 78), RedactedState("b", 3)]
    # Lengths of the earlier run are not new.
    assert controller.observe("a", 78, 0.0) == 63
    assert controller.observe("a", 63, 1.0) == 78


@settings(deadline=None)
@given(PROBABILITIES, SETTINGS, st.lists(REWARD, min_size=1, max_size=40))
def test_a_restored_problem_is_where_the_recorded_one_was(probabilities, setting, rewards):
    length = len(probabilities)
    recorded = RedactionController({"a": length}, setting)
    lengths = visits(recorded, np.log(probabilities).tolist(), rewards)
    controller = RedactionController({"a": length}, setting)
    assert controller.restore("a", list(zip(lengths, rewards, strict=True))) == recorded.k("a")


def test_a_solved_problem_of_an_earlier_run_is_checked_later():
    controller = RedactionController({"a": 4, "b": 9}, RedactionSettings(check_after=2))
    controller.restore("a", [(4, 1.0)] * 9)
    assert controller.metrics()["golden/retired/share"] == 0.5
    assert "".join(play(controller, 4, {"a": 1.0, "b": 0.5})) == "bbab"


def test_a_length_that_the_solution_does_not_have_is_refused():
    controller = RedactionController({"a": 4}, RedactionSettings())
    with pytest.raises(ValueError, match="k from 1 to the 4 golden tokens, got 5"):
        controller.restore("a", [(5, 1.0)])


def test_a_checkpoint_of_before_there_were_turns_is_continued():
    controller = RedactionController({"a": 9, "b": 9}, RedactionSettings(growth=1.5))
    old = {"length": 9, "k": 6, "streak": 0, "visits": 3, "last_reward": 1.0, "is_falling": False}
    problems = {"a": old, "b": {**old, "k": 2, "visits": 2}}
    controller.load_state_dict({"state_version": 1, "problems": problems, "counts": {"grown": 4}})
    assert [state.problem for state in controller.next_states(1)] == ["b"]
    assert (controller.k("a"), controller.k("b")) == (6, 2)
    assert controller.observe("a", 6, 0.0) == 4
    assert controller.observe("a", 4, 1.0) == 6
    metrics = controller.metrics()
    assert (metrics["golden/k/num_grown"], metrics["golden/retired/num_checks"]) == (5, 0)


def test_metrics():
    controller = RedactionController({"a": 2, "b": 8}, RedactionSettings(initial_k=2, growth=1))
    assert "golden/state_reward/mean" not in controller.metrics()
    controller.next_states(1)
    controller.observe("b", 2, 1.0)
    controller.observe("b", 3, 0.5)
    controller.observe("a", 2, 0.0)
    controller.observe("a", 1, None)
    assert controller.metrics() == {
        "golden/retired/share": 0, "golden/retired/num_checks": 0, "golden/retired/num_returned": 0,
        "golden/k/mean": 2, "golden/k/min": 1, "golden/k/max": 3, "golden/k/share": (1 / 2 + 3 / 8) / 2,
        "golden/k/share_reached": 0.5,
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
    with pytest.raises(ValueError, match="state_version 1 or 2, got 3: resume with the version"):
        controller.load_state_dict({**state, "state_version": 3})


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
     {"retire_after": 0}, {"check_after": 0}, {"order": "hard_first"},
     {"growth": 0.9}, {"growth": float("inf")}, {"growth": "fast"}, {"decided_above": 1.0}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must be .*got"):
        RedactionSettings(**setting)
