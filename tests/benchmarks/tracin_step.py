"""Seconds of a whole GRPO step without and with TracIn, on the real stack: Ray, FSDP2, vLLM and TransferQueue.

    python tests/benchmarks/tracin_step.py [--rounds 6] [--task smollm2]

One trainer, learning rate 0 (so every arm generates from the same policy); the arms take turns, step by step.

    arithmetic    the demo's model of 0.15M parameters and its task, LoRA r=8, 16 prompts x 16 rollouts of 5 tokens,
                  16 cached validation rollouts
    smollm2       SmolLM2-135M as in configs/experiment/smollm2_toxicity_cpu.yaml: LoRA r=16, 8 prompts x 8 rollouts of
                  20 tokens, KL to the reference, 4 cached validation rollouts (the default's share of a batch); needs
                  `make demo-real-data`, and data and classifier of configs/experiment/tracin_toxicity.yaml

Validation rollouts are refreshed every 10 steps in a run; those of a refresh are timed separately and charged at a
tenth.

Generation is the same for all arms and varies more than what is compared: a step is counted as its own seconds outside
generation plus the mean generation of all arms.

PREDICTION, written before the first run: arithmetic, two-pass 1.12x (the scores cost as much as the update, which is a
tenth of a step here), one-pass 1.04x. smollm2: two-pass 1.4x, as forwards and backwards are most of a step
with so short rollouts, one-pass 1.05x. Second prediction, when updates left out the rows that were not selected, half
of them: smollm2, two-pass 1.28x instead of 1.51x.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
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
# Every arm generates from the same policy.
COMMON = (
    "actor_rollout_ref.actor.optim.lr=0",
    "tracin.enable=true",
    "tracin.check_identity_every=0",
    # In turn, each arm makes a step between two refreshes.
    f"tracin.validation.refresh_every={REFRESH_EVERY * len(ARMS)}",
)


@dataclass(frozen=True)
class Task:
    """A training run.

    Attributes:
        recipe: Name of its configuration.
        base: Overrides instead of the lab's; None: the lab's.
        overrides: After these.
        needed: File that its preparation makes.
        made_by: That preparation.
    """

    recipe: str
    base: tuple[str, ...] | None
    overrides: tuple[str, ...]
    needed: Path
    made_by: str


TASKS = {
    "arithmetic": Task(
        "fast_dapo",
        None,
        (
            "curriculum.enable=false",
            "data.train_batch_size=16",
            "data.gen_batch_size=16",
            "actor_rollout_ref.actor.ppo_mini_batch_size=16",
            "actor_rollout_ref.model.lora_rank=8",
            "algorithm.adv_estimator=grpo",
            f"tracin.validation_files={DATA}/val.parquet",
            "tracin.validation.pool_size=128",
            "tracin.validation.k=16",
        ),
        MODEL / "config.json",
        "make demo-data",
    ),
    "smollm2": Task(
        "tracin",
        ("+backend=cpu", "+experiment=smollm2_toxicity_cpu"),
        (
            "trainer.total_training_steps=1000",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
            "tracin.validation.k=4",
            "reward.custom_reward_function.path=pkg://verl_ext.rewards.toxicity",
            f"+reward.custom_reward_function.reward_kwargs.model_path={ROOT}/outputs/models/toxicity_classifier",
            "+reward.custom_reward_function.reward_kwargs.toxic_label=toxic",
        ),
        ROOT / "outputs/models/smollm2_135m/config.json",
        "make demo-real-data",
    ),
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
    parser.add_argument("--task", choices=TASKS, default="arithmetic")
    args = parser.parse_args()
    task = TASKS[args.task]
    if not task.needed.exists():
        parser.error(f"{task.needed} is missing: run `{task.made_by}`")
    with (
        tempfile.TemporaryDirectory() as folder,
        open_lab(Path(folder) / "run", *task.overrides, *COMMON, recipe=task.recipe, base=task.base) as lab,
    ):
        steps = measure(lab, args.rounds)
    output = OUTPUT / args.task
    output.mkdir(parents=True, exist_ok=True)
    (output / "steps.json").write_text(json.dumps(steps, indent=2) + "\n", encoding="utf-8")
    (output / "results.md").write_text(render(steps) + "\n", encoding="utf-8")
    print(render(steps))


if __name__ == "__main__":
    main()
