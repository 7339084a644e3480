"""Visits: a visit grows, what an entry records comes back, and metrics count what a loop over everything counts."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.method.credit import CreditSettings, assign_credit
from recipe.golden_redaction.method.targets import TargetSettings, target_log_probs
from recipe.golden_redaction.method.visits import Rollout, StateVisit, mean_label, visit_metrics
from recipe.golden_redaction.records.records import make_entry, read_visit
from recipe.golden_redaction.records.schema import find_problems

SETTINGS = CreditSettings(rollouts_per_action=16, min_labels=4)
LABELS = {"ok": 1.0, "wrong_output": 0.0, "timeout": 0.0, "infrastructure_error": None}


def rollout(status: str, outputs: bool = False) -> Rollout:
    grids = (((1,),), ((2,),) if status == "ok" else None) if outputs else None
    return Rollout("\n    return result\n", LABELS[status], ("ok", status), grids)


def rolled_out(
    tokens: Sequence[int], statuses: Sequence[Sequence[str]], teacher: int = 7, outputs: bool = False
) -> StateVisit:
    made = StateVisit("007bbfb7", 3, (1, 2, 3), teacher, tuple(tokens), 5)
    made.rollouts = tuple(tuple(rollout(status, outputs) for status in action) for action in statuses)
    return made


def log_probs(count: int) -> list[float]:
    return np.log(np.linspace(0.05, 0.2, count)).tolist()


def credited(tokens: Sequence[int], statuses: Sequence[Sequence[str]], outputs: bool = False) -> StateVisit:
    made = rolled_out(tokens, statuses, outputs=outputs)
    made.assign_credit(log_probs(len(tokens)), SETTINGS, TargetSettings())
    return made


GOOD_AND_BAD = ([7, 8, 9], [["ok"] * 16, ["wrong_output"] * 16, ["infrastructure_error"] * 2])
BAD_TEACHER = ([4, 7], [["ok"] * 16, ["timeout"] * 15 + ["ok"]])
DECIDED = ([7], [["ok", "wrong_output"]])
UNLABELLED = ([7, 3], [["infrastructure_error"], []])


# ------------------------------ a visit ------------------------------


@pytest.mark.parametrize("made", [GOOD_AND_BAD, BAD_TEACHER, DECIDED, UNLABELLED])
@pytest.mark.parametrize("outputs", [True, False])
def test_an_entry_gives_its_rolled_out_visit_back(made: tuple, outputs: bool):
    entry = make_entry(credited(*made, outputs=outputs), 6)
    assert find_problems(entry) == []
    assert read_visit(json.loads(json.dumps(entry))) == rolled_out(*made, outputs=outputs)


def test_a_visit_grows_from_rollouts_to_credit_to_movement():
    visit = rolled_out(*GOOD_AND_BAD)
    with pytest.raises(AttributeError, match="credit"):
        _ = visit.credit
    before = log_probs(3)
    visit.assign_credit(before, SETTINGS, TargetSettings())
    credit = assign_credit(visit.labels, before, SETTINGS)
    assert visit.credit.advantages.tolist() == credit.advantages.tolist() == [1, -1, 0]
    targets = target_log_probs(before, credit.advantages, TargetSettings()).log_probs
    assert np.array_equal(visit.targets.log_probs, targets, equal_nan=True)
    with pytest.raises(KeyError, match="after"):
        visit.movement("trainer", 1e-4)
    visit.trainer["after"] = [before[0] + 0.1, before[1] + 0.1, before[2]]
    visit.engine["before"], visit.engine["after"] = before, [before[0] - 0.1, before[1], before[2]]
    assert visit.movement("trainer", 1e-4).kinds == ("intended", "wrong_way", "")
    assert visit.movement("engine", 1e-4).kinds == ("wrong_way", "still", "")


def test_labels_and_numbers_are_those_of_the_rollouts():
    assert rolled_out([7, 8], [["ok", "timeout"], ["infrastructure_error"]]).labels == [[1.0, 0.0], [None]]
    assert [rolled_out(*made).num_rollouts for made in (GOOD_AND_BAD, DECIDED, UNLABELLED)] == [34, 2, 1]


# ------------------------------ metrics ------------------------------


def by_brute_force(visits: Sequence[StateVisit]) -> dict[str, float]:
    """One loop over everything, nothing shared with the implementation."""
    counts = dict.fromkeys(
        ("actions", "undecided", "labelled", "preferred", "dispreferred", "preferred teachers", "rollouts", "none"), 0
    )
    rewards: list[float] = []
    statuses: dict[str, int] = {}
    for one in visits:
        credit = one.credit
        counts["undecided"] += len(one.tokens) >= 2
        counts["labelled"] += any(advantage != 0 for advantage in credit.advantages)
        if credit.state_reward == credit.state_reward:
            rewards.append(credit.state_reward)
        for token, advantage, action in zip(one.tokens, credit.advantages, one.rollouts, strict=True):
            counts["actions"] += 1
            counts["preferred"] += advantage == 1
            counts["preferred teachers"] += advantage == 1 and token == one.teacher
            counts["dispreferred"] += advantage == -1
            for made in action:
                counts["rollouts"] += 1
                counts["none"] += made.reward is None
                statuses[made.statuses[-1]] = statuses.get(made.statuses[-1], 0) + 1
    metrics = {
        "golden/visits/num_actions": counts["actions"] / len(visits),
        "golden/visits/undecided_share": counts["undecided"] / len(visits),
        "golden/visits/labelled_share": counts["labelled"] / len(visits),
        "golden/actions/num_preferred": counts["preferred"],
        "golden/actions/num_dispreferred": counts["dispreferred"],
        "golden/rollouts/num": counts["rollouts"],
        "golden/rollouts/no_label": counts["none"],
    }
    if rewards:
        metrics["golden/visits/state_reward"] = math.fsum(rewards) / len(rewards)
    if counts["preferred"]:
        metrics["golden/actions/teacher_preferred"] = counts["preferred teachers"] / counts["preferred"]
    return metrics | {f"golden/sandbox/{status}": number / counts["rollouts"] for status, number in statuses.items()}


def test_metrics_of_clear_states():
    visits = [credited(*made) for made in (GOOD_AND_BAD, BAD_TEACHER, DECIDED, UNLABELLED)]
    metrics = visit_metrics(visits)
    assert metrics == pytest.approx(by_brute_force(visits))
    # Also once in plain numbers.
    assert metrics["golden/visits/num_actions"] == 2.0
    assert metrics["golden/visits/undecided_share"] == 0.75
    assert metrics["golden/visits/labelled_share"] == 0.5
    assert (metrics["golden/actions/num_preferred"], metrics["golden/actions/num_dispreferred"]) == (2.0, 2.0)
    assert metrics["golden/actions/teacher_preferred"] == 0.5
    assert (metrics["golden/rollouts/num"], metrics["golden/rollouts/no_label"]) == (69.0, 3.0)
    assert metrics["golden/sandbox/timeout"] == pytest.approx(15 / 69)


def test_means_over_nothing_have_no_key():
    metrics = visit_metrics([credited(*UNLABELLED)])
    assert metrics["golden/sandbox/infrastructure_error"] == 1.0
    assert metrics["golden/visits/labelled_share"] == 0.0
    for name in ("golden/visits/state_reward", "golden/actions/teacher_preferred", "golden/sandbox/ok"):
        assert name not in metrics
    metrics = visit_metrics([credited([7], [[]])])
    assert metrics["golden/rollouts/num"] == 0.0
    assert not any(name.startswith("golden/sandbox/") for name in metrics)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.lists(st.lists(st.sampled_from(sorted(LABELS)), max_size=16), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_metrics_are_those_of_a_loop_over_everything(statuses: list[list[list[str]]]):
    visits = [credited(range(7, 7 + len(actions)), actions) for actions in statuses]
    assert visit_metrics(visits) == pytest.approx(by_brute_force(visits))


# ------------------------------ labels ------------------------------


def test_a_mean_label_is_of_the_labels_that_are_there():
    assert mean_label([1.0, None, 0.0, 1.0, 1.0]) == 0.75
    assert mean_label(iter([0.0])) == 0.0
    assert mean_label([None]) is None
    assert mean_label([]) is None
