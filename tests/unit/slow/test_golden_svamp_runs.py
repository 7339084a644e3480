"""tests/benchmarks/golden_svamp_runs.py: its command passes all checks, and a report reads what a run leaves."""

import json
import os
import sys
from pathlib import Path

import pytest
from finished_runs import end
from hydra import compose, initialize_config_dir
from stand_ins import make_model

from recipe.golden_redaction.recipe import RECIPE
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.launch.train import train

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import golden_svamp_runs
from golden_svamp_runs import Run, main

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Overrides for what the experiment reads."""
    folder = tmp_path_factory.mktemp("svamp")
    make_model(folder / "model")
    rows = [
        make_row("svamp", f"{n}+1=", str(n + 1), index=n, split="train", ability="math", golden_solution=str(n + 1))
        for n in range(40)
    ]
    write_parquet(rows, folder / "svamp.parquet")
    return [
        f"data.train_files={folder}/svamp.parquet",
        f"actor_rollout_ref.model.path={folder}/model",
        # Its tokenizer has no box to put an answer in.
        "reward.custom_reward_function.path=pkg://verl_ext.rewards.arithmetic",
    ]


def test_the_command_passes_all_checks_before_ray(stand_ins, tmp_path, capsys):
    run = Run(30, tmp_path)
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        config = compose("golden_redaction", overrides=[*run.overrides(), "dry_run=true", *stand_ins])
    environment = dict(os.environ)
    try:
        train(config, RECIPE)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    printed = capsys.readouterr().out
    assert "16 problems (rows read: 40; left out by data.train_max_samples: 24)" in printed
    assert "30 steps, 30 updates, 120 states" in printed


def write_evaluation(folder, shares):
    """A finished evaluation of problems with these shares of right answers."""
    folder.mkdir(parents=True)
    prompts = [{"index": f"svamp/{n}", "avg@8": share, "pass@8": float(share > 0)} for n, share in enumerate(shares)]
    (folder / "result.json").write_text(json.dumps({"data_sets": [{"prompts": prompts}]}))


def test_a_report_starts_nothing_and_compares_with_the_untrained_model(tmp_path, capsys, monkeypatch):
    for name in ("finish", "evaluate"):
        monkeypatch.setattr(golden_svamp_runs, name, None)
    with pytest.raises(SystemExit, match="is not finished and evaluated"):
        main(["--output", str(tmp_path), "--report"])
    run = Run(30, tmp_path)
    write_evaluation(tmp_path / "untrained", [0.0, 0.25, 0.5])
    write_evaluation(run.evaluation, [0.125, 0.375, 0.625])
    findings = [["hidden tokens", "1 to 12"]]
    end(run, 30, findings=findings, rollouts_generated=3456, seconds=1234.5)
    main(["--output", str(tmp_path), "--report"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["- hidden tokens: 1 to 12", "- 30 steps, 3,456 rollouts, 1,234 s"]
    assert lines[-2].startswith("| untrained | 0.250 [")
    assert lines[-1].startswith("| after golden redaction | 0.375 [")
    assert "| +12.5 [+12.5, +12.5] | 1.000 |" in lines[-1]


def test_the_trained_model_is_evaluated_after_the_untrained_one(tmp_path, monkeypatch):
    monkeypatch.setattr(golden_svamp_runs, "missing_files", lambda *arguments: None)
    monkeypatch.setattr(golden_svamp_runs, "finish", lambda runs: [end(run, run.steps) for run in runs])
    asked = []
    monkeypatch.setattr(golden_svamp_runs, "evaluate", lambda model, output: asked.append((model, output)))
    with pytest.raises(SystemExit, match="is not finished and evaluated"):
        main(["--output", str(tmp_path), "--steps", "4"])
    folder = tmp_path / "golden"
    assert asked == [
        ("outputs/models/smollm2_135m", tmp_path / "untrained"),
        (f"{folder}/checkpoints/global_step_4", folder / "evaluation"),
    ]


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(golden_svamp_runs, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"data_preprocess\.svamp --solutions, as this script's --help shows"):
        main(["--output", str(tmp_path)])
