"""Seconds to a target accuracy on the real stack: Ray, FSDP2, vLLM and TransferQueue, one method after the other.

    python tests/benchmarks/fast_dapo_wall_clock.py [--gain 0.15] [--methods uniform merged streaming …]

One trainer for all methods, so that start-up does not count: before each, the base weights, an empty optimizer and an
empty curriculum are restored, and the first validation checks that they are. 16 prompts per batch, N = 16, one update
per batch, the same learning rate for all, pool B (65 % hopeless, 25 % easy, 10 % learnable). Validation: 512 learnable
prompts that are not in the pool, one answer each at temperature 1, after every 1,500 rollouts or so; its time is not
counted. On a CPU verl's agent loop costs 10 to 20 ms per rollout, so that generation is most of a step, as with long
responses on a GPU.

Prediction, written before the first run, to +15 points against uniform: merged 1.2x, streaming 1.2x, sequential 1.8x in
seconds; generation 70 to 80 % of a step for all; a streaming step as long as a merged one.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

from lab import MODEL, Lab, open_lab, start_over  # noqa: E402

OUTPUT = ROOT / "outputs/benchmarks/fast_dapo_wall_clock"
DATA = OUTPUT / "data"
ROLLOUTS_PER_LOOK = 1500
# The age of a rollout where verl collects the batches.
STALENESS = "training/off_policy/trajectory_staleness/mean"
BATCH, POOL_SIZE, VAL_SIZE = 16, 2048, 512

CURRICULUM = {"curriculum__enable": True, "data__gen_batch_size": 6 * BATCH}
POSTERIOR = CURRICULUM | {"curriculum__schedule": "streaming", "curriculum__predictor": "posterior"}
METHODS: dict[str, dict[str, Any]] = {
    "uniform": {"curriculum__enable": False, "data__gen_batch_size": BATCH},
    "filter_groups": {
        "curriculum__enable": False,
        "algorithm__filter_groups__enable": True,
        "algorithm__filter_groups__metric": "acc",
        "data__gen_batch_size": 1,
    },
    "merged": CURRICULUM,
    "streaming": CURRICULUM | {"curriculum__schedule": "streaming"},
    "posterior": POSTERIOR,
    "sequential": POSTERIOR | {"curriculum__screening": "sequential", "curriculum__screening_chunk": 1},
}


def make_data(pool: str = "B") -> None:
    """A pool, and learnable prompts that are not in it: some to look at the accuracy, others for TracIn."""
    from data_preprocess.arithmetic import POOLS, PoolSettings, answer, build_rows, draw_pairs
    from verl_ext.data.schema import make_row, write_parquet

    rows = build_rows(PoolSettings(train_size=POOL_SIZE, val_size=1, shares=POOLS[pool], seed=0))["train"]
    known = {row["prompt"][0]["content"] for row in rows}
    pairs = draw_pairs("core", 4 * VAL_SIZE, np.random.default_rng(10_000))
    unseen = [(a, b) for a, b in pairs if f"{a}+{b}=" not in known][: 2 * VAL_SIZE]
    others = [
        make_row("arithmetic", f"{a}+{b}=", answer(a, b), index=POOL_SIZE + i, split="val", ability="math")
        for i, (a, b) in enumerate(unseen)
    ]
    write_parquet(rows, DATA / pool / "train.parquet")
    write_parquet(others[:VAL_SIZE], DATA / pool / "val.parquet")
    write_parquet(others[VAL_SIZE:], influence_file(pool))


def influence_file(pool: str) -> Path:
    """TracIn's validation prompts."""
    return DATA / pool / "influence.parquet"


def save_actor(trainer: Any, folder: str) -> None:
    """Its weights and the optimizer, in what formats the configuration says."""
    trainer.actor_rollout_wg.save_checkpoint(folder, None, 0, None)


def restore_base(trainer: Any, folder: str) -> None:
    """Back to the start."""
    start_over(trainer)
    trainer.actor_rollout_wg.load_checkpoint(local_path=folder, del_local_after_load=False)
    manager = getattr(trainer, "standalone_checkpoint_manager", trainer.checkpoint_manager)
    manager.update_weights(trainer.global_steps - 1)
    predictor = getattr(trainer.collector, "predictor", None)
    if predictor is not None:
        predictor.posterior.set_weight_version(trainer.weight_version)


def validate(lab: Lab) -> float:
    """The run's own validation, noisy by the number of its answers."""
    return lab.call(_validate)


def _validate(trainer: Any) -> float:
    from verl_ext.run.trainer_metrics import validation_accuracy

    accuracy = validation_accuracy(trainer._validate())
    assert accuracy is not None
    return accuracy


def every_so_many(rollouts: int) -> float:
    """Rollouts at which the next look at the accuracy is due."""
    return rollouts + ROLLOUTS_PER_LOOK


def train(
    lab: Lab,
    base: str | None,
    gain: float,
    max_rollouts: int,
    *,
    look: Callable[[Lab], float] = validate,
    is_exact: bool = False,
    next_look: Callable[[int], float] = every_so_many,
) -> dict[str, Any]:
    """Steps until the accuracy has gained this much; the history of looks and the time of each phase.

    Args:
        base: What `save_actor` has kept before the first step; None: the trainer has made no step yet, verl collects
            its batches, and an asynchronous trainer now gets the first ones.
        look: The accuracy; its time is not counted.
        is_exact: One look over the target is enough; else the mean of two.
        next_look: Rollouts until the last look -> rollouts at which the next is due.
    """
    if base is not None:
        lab.call(restore_base, base)
    start = look(lab)
    if base is None:
        lab.call(_begin)
    history: list[dict[str, Any]] = [{"rollouts": 0, "seconds": 0.0, "accuracy": start}]
    rollouts = trained = tokens = 0
    seconds: dict[str, float] = {}
    steps = []
    before: dict[str, float] | None = None
    num_looks, reached = (1 if is_exact else 2), False
    while rollouts < max_rollouts and not reached:
        metrics = lab.step()
        total = {name: metrics[f"training/total/{name}"] for name in _TOTALS}
        if before is None:
            before = dict.fromkeys(_TOTALS, 0.0) | lab.call(_totals_before, metrics)
        rollouts, trained, tokens = (int(total[name] - before[name]) for name in _TOTALS)
        for name, value in metrics.items():
            if name.startswith("timing_s/"):
                seconds[name.removeprefix("timing_s/")] = seconds.get(name.removeprefix("timing_s/"), 0.0) + value
        steps.append(
            {
                "seconds": metrics["timing_s/step"],
                "generating": metrics["timing_s/gen"],
                "sample_age": metrics.get("curriculum/sample_age/mean", metrics.get(STALENESS, 0.0)),
            }
        )
        if rollouts < next_look(history[-1]["rollouts"]):
            continue
        accuracy = look(lab)
        history.append({"rollouts": rollouts, "seconds": seconds["step"], "accuracy": accuracy})
        print(f"  {rollouts} rollouts, {seconds['step']:.0f} s, {100 * (accuracy - start):+.1f} points", flush=True)
        last = [entry["accuracy"] for entry in history[-num_looks:]]
        reached = len(history) > num_looks and np.mean(last) >= start + gain
    return {
        "reached": bool(reached),
        "history": history,
        "rollouts": rollouts,
        "trained": trained,
        "tokens": tokens,
        "seconds": seconds["step"],
        "generation_share": seconds["gen"] / seconds["step"],
        "predict_share": seconds.get("predict", 0.0) / seconds["step"],
        "num_steps": len(steps),
        "seconds_by_phase": seconds,
        "steps": steps,
    }


def _begin(trainer: Any) -> None:
    trainer.on_train_begin()


_TOTALS = ("rollouts_generated", "rollouts_trained", "tokens_generated")


def _totals_before(trainer: Any, metrics: dict[str, Any]) -> dict[str, float]:
    """The totals at the start of a method whose first step gave these metrics."""
    if trainer.config.curriculum.enable:
        return {}  # a new controller counts from 0
    trained, group = len(metrics["batch_keys"]), trainer.config.actor_rollout_ref.rollout.n
    generated = trained + int(metrics.get("training/filter_groups/evicted_samples", 0)) * group
    generated += int(metrics.get("training/filter_groups/discarded_surplus_samples", 0)) * group
    tokens = metrics["training/total/tokens_generated"]
    return {
        "rollouts_generated": metrics["training/total/rollouts_generated"] - generated,
        "rollouts_trained": metrics["training/total/rollouts_trained"] - trained,
        "tokens_generated": tokens - tokens / max(1, trainer.totals.rollouts_generated) * generated,
    }


def render(results: dict[str, dict[str, Any]], gain: float) -> str:
    """A Markdown table."""
    lines = [
        f"| method | seconds to +{100 * gain:.0f} | rollouts | steps | s per step | ms per rollout | generating | "
        "x uniform | x filter_groups |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method, result in results.items():
        ratios = [
            f"{results[other]['seconds'] / result['seconds']:.2f}" if other in results else ""
            for other in ("uniform", "filter_groups")
        ]
        lines.append(
            f"| {method} | {result['seconds']:.0f} | {result['rollouts']:,} | {result['num_steps']} | "
            f"{result['seconds'] / result['num_steps']:.1f} | {1000 * result['seconds'] / result['rollouts']:.1f} | "
            f"{100 * result['generation_share']:.0f} % | {' | '.join(ratios)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gain", type=float, default=0.15, help="gain in accuracy to reach")
    parser.add_argument("--max_rollouts", type=int, default=25_000)
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    args = parser.parse_args()
    if not (MODEL / "config.json").exists():
        parser.error("the base model is missing: run `make demo-data`")
    make_data()
    overrides = [
        f"data.train_files={DATA}/B/train.parquet",
        f"data.val_files={DATA}/B/val.parquet",
        f"data.train_batch_size={BATCH}",
        f"data.gen_batch_size={6 * BATCH}",
        "data.val_max_samples=-1",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={BATCH}",
        f"actor_rollout_ref.actor.optim.lr={args.learning_rate}",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=true",
        "actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
    ]
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, open_lab(Path(folder) / "run", *overrides) as lab:
        base = f"{folder}/base"
        lab.call(save_actor, base)
        for method in args.methods:
            print(method, flush=True)
            with lab.settings(**METHODS[method]):
                results[method] = train(lab, base, args.gain, args.max_rollouts)
            OUTPUT.mkdir(parents=True, exist_ok=True)
            (OUTPUT / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
            (OUTPUT / "results.md").write_text(render(results, args.gain) + "\n", encoding="utf-8")
    print(render(results, args.gain))


if __name__ == "__main__":
    main()
