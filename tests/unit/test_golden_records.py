"""Training entries: what is written comes back, what does not follow the schema is refused by place and expectation."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from recipe.golden_redaction.method.credit import CreditSettings
from recipe.golden_redaction.method.targets import TargetSettings
from recipe.golden_redaction.method.visits import Rollout, StateVisit
from recipe.golden_redaction.records.records import TrainingRecords, make_entry, warm_start
from recipe.golden_redaction.records.schema import RecordError, find_problems


def rollout(reward: float | None) -> Rollout:
    status = {1: "ok", 0: "wrong_output", None: "infrastructure_error"}[reward]
    return Rollout("    return result\n", reward, ("ok", status))


def visit(weight_version: int = 0) -> StateVisit:
    rollouts = tuple((rollout(reward),) * 8 for reward in (1.0, 0.0, None))
    return StateVisit("007bbfb7", 5, (0, 1, 2, 3), 11, (10, 11, 12), weight_version, rollouts)


def entry(weight_version: int = 0, **changes) -> dict:
    made, log_probs = visit(weight_version), np.log([0.3, 0.4, 0.1]).tolist()
    made.assign_credit(log_probs, CreditSettings(rollouts_per_action=8), TargetSettings())
    made.trainer["after"] = (log_probs + np.array([0.1, -0.1, 0.0])).tolist()
    made.reference = log_probs
    return {**make_entry(made, 3), **changes}


def test_what_the_algorithm_has_becomes_a_valid_entry():
    made = entry()
    assert find_problems(made) == []
    good, bad, unlabelled = made["actions"]
    assert (good["token"], good["reward"], good["advantage"]) == (10, 1, 1)
    assert (bad["reward"], bad["advantage"]) == (0, -1)
    assert good["target"] == pytest.approx(np.log(0.3) / 2)
    assert bad["target"] == pytest.approx(np.log(0.16))
    assert (unlabelled["reward"], unlabelled["advantage"], unlabelled["target"]) == (None, 0, None)
    assert good["confidence"] > 0.95
    assert good["log_prob_after_engine"] is None
    assert made["state_reward"] == pytest.approx(3 / 7)
    assert made["prompt_ids"] == [0, 1, 2, 3]


def test_entries_come_back_as_they_were_written(tmp_path: Path):
    path = tmp_path / "run" / "entries.jsonl"
    records = TrainingRecords(path)
    records.append([entry(1), entry(2)])
    kept = records.num_bytes
    records.append([entry(3)])
    records.cut_back_to(kept)
    records.append([entry(4)])
    back = warm_start(path, None)
    assert back.visits == [visit(1), visit(2), visit(4)]
    assert [json.loads(line) for line in path.read_text().splitlines()] == [entry(1), entry(2), entry(4)]
    assert (back.num_read, back.num_stale, back.is_cut) == (3, 0, False)


@pytest.mark.parametrize(
    ("max_staleness", "weight_version", "versions"),
    [(None, None, [0, 5, 6, 9]), (0, None, [9]), (3, None, [6, 9]), (4, None, [5, 6, 9]), (9, None, [0, 5, 6, 9]),
     (1, 5, [5, 6]), (0, 20, [])],
)  # fmt: skip
def test_stale_entries_are_left_out(tmp_path: Path, max_staleness, weight_version, versions):
    path = tmp_path / "entries.jsonl"
    TrainingRecords(path).append([entry(version) for version in (0, 5, 6, 9)])
    back = warm_start(path, max_staleness, weight_version)
    assert [kept.weight_version for kept in back.visits] == versions
    assert back.num_stale == 4 - len(versions)
    assert [read.weight_version for read in back.history] == [0, 5, 6, 9]


def test_a_visit_that_is_read_back_knows_what_its_policy_thought(tmp_path: Path):
    path = tmp_path / "entries.jsonl"
    TrainingRecords(path).append([entry(), entry(state_reward=None)])
    first, second = warm_start(path, None).visits
    assert first.recorded is not None
    assert np.exp(first.recorded.log_probs) == pytest.approx([0.3, 0.4, 0.1])
    assert first.recorded.state_reward == pytest.approx(3 / 7)
    assert second.recorded is not None
    assert second.recorded.state_reward is None
    assert visit().recorded is None


def test_a_line_that_a_killed_run_did_not_finish_is_left_out(tmp_path: Path):
    path = tmp_path / "entries.jsonl"
    TrainingRecords(path).append([entry(1), entry(2)])
    path.write_text(path.read_text()[:-30])
    back = warm_start(path, None)
    assert back.visits == [visit(1)]
    assert back.is_cut
    path.write_text(json.dumps(entry(1))[:-30] + "\n" + json.dumps(entry(2)) + "\n")
    with pytest.raises(RecordError, match="line 1 does not follow the schema"):
        warm_start(path, None)


def test_fields_of_others_are_kept(tmp_path: Path):
    path = tmp_path / "entries.jsonl"
    TrainingRecords(path).append([entry(note="mine")])
    assert json.loads(path.read_text())["note"] == "mine"
    assert warm_start(path, None).visits == [visit()]


def test_an_entry_is_written_byte_for_byte_as_its_schema_has_it():
    made = StateVisit("a", 2, (5, 6), 7, (7, 8), 3)
    made.rollouts = ((Rollout("x", 1.0, ("ok",), (((1, 2),),)),), (Rollout("y", None, ("infrastructure_error",)),))
    made.assign_credit([-0.5, -2.0], CreditSettings(), TargetSettings())
    made.own_log_probs = {"policy": [None, -0.25], "reference": [None, -1.5]}
    made.trainer["after"], made.engine["after"] = [-0.25, -2.5], [-0.25, -2.25]
    unlabelled = '"reward": null, "confidence": 0.0, "advantage": 0, "target": null, "log_prob_before": -2.0, '
    assert json.dumps(make_entry(made, 4)) == (
        '{"prompt_log_probs": {"policy": [null, -0.25], "reference": [null, -1.5]}, "schema": 1, "step": 4, '
        '"weight_version": 3, "problem": "a", "k": 2, "prompt_ids": [5, 6], "teacher": 7, "state_reward": 1.0, '
        '"coverage": 0.6065306597126334, "actions": [{"token": 7, "rollouts": [{"text": "x", "reward": 1.0, '
        '"statuses": ["ok"], "outputs": [[[1, 2]]]}], "reward": 1.0, "confidence": 0.0, "advantage": 0, '
        '"target": null, "log_prob_before": -0.5, "log_prob_after_trainer": -0.25, "log_prob_after_engine": -0.25, '
        '"log_prob_reference": null}, {"token": 8, "rollouts": [{"text": "y", "reward": null, '
        '"statuses": ["infrastructure_error"]}], ' + unlabelled + '"log_prob_after_trainer": -2.5, '
        '"log_prob_after_engine": -2.25, "log_prob_reference": null}]}'
    )


def broken(place: str, value) -> dict:
    made = copy.deepcopy(entry())
    where = made
    parts = place.replace("[", ".").replace("]", "").split(".")
    *path, last = [int(part) if part.isdigit() else part for part in parts]
    for part in path:
        where = where[part]
    if value is KeyError:
        del where[last]
    else:
        where[last] = value
    return made


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("schema", 2, "schema: expected 1, got 2"),
        ("step", 0, "step: expected an int >= 1, got 0"),
        ("weight_version", -1, "weight_version: expected an int >= 0, got -1"),
        ("weight_version", True, "weight_version: expected an int >= 0, got True"),
        ("problem", "", "problem: expected a problem id, got ''"),
        ("k", KeyError, "k: missing; expected an int >= 1"),
        ("prompt_ids", [1, -2], "prompt_ids: expected a list of token ids"),
        ("teacher", 99, "teacher: expected one of the actions' tokens [10, 11, 12], got 99"),
        ("state_reward", float("nan"), "state_reward: expected a number from 0 to 1, or null, got nan"),
        ("coverage", 1.2, "coverage: expected a number from 0 to 1, got 1.2"),
        ("actions", [], "actions: expected a list of at least one action"),
        ("actions[1]", 7, "actions[1]: expected an object, got int"),
        ("actions[1].token", 10, "actions: token 10 is duplicated"),
        ("actions[2].advantage", 0.5, "actions[2].advantage: expected -1, 0 or 1, got 0.5"),
        ("actions[2].target", -1.0, "actions[2].target: expected null exactly where the advantage is 0, got -1.0"),
        ("actions[0].target", None, "actions[0].target: expected null exactly where the advantage is 0, got None"),
        ("actions[0].log_prob_before", 0.5, "actions[0].log_prob_before: expected a log-prob"),
        ("actions[0].log_prob_before", None, "actions[0].log_prob_before: expected a log-prob"),
        ("actions[0].log_prob_reference", float("-inf"), "actions[0].log_prob_reference: expected a log-prob"),
        ("actions[0].reward", 0.5, "actions[0].reward: expected the mean 1.0 of 8 labelled rollouts, got 0.5"),
        ("actions[0].rollouts[3].text", None, "actions[0].rollouts[3].text: expected a str, got None"),
        ("actions[0].rollouts[3].reward", 0.5, "actions[0].rollouts[3].reward: expected 0, 1, or null"),
        ("actions[0].rollouts[3].statuses", [], "rollouts[3].statuses: expected the status of each example pair"),
        ("actions[2].rollouts[0].reward", 0, "rollouts[0].reward: expected null after an infrastructure_error, got 0"),
        ("actions[0].rollouts[0].reward", None, "rollouts[0].reward: expected a label"),
        ("actions[0].confidence", 1.5, "actions[0].confidence: expected a number from 0 to 1, got 1.5"),
    ],
)
def test_an_error_names_the_place_what_was_expected_and_what_came(tmp_path: Path, place, value, words):
    made = broken(place, value)
    records = TrainingRecords(tmp_path / "entries.jsonl")
    with pytest.raises(RecordError) as caught:
        records.append([entry(), made])
    assert words in str(caught.value)
    assert "entry 1 of those" in str(caught.value)
    assert records.num_bytes == 0  # all or nothing


def test_all_problems_are_reported_at_once():
    made = broken("step", 0) | {"k": 0}
    assert len(find_problems(made)) == 2
    assert find_problems([]) == ["entry: expected an object, got list"]


def test_misuse_is_refused(tmp_path: Path):
    with pytest.raises(RecordError, match="no such file"):
        warm_start(tmp_path / "none.jsonl", None)
    with pytest.raises(ValueError, match="max_staleness must be at least 0"):
        warm_start(tmp_path / "none.jsonl", -1)
    made = StateVisit("a", 1, (1,), 1, (1, 2), 0, ((), ()))
    made.assign_credit([-1.0, -1.0], CreditSettings(), TargetSettings())
    made.reference = [-1.0]
    with pytest.raises(ValueError, match=r"all values for each of 2 tokens.*'log_prob_reference': 1"):
        make_entry(made, 1)
