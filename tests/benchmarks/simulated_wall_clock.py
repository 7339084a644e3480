"""How far the simulator predicts fast_dapo_wall_clock.py: fitted to its `merged` row, compared with the others.

    python tests/benchmarks/simulated_wall_clock.py [outputs/benchmarks/fast_dapo_wall_clock/results.json]

Fitted, each to one figure of `merged`: seconds of the agent loop per rollout, seconds of a step outside generation, and
the share of prompts that are always solved (to the rollouts per trained prompt; 65 % of that pool are hopeless by
construction). Everything about the others is predicted.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from recipe.fast_dapo.simulation.command import render, simulate
from recipe.fast_dapo.simulation.scenario import Scenario

RESULTS = Path(__file__).resolve().parents[2] / "outputs/benchmarks/fast_dapo_wall_clock/results.json"
NUM_SEEDS = 5
POSTERIOR = {"schedule": "streaming", "predictor": "posterior"}
METHODS: dict[str, dict[str, Any]] = {
    "merged": {},
    "streaming": {"schedule": "streaming"},
    "posterior": POSTERIOR,
    "sequential": POSTERIOR | {"screening": "sequential", "screening_chunk": 1},
}


def measured(result: dict[str, Any], batch: int) -> dict[str, float]:
    steps, generating = result["num_steps"], result["seconds_by_phase"]["gen"]
    return {
        "rollouts_a_prompt": result["rollouts"] / steps / batch,
        "generation_s": generating / steps,
        "step_s": result["seconds"] / steps,
    }


def fit(result: dict[str, Any]) -> Scenario:
    """The scenario of the `merged` row."""
    seconds = result["seconds_by_phase"]["gen"]
    scenario = Scenario(
        schedule="merged",
        train_batch_size=16,
        gen_batch_size=96,
        num_engines=1,
        step_seconds=1e-6,
        sequence_seconds=0.0,
        prefill_seconds=0.0,
        call_seconds=0.0,
        host_seconds=seconds / result["rollouts"],
        update_seconds=(result["seconds"] - seconds) / result["num_steps"],
        update_rollout_seconds=0.0,
        median_tokens=6.0,
        sigma=0.0,
        hard_factor=1.0,
        max_tokens=10,
        num_prompts=2048,
        never=0.65,
        warmup_steps=0,
        num_steps=result["num_steps"],
    )
    wanted, low, high = measured(result, 16)["rollouts_a_prompt"], 0.0, 0.34
    for _ in range(8):
        scenario = replace(scenario, always=(low + high) / 2)
        if simulate(scenario, NUM_SEEDS)["rollouts_a_prompt"][0] < wanted:
            low = scenario.always
        else:
            high = scenario.always
    return scenario


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    results = json.loads(parser.parse_args().results.read_text(encoding="utf-8"))
    scenario = fit(results["merged"])
    print(f"fitted: host_seconds={scenario.host_seconds:.4f}, always={scenario.always:.3f}\n")
    rows = []
    for method, changes in METHODS.items():
        changed = replace(scenario, num_steps=results[method]["num_steps"], **changes)
        simulated = simulate(changed, NUM_SEEDS)
        for figure, value in measured(results[method], 16).items():
            mean, spread = simulated[figure]
            row = {"method": method, "figure": figure, "measured": value, "simulated": mean, "spread": spread}
            rows.append(row | {"error": mean / value - 1})
    print(render(rows))


if __name__ == "__main__":
    main()
