"""Streaming, prediction, sequential screening and correction on the real engines."""

import json
from typing import Any

import pytest
from lab import Lab, is_corrected

STREAMING = {"curriculum__schedule": "streaming"}
POSTERIOR = STREAMING | {"curriculum__predictor": "posterior"}


def _records_of_last_step(lab: Lab) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (lab.run_dir / "prompts.jsonl").read_text().splitlines()]
    return [record for record in records if record["step"] == records[-1]["step"]]


def _names(trainer: Any) -> tuple[set[str], set[str]]:
    from verl_ext.serving import data_plane

    curriculum = trainer.collector
    return set(data_plane.tags("train")) | curriculum.prompt_rows.uids, curriculum.controller.live_names()


def test_streaming_continues_prompts_while_others_are_still_screened(lab: Lab):
    def watch_dispatches(trainer: Any) -> None:
        dispatch = type(trainer.agent_loop_manager).dispatch
        trainer.seen = []

        def watched(batch: Any) -> None:
            controller = trainer.collector.controller
            continued = sum(entry.group.is_qualified for entry in controller._state.in_flight.values())
            trainer.seen.append((continued, controller.num_in_flight - continued))
            dispatch(trainer.agent_loop_manager, batch)

        trainer.agent_loop_manager.dispatch = watched

    def stop_watching(trainer: Any) -> list[tuple[int, int]]:
        del trainer.agent_loop_manager.dispatch
        return trainer.seen

    with lab.settings(**STREAMING):
        lab.call(watch_dispatches)
        metrics = lab.step()
        dispatches = lab.call(stop_watching)
        stored, live = lab.call(_names)
        in_flight = lab.call(lambda trainer: trainer.collector.controller.num_in_flight)
    assert len({key.rsplit("_", 2)[0] for key in metrics["batch_keys"]}) == 8
    assert len(metrics["batch_keys"]) == 8 * 16
    assert any(continued and screened for continued, screened in dispatches)
    # One weight version: everything that was started has finished, and the surplus waits.
    assert metrics["curriculum/sample_age/max"] == 0
    assert in_flight == 0
    assert stored == live


def test_a_streaming_surplus_waits_for_the_next_step_and_is_trained_on_there(lab: Lab):
    with lab.settings(**STREAMING, data__train_batch_size=8):
        surplus = 0
        for _ in range(8):
            metrics = lab.step()
            if surplus:
                assert metrics["curriculum/sample_age/max"] >= 1
                assert is_corrected(metrics)
                return
            surplus = metrics["curriculum/ready_prompts"]
    pytest.fail("eight steps in a row qualified exactly as many prompts as the batch has")


def test_sequential_screening_with_a_posterior_spends_less_on_each_prompt(lab: Lab):
    with lab.settings(**POSTERIOR, curriculum__screening="sequential", curriculum__screening_chunk=1):
        metrics = [lab.step() for _ in range(3)]
        while "curriculum/screening_rollouts/mean" not in metrics[-1]:
            metrics.append(lab.step())  # the surplus of earlier steps was a whole batch
        observed, position = lab.call(
            lambda trainer: (
                trainer.collector.predictor.posterior._passes + trainer.collector.predictor.posterior._fails,
                trainer.collector.predictor._position,
            )
        )
    records = [json.loads(line) for line in (lab.run_dir / "prompts.jsonl").read_text().splitlines()]
    steps = {record["step"] for record in _records_of_last_step(lab)}
    last = [record for record in records if record["step"] in steps and record["event"] != "trained"]
    # The predictor saw every rollout of the last step, including those of a continuation.
    assert all(observed[position[record["index"]]] >= record["samples"] for record in last)
    assert all(record["samples"] in (1, 2) for record in last if record["event"] == "screening")
    assert metrics[-1]["curriculum/screening_rollouts/mean"] < 4
    assert 0 <= metrics[-1]["predictor/brier"] <= 1
    assert metrics[-1]["curriculum/trained_rollouts"] == 8 * 16


def test_every_rollout_is_trained_on_with_the_posterior_as_its_baseline(lab: Lab):
    def step_with_advantages(trainer: Any) -> tuple[dict[str, float], dict[str, float], dict[str, Any], dict[str, Any]]:
        from verl_ext.serving import data_plane

        trainer.timing_raw, metrics = {}, {}
        trainer.on_step_begin()
        batch = trainer.step(metrics, trainer.timing_raw)
        trainer.on_step_end()
        rows = data_plane.read(batch.keys, "train", ["advantages", "rm_scores", "uid"])
        # Rows that fill up the mini-batch come last, with the same uid and no advantage.
        known = {group.prompt.uid: group for group in trainer.collector.groups}
        advantages, rewards = {}, {}
        for key, advantage, score in zip(
            batch.keys, rows["advantages"].unbind(), rows["rm_scores"].unbind(), strict=True
        ):
            if key.rsplit("_", 2)[0] in known:
                assert advantage.unique().numel() == 1
                advantages[key], rewards[key] = float(advantage[0]), float(score.sum())
            else:
                assert not advantage.any()
        groups = {uid: (group.prompt.alpha, group.prompt.beta, group.stages) for uid, group in known.items()}
        data_plane.clear(batch.keys, batch.partition_id)
        trainer.global_steps += 1
        return advantages, rewards, groups, metrics

    choose = {"train_on": "all", "baseline": "posterior", "n": 2, "n_continue": 2}
    settings = POSTERIOR | {f"curriculum__{name}": value for name, value in choose.items()}
    with lab.settings(**settings, actor_rollout_ref__rollout__n=4, algorithm__adv_estimator="posterior"):
        for _ in range(3):
            advantages, rewards, groups, metrics = lab.call(step_with_advantages)
            stored, live = lab.call(_names)
            assert stored == live == set()
            assert metrics["curriculum/generated_rollouts"] == metrics["curriculum/trained_rollouts"] == len(advantages)
            assert metrics["curriculum/screened"] == 8 == len(groups)
    assert 2 * 8 <= len(advantages) <= 4 * 8
    for uid, (alpha, beta, stages) in groups.items():
        own = [f"{uid}_{session}_0" for session in range(len(stages))]
        assert len(own) == (4 if len({rewards[key] for key in own[:2]}) == 2 else 2)
        for session, key in enumerate(own):
            others = [rewards[o] for s, o in enumerate(own) if s != session and stages[s] <= stages[session]]
            baseline = (alpha + sum(others)) / (alpha + beta + len(others))
            assert advantages[key] == pytest.approx(rewards[key] - baseline, abs=1e-5)
    assert all(advantage != 0 for advantage in advantages.values())


def test_horvitz_thompson_weights_the_advantages_of_whole_groups(lab: Lab):
    def step_with_advantages(trainer: Any) -> dict[str, tuple[float, float, float]]:
        from verl_ext.serving import data_plane

        seen: dict[str, tuple[float, float, float]] = {}
        (weighting,) = trainer.selectors

        def advantages(batch: Any) -> dict[str, float]:
            rows = data_plane.read(batch.keys, "train", ["advantages"])
            return {key: float(row[0]) for key, row in zip(batch.keys, rows["advantages"].unbind(), strict=True)}

        def watched(batch: Any) -> Any:
            before = advantages(batch)
            selected = type(weighting).select(weighting, batch)
            after, (weights, _) = advantages(selected), weighting._weights()
            of_group = {group.prompt.uid: w for group, w in zip(trainer.collector.groups, weights, strict=True)}
            for key in batch.keys:
                seen[key] = (before[key], after[key], of_group[key.rsplit("_", 2)[0]])
            return selected

        weighting.select = watched
        trainer.timing_raw = {}
        trainer.on_step_begin()
        batch = trainer.step({}, trainer.timing_raw)
        trainer.on_step_end()
        data_plane.clear(batch.keys, batch.partition_id)
        trainer.global_steps += 1
        return seen

    with lab.settings(**STREAMING, curriculum__correction="horvitz_thompson"):
        seen = lab.call(step_with_advantages)
    assert len(seen) == 8 * 16
    assert all(after == pytest.approx(before * weight) for before, after, weight in seen.values())
    assert all(1 <= weight <= 4 for _, _, weight in seen.values())  # at most N / n
    assert any(before != 0 and weight > 1 for before, _, weight in seen.values())


def test_continuation_only_trains_on_rollouts_that_screening_has_not_seen(lab: Lab):
    # `resolve_group_size` does this for a run that starts with this correction.
    with lab.settings(**STREAMING, curriculum__correction="continuation_only", actor_rollout_ref__rollout__n=12):
        metrics = lab.step()
        stored, live = lab.call(_names)
    sessions = [int(key.rsplit("_", 2)[1]) for key in metrics["batch_keys"]]
    assert sorted(sessions) == sorted([*range(4, 16)] * 8)
    assert metrics["curriculum/set_aside_rollouts"] == 8 * 4
    assert stored == live


def test_the_predictors_state_travels_with_a_checkpoint(lab: Lab):
    def round_trip(trainer: Any) -> tuple[dict, dict]:
        curriculum = trainer.collector
        curriculum.before_checkpoint()
        state = json.loads(json.dumps(trainer.signal_state()))
        curriculum.predictor.posterior.choose(5)
        trainer.load_signal_state(state)
        return state["parts"]["recipe.fast_dapo.collector.Curriculum"][
            "predictor"
        ], curriculum.predictor.posterior.state_dict()

    with lab.settings(**POSTERIOR):
        lab.step()
        saved, restored = lab.call(round_trip)
    assert saved == json.loads(json.dumps(restored))


@pytest.mark.parametrize("strategy", ["wait", "drop"])
def test_samples_beyond_the_staleness_bound_are_never_trained_on_and_their_prompts_are_screened_anew(
    lab: Lab, strategy: str
):
    expired = 0
    with lab.settings(curriculum__max_staleness=0, trainer__v1__sampler__max_off_policy_strategy=strategy):
        for _ in range(3):
            metrics = lab.step()
            assert metrics["curriculum/sample_age/max"] == 0
            expired += metrics["curriculum/expired"]
            prompts = lab.call(lambda trainer: trainer.collector.controller.conservation())
            assert prompts.pop("added") == sum(prompts.values())
        stored, live = lab.call(_names)
    # The merged schedule has unfinished prompts at the end of every step, with their continuations (wait) or without
    # them (drop); under new weights they are too old.
    assert expired > 0
    assert stored == live
