"""Parameters from run folders: a run written from a simulation gives back what it was simulated with."""

import json
from dataclasses import replace

import numpy as np
import pytest
from omegaconf import OmegaConf

from recipe.fast_dapo.simulation.calibration import MeasuredRun, _fit_times, calibrate
from recipe.fast_dapo.simulation.command import compare, main
from recipe.fast_dapo.simulation.scenario import Scenario
from recipe.fast_dapo.simulation.simulation import CurriculumSimulation
from verl_ext.core.errors import SignalError

TRUE = Scenario(
    schedule="merged",
    train_batch_size=16,
    gen_batch_size=48,
    num_engines=1,
    step_seconds=1e-6,
    sequence_seconds=0.0,
    prefill_seconds=0.0,
    host_seconds=0.02,
    call_seconds=0.7,
    update_seconds=2.5,
    update_rollout_seconds=0.0,
    median_tokens=6.0,
    sigma=0.0,
    hard_factor=1.0,
    max_tokens=10,
    num_prompts=1000,
    never=0.4,
    always=0.1,
    num_steps=40,
    warmup_steps=0,
)


def write_run(folder, scenario):
    """The three files of a simulated run's folder."""
    simulation = CurriculumSimulation(scenario)
    records = []
    update = simulation.controller.update_prompts

    def update_and_record(*args, **kwargs):
        result = update(*args, **kwargs)
        for outcome in result.outcomes:
            counts = {"samples": outcome.samples, "passes": outcome.passes}
            records.append({"step": 1, "event": "screening", "index": outcome.index, **counts})
        return result

    simulation.controller.update_prompts = update_and_record
    rows = []
    for number, step in enumerate(simulation.run(), 1):
        records.append({"step": number, "event": "trained", "index": 0})
        rows.append(
            {
                "training/global_step": number,
                "timing_s/gen": step.generation_seconds,
                "timing_s/step": step.generation_seconds + step.update_seconds + (9.0 if number == 10 else 0.0),
                "timing_s/save_checkpoint": 9.0 if number == 10 else 0.0,
                "timing_s/testing": 50.0,
                "curriculum/rounds": step.rounds,
                "curriculum/generated_rollouts": step.rollouts,
                "curriculum/generated_tokens": step.tokens,
                "curriculum/trained": step.trained_prompts,
                "curriculum/screened": step.screened,
            }
        )
    (folder / "hydra").mkdir(parents=True)
    config = {
        "actor_rollout_ref": {
            "rollout": {"n": scenario.n, "n_continue": scenario.n_continue, "max_num_seqs": scenario.slots}
        },
        "data": {
            "train_batch_size": scenario.train_batch_size,
            "gen_batch_size": scenario.gen_batch_size,
            "max_response_length": scenario.max_tokens,
        },
        "curriculum": {
            name: getattr(scenario, name)
            for name in ("schedule", "predictor", "screening", "screening_chunk", "max_staleness")
        },
    }
    OmegaConf.save(config, folder / "hydra/config.yaml")
    for name, lines in (("metrics", rows), ("prompts", records)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def merged_run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "merged", TRUE)


def test_finds_the_times_again(merged_run):
    found = calibrate([MeasuredRun(merged_run)])
    # An engine's token takes a microsecond in either case.
    assert found["host_seconds"] == pytest.approx(0.02, rel=1e-3)
    assert found["call_seconds"] == pytest.approx(0.7, rel=1e-2)
    assert found["update_seconds"] == pytest.approx(2.5)
    assert found["median_tokens"] == pytest.approx(6.0)
    sizes = ("n", "n_continue", "train_batch_size", "gen_batch_size", "schedule", "slots", "num_steps", "max_staleness")
    assert {name: found[name] for name in sizes} == {name: getattr(TRUE, name) for name in sizes}


def test_noise_is_not_taken_for_latency():
    rng = np.random.default_rng(0)
    rollouts = rng.integers(280, 320, 12) * np.array([1, 2] * 6)
    seconds = 0.05 * rollouts * rng.uniform(0.7, 1.3, 12)
    assert _fit_times(np.array([1.0, 2.0] * 6), rollouts.astype(float), seconds) == pytest.approx((0.0, 0.05), rel=0.2)


def test_predicts_another_schedule_of_the_same_machine(merged_run, tmp_path):
    streaming = write_run(tmp_path / "streaming", replace(TRUE, schedule="streaming", seed=9))
    scenario = Scenario(**calibrate([MeasuredRun(merged_run)]))
    rows = compare(scenario, [MeasuredRun(streaming)], num_seeds=5)
    assert {row["figure"] for row in rows} == {"generation_s", "step_s", "rollouts_a_prompt", "screening_rounds"}
    assert all(abs(row["error"]) < 0.1 for row in rows), rows


def test_the_command_compares(merged_run, capsys):
    main(["--calibrate", str(merged_run), "--compare", str(merged_run), "--seeds", "2"])
    printed = capsys.readouterr().out
    assert "host_seconds=0.02" in printed
    assert "| merged | rollouts_a_prompt |" in printed


@pytest.mark.parametrize("change", [{"success_threshold": None}, {"band": [0.2, 0.8]}])
def test_a_run_with_grades_or_a_band_is_refused(tmp_path, change):
    run = MeasuredRun(write_run(tmp_path / "run", replace(TRUE, num_steps=2)))
    run.config.curriculum.update({"success_threshold": 0.5, "band": [0.0, 1.0]})
    calibrate([run])
    run.config.curriculum.update(change)
    with pytest.raises(SignalError, match=r"needs runs with a curriculum\.success_threshold and band=\[0, 1\]"):
        calibrate([run])


def test_a_streaming_run_is_refused(tmp_path):
    streaming = write_run(tmp_path / "streaming", replace(TRUE, schedule="streaming", num_steps=2))
    with pytest.raises(SignalError, match="schedule=merged"):
        calibrate([MeasuredRun(streaming)])


def test_a_folder_that_is_no_run_is_refused(tmp_path, merged_run):
    with pytest.raises(SignalError, match=r"config\.yaml is missing"):
        MeasuredRun(tmp_path)
    plain = tmp_path / "plain"
    (plain / "hydra").mkdir(parents=True)
    (plain / "hydra/config.yaml").write_text((merged_run / "hydra/config.yaml").read_text())
    (plain / "prompts.jsonl").write_text("")
    (plain / "metrics.jsonl").write_text(json.dumps({"timing_s/gen": 1.0}) + "\n")
    with pytest.raises(SignalError, match="has no step of a curriculum"):
        MeasuredRun(plain)
