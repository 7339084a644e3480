"""Visits: what an entry records comes back as the same visit, and metrics count what a loop over everything counts."""

import dataclasses
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.credit import CreditSettings, StateCredit, assign_credit
from recipe.golden_redaction.record_schema import find_problems
from recipe.golden_redaction.records import make_entry
from recipe.golden_redaction.targets import TargetSettings, target_log_probs
from recipe.golden_redaction.visits import Visit, deciding_status, mean_label, visit_metrics

SETTINGS = CreditSettings(rollouts_per_action=16, min_labels=4)
LABELS = {"ok": 1.0, "wrong_output": 0.0, "timeout": 0.0, "infrastructure_error": None}


def rollout(status: str, outputs: bool = False) -> dict:
    statuses = ["ok", status]
    grids = {"outputs": [[[1]], [[2]] if status == "ok" else None]} if outputs else {}
    return {"text": "\n    return result\n", "reward": LABELS[status], "statuses": statuses} | grids


def visit(tokens: Sequence[int], statuses: Sequence[Sequence[str]], teacher: int = 7, **changes) -> Visit:
    rollouts = tuple(tuple(rollout(status) for status in action) for action in statuses)
    made = Visit("007bbfb7", 3, (1, 2, 3), teacher, tuple(tokens), rollouts, 5)
    return dataclasses.replace(made, **changes)


def log_probs(count: int) -> np.ndarray:
    return np.log(np.linspace(0.05, 0.2, count))


def credits_of(visits: Sequence[Visit]) -> list[StateCredit]:
    return [assign_credit(one.labels, log_probs(len(one.tokens)), SETTINGS) for one in visits]


GOOD_AND_BAD = visit([7, 8, 9], [["ok"] * 16, ["wrong_output"] * 16, ["infrastructure_error"] * 2])
BAD_TEACHER = visit([4, 7], [["ok"] * 16, ["timeout"] * 15 + ["ok"]])
DECIDED = visit([7], [["ok", "wrong_output"]])
UNLABELLED = visit([7, 3], [["infrastructure_error"], []])


# ------------------------------ a visit ------------------------------


@pytest.mark.parametrize("made", [GOOD_AND_BAD, BAD_TEACHER, DECIDED, UNLABELLED])
@pytest.mark.parametrize("outputs", [True, False])
def test_an_entry_gives_its_visit_back(made: Visit, outputs: bool):
    statuses = [[one["statuses"][-1] for one in action] for action in made.rollouts]
    made = dataclasses.replace(
        made, rollouts=tuple(tuple(rollout(status, outputs) for status in action) for action in statuses)
    )
    before = log_probs(len(made.tokens))
    (credit,) = credits_of([made])
    entry = make_entry(
        step=6,
        weight_version=made.weight_version,
        problem=made.problem,
        k=made.k,
        prompt_ids=made.ids,
        teacher=made.teacher,
        tokens=made.tokens,
        rollouts=made.rollouts,
        credit=credit,
        targets=target_log_probs(before, credit.advantages, TargetSettings()).log_probs,
        log_probs_before=before,
    )
    assert find_problems(entry) == []
    assert Visit.from_entry(json.loads(json.dumps(entry))) == made


def test_labels_and_numbers_are_those_of_the_rollouts():
    assert visit([7, 8], [["ok", "timeout"], ["infrastructure_error"]]).labels == [[1.0, 0.0], [None]]
    assert [one.num_rollouts for one in (GOOD_AND_BAD, DECIDED, UNLABELLED)] == [34, 2, 1]


# ------------------------------ metrics ------------------------------


def by_brute_force(visits: Sequence[Visit], credits: Sequence[StateCredit]) -> dict[str, float]:
    """One loop over everything, nothing shared with the implementation."""
    counts = dict.fromkeys(
        ("actions", "undecided", "labelled", "preferred", "dispreferred", "preferred teachers", "rollouts", "none"), 0
    )
    rewards: list[float] = []
    statuses: dict[str, int] = {}
    for one, credit in zip(visits, credits, strict=True):
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
                counts["none"] += made["reward"] is None
                statuses[made["statuses"][-1]] = statuses.get(made["statuses"][-1], 0) + 1
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
    visits = [GOOD_AND_BAD, BAD_TEACHER, DECIDED, UNLABELLED]
    credits = credits_of(visits)
    metrics = visit_metrics(visits, credits)
    assert metrics == pytest.approx(by_brute_force(visits, credits))
    # Said once in numbers, too.
    assert metrics["golden/visits/num_actions"] == 2.0
    assert metrics["golden/visits/undecided_share"] == 0.75
    assert metrics["golden/visits/labelled_share"] == 0.5
    assert (metrics["golden/actions/num_preferred"], metrics["golden/actions/num_dispreferred"]) == (2.0, 2.0)
    assert metrics["golden/actions/teacher_preferred"] == 0.5
    assert (metrics["golden/rollouts/num"], metrics["golden/rollouts/no_label"]) == (69.0, 3.0)
    assert metrics["golden/sandbox/timeout"] == pytest.approx(15 / 69)


def test_means_over_nothing_have_no_key():
    metrics = visit_metrics([UNLABELLED], credits_of([UNLABELLED]))
    assert metrics["golden/sandbox/infrastructure_error"] == 1.0
    assert metrics["golden/visits/labelled_share"] == 0.0
    for name in ("golden/visits/state_reward", "golden/actions/teacher_preferred", "golden/sandbox/ok"):
        assert name not in metrics
    unrolled = visit([7], [[]])
    metrics = visit_metrics([unrolled], credits_of([unrolled]))
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
    visits = [visit(range(7, 7 + len(actions)), actions) for actions in statuses]
    credits = credits_of(visits)
    assert visit_metrics(visits, credits) == pytest.approx(by_brute_force(visits, credits))


# ------------------------------ a rollout ------------------------------


@pytest.mark.parametrize(
    ("statuses", "decides"),
    [
        (["ok", "ok"], "ok"),
        (["ok", "timeout", "wrong_output"], "timeout"),
        (["wrong_output", "infrastructure_error"], "infrastructure_error"),
        (["infrastructure_error"], "infrastructure_error"),
    ],
)
def test_an_infrastructure_error_decides_before_the_first_failure(statuses: list[str], decides: str):
    assert deciding_status(iter(statuses)) == decides


def test_a_mean_label_is_of_the_labels_that_are_there():
    assert mean_label([1.0, None, 0.0, 1.0, 1.0]) == 0.75
    assert mean_label(iter([0.0])) == 0.0
    assert mean_label([None]) is None
    assert mean_label([]) is None
