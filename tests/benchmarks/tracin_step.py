"""Seconds of a whole GRPO step without and with TracIn, on the real stack: Ray, FSDP2, vLLM and TransferQueue.

    python tests/benchmarks/tracin_step.py [--rounds 6]

One trainer, LoRA r=8, 16 prompts x 16 rollouts, the demo's arithmetic, learning rate 0 (so every arm generates from
the same policy); the arms take turns, step by step. Validation: `quality`, 16 cached rollouts, refreshed every 10
steps in a run; the rollouts of a refresh are timed separately and charged at a tenth.

Generation is the same for all arms and varies more than what is compared: a step is counted as its own seconds outside
generation plus the mean generation of all arms.

PREDICTION, written before the first run: two-pass 1.12x (the scores cost as much as the update, which is a tenth of a
step here), one-pass 1.04x.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

from lab import DATA, MODEL, Lab, open_lab  # noqa: E402

OUTPUT = ROOT / "outputs/benchmarks/tracin_step"
REFRESH_EVERY = 10
ARMS: dict[str, dict[str, Any]] = {
    "plain": {"tracin.enable": False},
    "two-pass": {"tracin.enable": True, "tracin.one_pass": False},
    "one-pass": {"tracin.enable": True, "tracin.one_pass": True},
}


def switch(trainer: Any, changes: dict[str, Any]) -> None:
    """Other settings of TracIn, without starting anything over."""
    from omegaconf import OmegaConf, open_dict

    from recipe.tracin.settings import read_settings
    from verl_ext.trainer.loading import by_name

    with open_dict(trainer.config):
        for name, value in changes.items():
            OmegaConf.update(trainer.config, name, value)
    if not hasattr(trainer, "tracin"):
        (trainer.tracin,) = trainer.selectors
    trainer.tracin.settings = read_settings(trainer.config)
    trainer.selectors = [trainer.tracin] if trainer.tracin.settings.enable else []
    trainer.parts = by_name([trainer.collector, *trainer.selectors])


def measure(lab: Lab, rounds: int) -> list[dict[str, Any]]:
    """One record per step; the first round warms up and is not kept."""
    steps = []
    for number in range(rounds + 1):
        for arm, changes in ARMS.items():
            lab.call(switch, changes)
            metrics = lab.step()
            timing = {name.removeprefix("timing_s/"): s for name, s in metrics.items() if name.startswith("timing_s/")}
            if number:
                steps.append({"arm": arm, "selected": metrics.get("tracin/selection_ratio"), **timing})
                print(
                    f"round {number}/{rounds} {arm}: {timing['step']:.2f} s, generating {timing['gen']:.2f}", flush=True
                )
    return steps


def render(steps: list[dict[str, Any]]) -> str:
    """A Markdown table."""
    generation = float(np.mean([step["gen"] for step in steps]))
    rollouts = [step["tracin_rollouts"] for step in steps if step.get("tracin_rollouts", 0) > 0.01]
    refresh = float(np.mean(rollouts)) / REFRESH_EVERY if rollouts else 0.0
    lines = [
        "| arm | s outside generation | validation gradient | scores | update | step, mean generation | x plain |",
        "|---|---|---|---|---|---|---|",
    ]
    plain = None
    for arm in ARMS:
        own = [step for step in steps if step["arm"] == arm]

        def mean(name: str, own: list[dict[str, Any]] = own) -> float:
            return float(np.median([step.get(name, 0.0) for step in own]))

        outside = float(np.median([s["step"] - s["gen"] - s.get("tracin_rollouts", 0.0) for s in own]))
        total = outside + generation + (refresh if arm != "plain" else 0.0)
        plain = plain or total
        lines.append(
            f"| {arm} | {outside:.2f} | {mean('tracin_validation'):.2f} | {mean('tracin_scoring'):.2f} | "
            f"{mean('update_actor'):.2f} | {total:.2f} | {total / plain:.3f} |"
        )
    lines.append(f"\nmean generation {generation:.2f} s, a refresh's rollouts {refresh:.2f} s per step")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    if not (MODEL / "config.json").exists():
        parser.error("the base model is missing: run `make demo-data`")
    overrides = [
        "curriculum.enable=false",
        "data.train_batch_size=16",
        "data.gen_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=16",
        "actor_rollout_ref.actor.optim.lr=0",
        "actor_rollout_ref.model.lora_rank=8",
        "algorithm.adv_estimator=grpo",
        "tracin.enable=true",
        f"tracin.validation_files={DATA}/val.parquet",
        "tracin.validation.pool_size=128",
        "tracin.validation.k=16",
        f"tracin.validation.refresh_every={REFRESH_EVERY * len(ARMS)}",
        "tracin.check_identity_every=0",
    ]
    with tempfile.TemporaryDirectory() as folder, open_lab(Path(folder) / "run", *overrides) as lab:
        steps = measure(lab, args.rounds)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "steps.json").write_text(json.dumps(steps, indent=2) + "\n", encoding="utf-8")
    (OUTPUT / "results.md").write_text(render(steps) + "\n", encoding="utf-8")
    print(render(steps))


if __name__ == "__main__":
    main()
