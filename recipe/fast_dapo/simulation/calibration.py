"""Parameters of the simulator from measured runs, and measured figures to compare it with. Pure: reads three files.

    metrics.jsonl         seconds, rollouts and tokens of each step
    prompts.jsonl         passes of each prompt
    hydra/config.yaml     sizes of the curriculum and the engines

Only what a run's step times can identify is fitted: generation = call_seconds * calls + host_seconds *
rollouts, both at least 0, by least squares over the steps; calls get none of it unless that is significant, since steps
with more calls have more rollouts, and the noise of a busy machine would be split at random. That describes a run
whose generation is bound by the agent loop (short responses, a small machine); there the engine's own times are part of
`host_seconds`. Where the engine is the bottleneck, measure t(b) of it alone and set `step_seconds` and
`sequence_seconds`.
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from scipy.optimize import nnls

from recipe.fast_dapo.curriculum.grading import WHOLE_BAND
from recipe.fast_dapo.simulation.scenario import Scenario
from recipe.fast_dapo.simulation.workload import fit_pass_rates
from verl_ext.core.errors import SignalError
from verl_ext.core.json_lines import JsonLines

# An engine whose time is negligible; it is part of `host_seconds`.
_FREE_STEP_SECONDS = 1e-6


class MeasuredRun:
    """The records of one run folder; raises SignalError if they are missing or the run had no curriculum."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = folder / "hydra/config.yaml"
        for file in (config, folder / "metrics.jsonl", folder / "prompts.jsonl"):
            if not file.is_file():
                raise SignalError(
                    f"{file} is missing: expected the folder (run_dir) of a Fast DAPO run with "
                    "curriculum.record_prompts=true"
                )
        loaded = OmegaConf.load(config)
        assert isinstance(loaded, DictConfig)
        self.config = loaded
        self.metrics = [row for row in JsonLines(folder / "metrics.jsonl").read() if "timing_s/gen" in row]
        if not self.metrics or "curriculum/rounds" not in self.metrics[0]:
            raise SignalError(f"{folder}/metrics.jsonl has no step of a curriculum (curriculum.enable=true)")

    def column(self, name: str) -> np.ndarray:
        """One value per step; 0 for steps without one."""
        return np.array([float(row.get(name) or 0.0) for row in self.metrics])

    @property
    def step_seconds(self) -> np.ndarray:
        """Step times without checkpoints; verl times validation separately."""
        return self.column("timing_s/step") - self.column("timing_s/save_checkpoint")

    def sizes(self) -> dict[str, Any]:
        """The scenario values that the run's configuration fixes, under the names of `Scenario`.

        Raises:
            SignalError: If the run trains on unmixed prompts, which a simulated run drops.
        """
        c = self.config
        rollout, curriculum = c.actor_rollout_ref.rollout, c.curriculum
        if curriculum.get("train_on", "qualified") != "qualified":
            raise SignalError(
                f"{self.folder}: a run with curriculum.train_on={curriculum.train_on} cannot be simulated, which drops "
                "prompts that are not mixed. Take one of +signal=two_phase."
            )
        gen_batch_size = c.data.gen_batch_size
        return {
            # In a configuration resolved by a trainer, rollout.n is verl's n + n_continue.
            "n": curriculum.get("n") or rollout.n,
            "n_continue": curriculum.get("n_continue") or rollout.n_continue,
            "train_batch_size": c.data.train_batch_size,
            "gen_batch_size": c.data.train_batch_size if gen_batch_size is None else gen_batch_size,
            "schedule": curriculum.schedule,
            "predictor": curriculum.predictor,
            "screening": curriculum.screening,
            "screening_chunk": curriculum.screening_chunk,
            "max_staleness": curriculum.max_staleness,
            "num_engines": 1,
            "slots": rollout.max_num_seqs,
            "max_tokens": c.data.max_response_length,
            "num_steps": len(self.metrics),
            "warmup_steps": 0,
        }

    def outcomes(self) -> list[tuple[int, int]]:
        """(passes, fails) of each prompt over the run."""
        sums: dict[Any, tuple[int, int]] = {}
        for record in JsonLines(self.folder / "prompts.jsonl").read():
            if record["event"] != "trained":
                passes, fails = sums.get(record["index"], (0, 0))
                sums[record["index"]] = (passes + record["passes"], fails + record["samples"] - record["passes"])
        return list(sums.values())

    def measured(self) -> dict[str, float]:
        """Means over the run under the names of `simulation.COLUMNS`."""
        prompts = self.column("curriculum/trained").sum()
        return {
            "generation_s": float(self.column("timing_s/gen").mean()),
            "step_s": float(self.step_seconds.mean()),
            "rollouts_a_prompt": float(self.column("curriculum/generated_rollouts").sum() / prompts),
            "screening_rounds": float(self.column("curriculum/screened").mean() / self.sizes()["gen_batch_size"]),
        }


def calibrate(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Values for `Scenario` from runs of one setting: sizes of the first, times and workload of all.

    Raises:
        SignalError: if the runs are not of schedule=merged, whose calls can be counted, or have graded successes or a
            band.
    """
    first = runs[0]
    sizes = first.sizes()
    for node in (run.config.curriculum for run in runs):
        if node.get("success_threshold", 0.5) is None or list(node.get("band", WHOLE_BAND)) != list(WHOLE_BAND):
            raise SignalError(
                "calibration needs runs with a curriculum.success_threshold and band=[0, 1]: simulated rollouts pass "
                "or fail, and one of each makes a screening mixed"
            )
    if any(run.sizes()["schedule"] != "merged" for run in runs):
        raise SignalError(
            "calibration needs runs of curriculum.schedule=merged: the calls of a streaming run overlap, so its time "
            "cannot be split into calls and rollouts"
        )

    def column(name: str) -> np.ndarray:
        return np.concatenate([run.column(name) for run in runs])

    generation, calls = column("timing_s/gen"), column("curriculum/rounds")
    rollouts, tokens = column("curriculum/generated_rollouts"), column("curriculum/generated_tokens")
    call_seconds, host_seconds = _fit_times(calls, rollouts, generation)
    step_seconds = np.concatenate([run.step_seconds for run in runs])
    outcomes = [outcome for run in runs for outcome in run.outcomes()]
    pool = max(len(first.outcomes()), sizes["gen_batch_size"])
    values = sizes | {
        "call_seconds": float(call_seconds),
        "host_seconds": float(host_seconds),
        "step_seconds": _FREE_STEP_SECONDS,
        "sequence_seconds": 0.0,
        "prefill_seconds": 0.0,
        "update_seconds": float((step_seconds - generation).mean()),
        "update_rollout_seconds": 0.0,
        "num_prompts": pool,
        "median_tokens": max(1.0, float(tokens.sum() / rollouts.sum())),
        "sigma": 0.0,
        "hard_factor": 1.0,
    }
    values |= fit_pass_rates(outcomes)
    unknown = values.keys() - {f.name for f in fields(Scenario)}
    assert not unknown, unknown
    return values


def _fit_times(calls: np.ndarray, rollouts: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Seconds per call and seconds per rollout, both at least 0."""
    both = np.stack([calls, rollouts], axis=1)
    (per_call, per_rollout), residual = nnls(both, seconds)
    degrees = len(seconds) - 2
    if degrees > 0 and np.linalg.matrix_rank(both) == 2:
        standard_error = np.sqrt(residual**2 / degrees * np.linalg.inv(both.T @ both)[0, 0])
        if per_call > 2 * standard_error:
            return float(per_call), float(per_rollout)
    return 0.0, float(nnls(rollouts[:, None], seconds)[0][0])
