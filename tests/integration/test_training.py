"""The trainer on real Ray, FSDP2, vLLM and TransferQueue: what holds at every step."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import COMPILED, Lab, is_corrected, start_over

from recipe.fast_dapo.collector import CurriculumExhaustedError
from verl_ext.core.errors import CheckpointError, RolloutEngineError, StaleEngineError
from verl_ext.run.checkpoints import CheckpointFolder
from verl_ext.run.manifest import find_damage

PROMPT = "453+812="


def _engine_log_prob(trainer: Any) -> float:
    """Log-prob of the greedy first token after a fixed prompt, as the serving engine computes it."""
    import asyncio

    prompt_ids = trainer.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]
    params = {"temperature": 0.0, "logprobs": True, "max_tokens": 1}
    output = asyncio.run(
        trainer.get_llm_client().generate(
            request_id=f"probe-{trainer.global_steps}", prompt_ids=prompt_ids, sampling_params=params
        )
    )
    return float(output.log_probs[0])


def _checkpoint_weights_digest(trainer: Any) -> float:
    import glob

    import torch

    trainer._save_checkpoint()
    folder = Path(trainer.config.trainer.default_local_dir) / f"global_step_{trainer.global_steps}" / "actor"
    (shard,) = glob.glob(f"{folder}/model_world_size_1_rank_0.pt")
    state = torch.load(shard, weights_only=False)
    return float(
        sum(
            t.to_local().double().abs().sum() if hasattr(t, "to_local") else t.double().abs().sum()
            for t in state.values()
        )
    )


def test_a_step_trains_on_complete_groups_of_informative_prompts(lab: Lab):
    metrics = lab.step()
    sessions = {}
    for key in metrics["batch_keys"]:
        uid, session, _ = key.rsplit("_", 2)
        sessions.setdefault(uid, set()).add(int(session))
    assert len(sessions) == 8
    assert all(group == set(range(16)) for group in sessions.values())
    # A group whose rewards are all equal has no advantage: screening let none of these through.
    assert 0 < metrics["critic/score/mean"] < 1
    assert metrics["curriculum/trained_rollouts"] == 8 * 16


def test_log_probs_of_samples_and_prompts_need_no_compiler_and_leave_no_cache(lab: Lab):
    """The lab's processes have no compiler, and they have their own cache."""

    def prompt_log_probs(trainer: Any) -> list[float]:
        import ray

        prompt_ids = trainer.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]
        return ray.get(trainer.watchdog._servers[0].prompt_log_probs.remote(prompt_ids))

    assert lab.call(_engine_log_prob) < 0
    log_probs = lab.call(prompt_log_probs)
    assert len(log_probs) == len(PROMPT) - 1
    assert max(log_probs) < 0
    assert [path for path in (lab.run_dir / COMPILED).rglob("*") if path.is_file()] == []


def test_siblings_are_contiguous_and_in_session_order_when_collected(lab: Lab):
    def collect(trainer: Any) -> list[str]:
        from verl_ext.serving import data_plane

        trainer.timing_raw = {}
        batch = trainer.collector.collect(8)
        data_plane.clear(batch.keys, batch.partition_id)
        return list(batch.keys)

    keys = lab.call(collect)
    for first in range(0, len(keys), 16):
        parts = [key.rsplit("_", 2) for key in keys[first : first + 16]]
        assert len({uid for uid, _, _ in parts}) == 1
        assert [int(session) for _, session, _ in parts] == list(range(16))


def test_engine_and_actor_agree_on_the_log_probs_of_fresh_rollouts(lab: Lab):
    metrics = lab.step()
    assert metrics["engine_guard/fresh_rollouts"] > 0
    assert metrics["engine_guard/probs_diff_max"] < 1e-4
    assert metrics["engine_guard/pearson_corr"] > 0.9999


def test_a_step_changes_the_actors_weights_and_the_engine_serves_them(lab: Lab):
    weights_before, served_before = lab.call(_checkpoint_weights_digest), lab.call(_engine_log_prob)
    lab.step()
    weights_after, served_after = lab.call(_checkpoint_weights_digest), lab.call(_engine_log_prob)
    assert weights_after != weights_before
    assert served_after != served_before


def test_samples_that_waited_carry_an_older_version_and_are_corrected(lab: Lab):
    ages = []
    for _ in range(6):
        metrics = lab.step()
        ages.append(metrics["curriculum/sample_age/max"])
        if ages[-1] > 0:
            assert is_corrected(metrics)
            return
    pytest.fail(f"no sample ever waited for a later step: ages {ages}")


def test_the_data_plane_holds_exactly_what_the_controller_knows(lab: Lab):
    def names(trainer: Any) -> tuple[set[str], set[str]]:
        from verl_ext.serving import data_plane

        curriculum = trainer.collector
        return set(data_plane.tags("train")) | curriculum.prompt_rows.uids, curriculum.controller.live_names()

    lab.step()
    stored, live = lab.call(names)
    assert stored == live


def test_the_metrics_name_every_phase_and_add_up(lab: Lab):
    metrics = lab.step()
    assert metrics["curriculum/screened"] == sum(metrics[f"curriculum/screening_pass_rate/{k}_of_4"] for k in range(5))
    assert metrics["training/total/rollouts_generated"] == metrics["curriculum/total/generated_rollouts"]
    for phase in ("old_log_prob", "update_actor", "update_weights", "step"):
        assert metrics[f"timing_s/{phase}"] > 0
    # The buffer may cover a whole batch: then nothing is generated in this step.
    assert (metrics["timing_s/gen"] > 0) == (metrics["curriculum/generated_rollouts"] > 0)


def test_prompt_records_tell_what_became_of_each_prompt(lab: Lab):
    def records() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (lab.run_dir / "prompts.jsonl").read_text().splitlines()]

    before = len(records())
    metrics = lab.step()
    new = records()[before:]
    by_event = Counter(record["event"] for record in new)
    assert by_event["trained"] == metrics["curriculum/trained"] == 8
    assert by_event["screening"] == metrics["curriculum/screened"]
    assert all(record["samples"] == 4 for record in new if record["event"] == "screening")
    assert all(record["samples"] == 12 for record in new if record["event"] == "continuation")


@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
def test_verls_estimators_work_on_the_groups(lab: Lab, estimator: str):
    def use(trainer: Any, name: str) -> None:
        trainer.config.algorithm.adv_estimator = name

    lab.call(use, estimator)
    metrics = lab.step()
    assert metrics["critic/advantages/max"] > 0 > metrics["critic/advantages/min"]


def test_without_the_curriculum_every_prompt_gets_all_rollouts_and_is_trained_on(lab: Lab):
    # One fetch of the loader has 24 prompts; verl's plain path submits one training batch.
    with lab.settings(curriculum__enable=False, data__train_batch_size=24):
        metrics = lab.step()
    groups = Counter(key.rsplit("_", 2)[0] for key in metrics["batch_keys"])
    assert len(groups) == 24
    assert set(groups.values()) == {16}
    assert "curriculum/screened" not in metrics


def test_verls_own_dynamic_sampling_runs_in_the_same_trainer(lab: Lab):
    with lab.settings(
        curriculum__enable=False,
        algorithm__filter_groups__enable=True,
        algorithm__filter_groups__metric="acc",
        data__gen_batch_size=24,
    ):
        metrics = lab.step()
    groups = Counter(key.rsplit("_", 2)[0] for key in metrics["batch_keys"])
    assert list(groups.values()) == [16] * 8
    assert metrics["training/filter_groups/evicted_samples"] > 0
    totals = {name: metrics[f"training/total/rollouts_{name}"] for name in ("generated", "trained")}
    assert totals["generated"] > totals["trained"]


def test_parts_of_ones_own_join_by_configuration(lab: Lab):
    def watch_the_update(trainer: Any) -> None:
        from verl_ext.serving import data_plane

        update = trainer.actor_rollout_wg.update_actor
        trainer.seen = {}

        def watched(batch: Any) -> Any:
            rows = data_plane.read(batch.keys, "train", ["advantages"])["advantages"].unbind()
            trainer.seen = {key: float(row.abs().sum()) for key, row in zip(batch.keys, rows, strict=True)}
            trainer.actor_rollout_wg.update_actor = update
            return update(batch)

        trainer.actor_rollout_wg.update_actor = watched

    with lab.settings(selectors=["small_parts.EvenSessions"], observers=["small_parts.AdvantagesSeen"]):
        lab.call(watch_the_update)
        metrics = lab.step()
        seen = lab.call(lambda trainer: trainer.seen)
        state = lab.call(lambda trainer: trainer.signal_state()["parts"]["small_parts.EvenSessions"])
    odd = [key for key in metrics["batch_keys"] if int(key.rsplit("_", 2)[1]) % 2]
    assert len(odd) == 8 * 8
    assert metrics["even_sessions/left_out"] == 0.5
    # The update saw no advantages of these rows; afterwards everything is restored.
    assert all((seen[key] == 0) == (key in odd) for key in metrics["batch_keys"])
    assert metrics["seen/odd"] > 0 < metrics["seen/even"]
    assert state == {"num_steps": 1}


def test_state_restores_to_the_same_curriculum(lab: Lab):
    def round_trip(trainer: Any) -> tuple[dict, dict]:
        before = trainer.signal_state()
        trainer.collector.before_checkpoint()
        trainer.load_signal_state(json.loads(json.dumps(before)))
        after = trainer.signal_state()
        for state in (before, after):
            del state["totals"]["seconds"], state["totals"]["seconds_by_phase"]  # time passes
        return before, after

    before, after = lab.call(round_trip)
    assert before == after


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system to fill")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_disk_that_fills_up_during_a_checkpoint_spares_the_one_before(lab: Lab, small_disk: Path):
    def save(trainer: Any, folder: str) -> None:
        before = trainer.config.trainer.default_local_dir
        trainer.config.trainer.default_local_dir = folder
        try:
            trainer._save_checkpoint()
        finally:
            trainer.config.trainer.default_local_dir = before

    lab.step()
    checkpoints = CheckpointFolder(small_disk / "checkpoints")
    lab.call(save, str(checkpoints.path))
    (first,) = checkpoints.steps()
    usage = shutil.disk_usage(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(usage.free - usage.used // 2))
    lab.step()
    with pytest.raises(CheckpointError, match=r"could not be written .*GiB free.*\n.*Make room"):
        lab.call(save, str(checkpoints.path))
    assert checkpoints.steps() == [first]
    assert find_damage(checkpoints.at(first)) is None
    assert not checkpoints.saving.exists()
    # The trainer is unchanged: once there is space again, it continues.
    ballast.unlink()
    lab.call(save, str(checkpoints.path))
    lab.step()
    assert checkpoints.find().folder == checkpoints.at(first + 1)


def test_too_many_generation_rounds_end_with_an_error_after_a_checkpoint(lab: Lab):
    def limit(trainer: Any, rounds: int) -> None:
        controller = trainer.collector.controller
        controller.settings = controller.settings.model_copy(update={"max_num_gen_batches": rounds})

    def drain_and_collect(trainer: Any) -> None:
        trainer.timing_raw = {}
        controller = trainer.collector.controller
        controller.settings = controller.settings.model_copy(update={"train_batch_size": 64})
        try:
            trainer.collector.collect(64)
        finally:
            controller.settings = controller.settings.model_copy(update={"train_batch_size": 8})

    lab.call(limit, 1)
    with pytest.raises(CurriculumExhaustedError) as caught:
        lab.call(drain_and_collect)
    lab.call(limit, 0)
    assert "screened" in str(caught.value)
    step = lab.call(lambda trainer: trainer.global_steps)
    assert (lab.run_dir / "checkpoints" / f"global_step_{step - 1}" / "signal.json").exists()


def test_the_guard_fires_when_the_weights_do_not_reach_the_engine(lab: Lab):
    """Negative control: only the synchronisation is switched off."""

    def step_without_sync(trainer: Any) -> None:
        from verl_ext.serving import data_plane

        trainer.timing_raw = {}
        batch = trainer.step({}, trainer.timing_raw)
        data_plane.clear(batch.keys, batch.partition_id)
        # The engine claims the new version without having it, as after a broken weight transfer.
        for server in trainer.watchdog._servers:
            import ray

            ray.get(server.set_global_steps.remote(trainer.global_steps))
        trainer.global_steps += 1

    def steps_without_sync(trainer: Any) -> None:
        for _ in range(5):
            step_without_sync(trainer)

    with pytest.raises(StaleEngineError, match="serves other weights"):
        lab.call(steps_without_sync)

    def repair(trainer: Any) -> None:
        start_over(trainer)  # rollouts of the stale engine claim to be fresh
        trainer.checkpoint_manager.update_weights(trainer.global_steps - 1)

    lab.call(repair)
    assert lab.step()["engine_guard/probs_diff_max"] < 1e-4


def test_a_killed_vllm_engine_ends_the_run_with_its_name(lab: Lab):
    """Runs last: the engine does not come back."""
    import time

    import psutil

    def step_until_failure(trainer: Any) -> str:
        from verl_ext.launch.runner import name_failure

        try:
            trainer.timing_raw = {}
            for _ in range(100):
                trainer.step({}, trainer.timing_raw)
                trainer.on_step_end()
                trainer.global_steps += 1
        except Exception as error:
            raise name_failure(trainer, error) from None
        return "the run went on without an engine"

    (ledger,) = json.loads((lab.run_dir / "engine_resources.json").read_text())
    (engine,) = (process for process in ledger["processes"] if "VLLM::" in process["name"])
    psutil.Process(engine["pid"]).kill()
    began = time.monotonic()
    with pytest.raises(RolloutEngineError, match=r"pid \d+|dead"):
        lab.call(step_until_failure)
    assert time.monotonic() - began < 60
