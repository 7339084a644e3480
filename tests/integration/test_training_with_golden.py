"""Golden redaction on real Ray, FSDP2, vLLM and sandbox: one trainer, a small model that makes mistakes, many steps.

Tasks and model are made here: rules of golden solutions on random grids, and solutions with mistakes in them.
"""

import json
from typing import Any

import numpy as np
import pytest
from golden_assets import GoldenAssets
from lab import Lab

from recipe.golden_redaction.records.schema import find_problems
from verl_ext.core.errors import WorkerDiedError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def golden_lab(labs: Any, golden_assets: GoldenAssets) -> Lab:
    return labs.get("golden", *golden_assets.overrides(), recipe="golden_redaction_cpu")


def _all_entries(lab: Lab) -> list[dict[str, Any]]:
    text = (lab.run_dir / "golden_entries.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _entries(lab: Lab, step: int | None = None) -> list[dict[str, Any]]:
    entries = _all_entries(lab)
    last = entries[-1]["step"] if step is None else step
    return [entry for entry in entries if entry["step"] == last]


def _numbers(entries: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([action[name] for entry in entries for action in entry["actions"]], dtype=float)


def test_labelled_tokens_move_as_intended_in_the_serving_engine(golden_lab: Lab):
    steps = [golden_lab.step() for _ in range(4)]
    entries = [entry for number in range(1, 5) for entry in _entries(golden_lab, number)]
    assert all(not find_problems(entry) for entry in entries)
    assert sum(metrics["golden/movement/engine/num_tokens"] for metrics in steps) >= 6
    advantages = _numbers(entries, "advantage")
    moved = advantages * (_numbers(entries, "log_prob_after_engine") - _numbers(entries, "log_prob_before"))
    labelled = advantages != 0
    assert np.mean(moved[labelled] > 1e-4) >= 0.8
    # The engine and the actor measure the same for the same weights.
    served, trained = _numbers(entries, "log_prob_after_engine"), _numbers(entries, "log_prob_after_trainer")
    assert np.abs(np.exp(served) - np.exp(trained)).max() < 1e-3
    # The first step's policy is the reference.
    first = _entries(golden_lab, 1)
    assert _numbers(first, "log_prob_reference") == pytest.approx(_numbers(first, "log_prob_before"), abs=1e-5)
    assert all(metrics["golden/k/mean"] >= 1 for metrics in steps)
    assert steps[-1]["golden/k/num_passed_over"] > 0


def test_rewards_are_what_the_sandbox_says_of_the_joined_program(golden_lab: Lab):
    golden_lab.step()

    def judge_again(trainer: Any, entries: list[dict[str, Any]]) -> tuple[list[float | None], list[float | None]]:
        from recipe.golden_redaction.records.records import read_visit
        from recipe.golden_redaction.sandbox import make_executor
        from verl_ext.arc.prompts import program

        jobs, found = [], []
        for entry in entries:
            visit, problem = read_visit(entry), trainer.problems[entry["problem"]]
            visible = trainer.tokenizer.decode(list(visit.ids[visit.golden_start :]))
            for action in visit.rollouts:
                for rollout in action:
                    jobs.append((program(visible + rollout.text), problem.reward_pairs))
                    found.append(rollout.reward)
        with make_executor(trainer.golden.sandbox) as executor:
            return found, [result.reward for result in executor.check_many(jobs)]

    found, again = golden_lab.call(judge_again, _entries(golden_lab))
    assert found == again
    assert len(found) >= 4 * 4


def test_the_log_probs_of_a_states_own_tokens_are_recorded(golden_lab: Lab):
    golden_lab.step()
    for entry in _entries(golden_lab):
        for values in entry["prompt_log_probs"].values():
            assert len(values) == len(entry["prompt_ids"])
            assert values[0] is None
            assert all(value <= 1e-4 for value in values[1:])


def test_visits_take_turns_through_the_prompts(golden_lab: Lab):
    for _ in range(4):
        golden_lab.step()
    prompts = golden_lab.call(lambda trainer: {name: problem.prompts for name, problem in trainer.problems.items()})
    assert all(len(own) == 2 for own in prompts.values())
    visited: dict[str, list[int]] = {}
    for entry in _all_entries(golden_lab):
        shown = tuple(entry["prompt_ids"][: entry["golden_start"]])
        visited.setdefault(entry["problem"], []).append(prompts[entry["problem"]].index(shown))
    assert all(numbers == [turn % 2 for turn in range(len(numbers))] for numbers in visited.values())
    assert max(map(len, visited.values())) >= 2


def test_several_updates_between_two_copies_of_the_weights(golden_lab: Lab):
    def two_updates(trainer: Any) -> tuple[dict[str, Any], int]:
        before, trainer.golden = (
            trainer.golden,
            trainer.golden.model_copy(update={"sync_every": 2, "entries_per_update": 1}),
        )
        try:
            metrics = _step(trainer)
        finally:
            trainer.golden = before
        return metrics, trainer._num_updates

    metrics, _ = golden_lab.call(two_updates)
    entries = _entries(golden_lab)
    assert len(entries) == 2
    labelled = sum(any(action["advantage"] for action in entry["actions"]) for entry in entries)
    assert metrics["golden/num_updates"] == labelled
    assert len({entry["weight_version"] for entry in entries}) == 1
    assert metrics["engine_guard/probs_diff_max/after"] < 1e-3


def test_the_next_states_are_visited_while_the_actor_is_trained(golden_lab: Lab):
    def ahead(trainer: Any) -> tuple[list[dict[str, Any]], list[list[str]], dict[str, Any], dict[str, Any]]:
        before = trainer.golden
        update = {"entries_per_update": 1, "visit_ahead": True}
        trainer.golden = before.model_copy(update=update)
        try:
            metrics, problems = [], []
            for _ in range(3):
                metrics.append(_step(trainer))
                problems.append([visit.problem for visit in trainer.visits])
            in_flight = list(trainer.new_visits.in_flight)
            state = trainer.signal_state()["redaction"]["problems"]
            counted = {name: trainer.controller.state_dict()["problems"][name] for name in in_flight}
            return metrics, problems, {name: state[name] for name in in_flight}, counted
        finally:
            trainer.golden = before
            trainer.new_visits.take(1, 0, trainer.timed)

    golden_lab.step()
    metrics, problems, saved, counted = golden_lab.call(ahead)
    versions = [entry["weight_version"] for entry in _all_entries(golden_lab)[-3:]]
    # The first visit is made as the step begins; after that, each uses the weights of the step before.
    steps = [entry["step"] for entry in _all_entries(golden_lab)[-3:]]
    assert [step - version for step, version in zip(steps, versions, strict=True)] == [1, 2, 2]
    assert problems[0] != problems[1] != problems[2]
    assert all(step["golden/ahead/seconds"] > 0 for step in metrics)
    assert all(step["engine_guard/probs_diff_max/before"] < 1e-3 for step in metrics)
    ((name, of_checkpoint),) = saved.items()
    assert of_checkpoint["turn"] == counted[name]["turn"] - 1


def test_recorded_entries_start_a_run_without_a_rollout(golden_lab: Lab):
    golden_lab.step()

    def warm_step(trainer: Any, path: str) -> tuple[dict[str, Any], int, int]:
        from recipe.golden_redaction.warm_start import read_earlier_run

        nothing = trainer._earlier
        update = {"warm_start": path, "max_staleness": None, "max_log_prob_gap": None}
        trainer._earlier = read_earlier_run(trainer.golden.records.model_copy(update=update), trainer.problems)
        lengths = {name: trainer.controller.k(name) for name in trainer.problems}
        generate, trainer.visitor.visit = trainer.visitor.visit, None
        try:
            metrics = _step(trainer)
        finally:
            trainer.visitor.visit = generate
            used, trainer._earlier = trainer._earlier.num_used, nothing
        assert lengths == {name: trainer.controller.k(name) for name in trainer.problems}
        return metrics, used, trainer.totals.rollouts_generated

    earlier = _entries(golden_lab, 1)
    metrics, used, _ = golden_lab.call(warm_step, str(golden_lab.run_dir / "golden_entries.jsonl"))
    assert used == metrics["golden/visits/warm"] == len(earlier)
    again = _entries(golden_lab)
    for old, new in zip(earlier, again, strict=True):
        assert old["prompt_ids"] == new["prompt_ids"]
        assert old["weight_version"] == new["weight_version"]
        assert [a["reward"] for a in old["actions"]] == [a["reward"] for a in new["actions"]]
        # Log-probs are those of the policy that is updated, not of the one that made the entry.
        assert [a["log_prob_before"] for a in old["actions"]] != [a["log_prob_before"] for a in new["actions"]]


def test_nothing_labelled_moves_nothing(golden_lab: Lab):
    def without_labels(trainer: Any) -> dict[str, Any]:
        before = trainer.golden
        trainer.golden = before.model_copy(update={"credit": before.credit.model_copy(update={"alpha": 1e-12})})
        try:
            return _step(trainer)
        finally:
            trainer.golden = before

    metrics = golden_lab.call(without_labels)
    assert metrics["golden/num_updates"] == 0
    assert "actor/grad_norm" not in metrics
    assert metrics["golden/movement/engine/drift_max"] < 1e-5


def test_a_checkpoint_holds_the_controller_and_cuts_the_records_back(golden_lab: Lab):
    def round_trip(trainer: Any) -> tuple[dict[str, Any], dict[str, Any], int, int]:
        import json

        state = json.loads(json.dumps(trainer.signal_state()))
        _step(trainer)
        grown = trainer.records.num_bytes
        trainer.load_signal_state(state)
        return state, json.loads(json.dumps(trainer.signal_state())), grown, trainer.records.num_bytes

    before, after, grown, cut = golden_lab.call(round_trip)
    assert {**before, "totals": None} == {**after, "totals": None}
    assert cut == before["num_bytes"]["entries"] < grown


def test_probes_measure_every_problem_at_every_share(golden_lab: Lab, golden_assets: GoldenAssets):
    metrics = golden_lab.call(lambda trainer: trainer._validate())
    rows = [json.loads(line) for line in (golden_lab.run_dir / "golden_probes.jsonl").read_text().splitlines()]
    last = rows[-3 * len(golden_assets.tasks) :]
    assert {(row["problem"], row["share"]) for row in last} == {
        (task, share) for task in golden_assets.tasks for share in (0.25, 0.5, 1.0)
    }
    quarter = np.mean([row["pass_rate"] for row in last if row["share"] == 0.25])
    assert metrics["golden/probe/0.25"] == pytest.approx(quarter)
    assert quarter > 0


def test_an_engine_that_serves_other_weights_is_caught(golden_lab: Lab):
    from verl_ext.core.errors import StaleEngineError

    def without_sync(trainer: Any) -> None:
        send = trainer.checkpoint_manager.update_weights
        trainer.checkpoint_manager.update_weights = lambda *_: None
        try:
            for _ in range(6):
                _step(trainer)
        finally:
            trainer.checkpoint_manager.update_weights = send
            send(trainer.global_steps)

    with pytest.raises(StaleEngineError, match="serves other weights"):
        golden_lab.call(without_sync)


def test_a_killed_actor_ends_the_run_with_its_name(golden_lab: Lab):
    """Runs last: the actor does not come back."""

    def step_until_failure(trainer: Any) -> None:
        from verl_ext.launch.runner import name_failure

        try:
            _step(trainer)
        except Exception as error:
            raise name_failure(trainer, error) from None

    golden_lab.kill_worker("WorkerDict")
    with pytest.raises(WorkerDiedError, match=r"the worker \S*WorkerDict \(process \d+ on .*\) died: .* resumes from"):
        golden_lab.call(step_until_failure)


def _step(trainer: Any) -> dict[str, Any]:
    """A step without the lab's bookkeeping."""
    from verl.utils.debug import marked_timer

    from verl_ext.serving import data_plane

    metrics: dict[str, Any] = {}
    trainer.timing_raw = {}
    with marked_timer("step", trainer.timing_raw):
        batch = trainer.step(metrics, trainer.timing_raw)
    data_plane.clear(batch.keys, batch.partition_id)
    trainer.global_steps += 1
    return metrics
