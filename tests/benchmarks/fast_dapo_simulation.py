"""Runs to compare the simulator with: the demo under several settings on the real stack, in turns.

    python tests/benchmarks/fast_dapo_simulation.py [--repeats 3] [--steps 8] [--output FOLDER]
    python -m recipe.fast_dapo.simulate --calibrate FOLDER/merged_* --compare FOLDER/*

One trainer for all settings, set back to the base model and an empty curriculum before each block of steps. The
settings take turns, so that a slow machine affects all of them. Each block writes a folder like a run: metrics.jsonl,
prompts.jsonl and hydra/config.yaml.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
sys.path.insert(0, str(ROOT / "tests/benchmarks"))

from lab import Lab, open_lab, start_over  # noqa: E402

STREAMING = {"curriculum__schedule": "streaming"}
SETTINGS: dict[str, dict[str, Any]] = {
    "merged": {},
    "streaming": STREAMING,
    "merged_gen96": {"data__gen_batch_size": 96},
    "merged_n8": {"curriculum__n": 8, "curriculum__n_continue": 8},
    "sequential": STREAMING
    | {"curriculum__predictor": "posterior", "curriculum__screening": "sequential", "curriculum__screening_chunk": 1},
}
DEMO = ["data.train_batch_size=16", "data.gen_batch_size=48", "data.val_max_samples=-1"]


def save_base(trainer: Any, folder: str) -> None:
    """Keep the untrained actor and its empty optimizer."""
    trainer.actor_rollout_wg.save_checkpoint(folder, None, 0, None)


def restore_base(trainer: Any, folder: str) -> int:
    """Back to the start; returns the size of the prompts' records so far."""
    start_over(trainer)
    trainer.actor_rollout_wg.load_checkpoint(local_path=folder, del_local_after_load=False)
    trainer.checkpoint_manager.update_weights(trainer.global_steps - 1)
    predictor = getattr(trainer.collector, "predictor", None)
    if predictor is not None:
        predictor.posterior.set_weight_version(trainer.weight_version)
    return trainer.collector.prompt_records.events.num_bytes


def configuration(trainer: Any) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(trainer.config)


def run_block(lab: Lab, base: str, steps: int, output: Path) -> None:
    """Train a few steps from the base model and write them down as a run."""
    from verl_ext.run.metrics_stream import MetricsStream

    start = lab.call(restore_base, base)
    (output / "hydra").mkdir(parents=True, exist_ok=True)
    (output / "hydra/config.yaml").write_text(lab.call(configuration), encoding="utf-8")
    (output / "metrics.jsonl").unlink(missing_ok=True)
    stream = MetricsStream(output / "metrics.jsonl")
    for number in range(steps):
        metrics = lab.step()
        stream.append(metrics | {"training/global_step": number + 1})
    records = (lab.run_dir / "prompts.jsonl").read_bytes()[start:].decode()
    first = json.loads(records.splitlines()[0])["step"]
    with (output / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for line in records.splitlines():
            record = json.loads(line)
            file.write(json.dumps(record | {"step": record["step"] - first + 1}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--output", type=Path, default=ROOT / "outputs/benchmarks/fast_dapo_simulation")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_lab(Path(folder) / "run", *DEMO) as lab:
        base = f"{folder}/base"
        lab.call(save_base, base)
        run_block(lab, base, 2, Path(folder) / "warm_up")  # the first steps load libraries
        for repeat in range(args.repeats):
            for name in args.settings:
                print(f"{name}, {repeat + 1} of {args.repeats}", flush=True)
                with lab.settings(**SETTINGS[name]):
                    run_block(lab, base, args.steps, args.output / f"{name}_{repeat + 1}")


if __name__ == "__main__":
    main()
