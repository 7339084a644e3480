"""How the time of a finished run's steps was spent, and how much of it is neither verl's work nor the engine's.

    python tests/benchmarks/step_overhead.py outputs/fast_dapo_demo

Overhead is everything outside generation, log-probs, update and weight synchronisation: the controller, TransferQueue's
bookkeeping, the engine guard, verl's balancing and advantages, metrics. Saving checkpoints and validation are separate.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from verl_ext.launch.recipe import all_phases
from verl_ext.run.metrics_stream import STEP, read_metrics

# Within `collect` and outside it: the parts of the rest with their own timers.
NAMED_REST = ("engine_guard", "adv", "select", "after_update")


def shares(run_dir: Path, skip: int = 1) -> dict[str, float]:
    """Mean share of a step by phase; the first `skip` steps, which load libraries, are left out."""
    records = [record for record in read_metrics(run_dir / "metrics.jsonl") if record[STEP] > skip]
    if not records:
        raise SystemExit(f"{run_dir}/metrics.jsonl has no step after step {skip}")

    def seconds(name: str) -> float:
        return sum(record.get(f"timing_s/{name}", 0.0) for record in records)

    step = seconds("step") - seconds("save_checkpoint")
    named = named_phases(seconds)
    overhead = step - sum(named.values())
    detail = {f"  of it: {name}": seconds(name) for name in NAMED_REST}
    detail["  of it: controller and TransferQueue"] = seconds("collect") - seconds("gen")
    rows = named | {"overhead": overhead} | detail
    return {name: value / step for name, value in rows.items()} | {"seconds per step": step / len(records)}


def named_phases(seconds: Callable[[str], float]) -> dict[str, float]:
    """Seconds of the phases that are verl's work or the engine's, from those of each timer."""
    return {phase: sum(map(seconds, names)) for phase, names in all_phases().items() if phase != "checkpoints"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    for name, value in shares(parser.parse_args().run_dir).items():
        print(f"{name:<40} {value:7.2f} s" if name.startswith("seconds") else f"{name:<40} {100 * value:7.1f} %")


if __name__ == "__main__":
    main()
