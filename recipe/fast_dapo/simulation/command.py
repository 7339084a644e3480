"""Estimate the cost of a curriculum: simulated runs with the real controller, on any number of engines.

    python -m recipe.fast_dapo.simulate                                            # the defaults: a 7B model, 8 engines
    python -m recipe.fast_dapo.simulate --num_engines 64 --gen_batch_size 1536 --train_batch_size 512
    python -m recipe.fast_dapo.simulate --vary schedule merged streaming --vary gen_batch_size 96 192 384
    python -m recipe.fast_dapo.simulate --calibrate outputs/fast_dapo_demo --vary n 2 4 8 --group_size 16
    python -m recipe.fast_dapo.simulate --calibrate RUN_DIR --compare OTHER_RUN_DIR

Every value of `Scenario` (simulation.py) is an option; --vary takes several values of one and makes a row of the table
for each combination. --calibrate takes the times, pass rates and sizes from runs with curriculum.schedule=merged, and
options on the command line override these. --compare simulates the settings of other runs with these times and pass
rates, and prints measured against simulated. docs/simulation.md has results and assumptions.
"""

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recipe.fast_dapo.curriculum.data_controller import TooManyGenerationBatches
from recipe.fast_dapo.simulation.calibration import MeasuredRun, calibrate
from recipe.fast_dapo.simulation.scenario import Scenario
from recipe.fast_dapo.simulation.simulation import COLUMNS, CurriculumSimulation, summarize
from verl_ext.core.errors import SignalError

_COMPARED = ("generation_s", "step_s", "rollouts_a_prompt", "screening_rounds")
# Settings taken from the compared run; times and pass rates stay those of the calibration.
_SIZES = (
    *("n", "n_continue", "train_batch_size", "gen_batch_size", "schedule", "predictor", "screening"),
    *("screening_chunk", "max_staleness", "num_steps", "warmup_steps"),
)
_PERCENT = ("generation_share", "qualified_share", "slots_used")


def simulate(scenario: Scenario, num_seeds: int) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over seeds of what `summarize` returns."""
    results = []
    for seed in range(scenario.seed, scenario.seed + num_seeds):
        seeded = dataclasses.replace(scenario, seed=seed)
        results.append(summarize(CurriculumSimulation(seeded).run(), seeded))
    columns = {name: [result[name] for result in results] for name in COLUMNS}
    return {name: (float(np.mean(values)), float(np.std(values))) for name, values in columns.items()}


def sweep(
    scenario: Scenario, varied: dict[str, list[Any]], num_seeds: int, group_size: int | None = None
) -> list[dict[str, Any]]:
    """One row per combination: the varied values and the means; with a group size, n_continue is group_size - n."""
    rows = []
    for values in itertools.product(*varied.values()):
        changes = dict(zip(varied, values, strict=True))
        if group_size is not None:
            changes |= {"n_continue": group_size - changes.get("n", scenario.n)}
        means = simulate(dataclasses.replace(scenario, **changes), num_seeds)
        rows.append(changes | {name: mean for name, (mean, _) in means.items()})
    return rows


def compare(scenario: Scenario, runs: Sequence[MeasuredRun], num_seeds: int) -> list[dict[str, Any]]:
    """Measured and simulated figures of runs, with the error of the simulation."""
    rows = []
    for run in runs:
        sizes = run.sizes()
        simulated = simulate(dataclasses.replace(scenario, **{name: sizes[name] for name in _SIZES}), num_seeds)
        measured = run.measured()
        for name in _COMPARED:
            mean, spread = simulated[name]
            error = mean / measured[name] - 1
            row = {"run": run.folder.name, "figure": name, "measured": measured[name]}
            rows.append(row | {"simulated": mean, "spread": spread, "error": error})
    return rows


def render(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of rows with the same names."""
    names = list(rows[0])
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(_cell(name, row[name]) for name in names)} |" for row in rows]
    return "\n".join(lines)


def describe(result: dict[str, tuple[float, float]]) -> str:
    """One scenario as text, one line per figure."""
    lines = []
    for name, text in COLUMNS.items():
        mean, spread = result[name]
        lines.append(f"  {_cell(name, mean):>12}  {text}" + (f" (± {_cell(name, spread)})" if spread else ""))
    return "\n".join(lines)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str) or value is None:
        return str(value)
    if name in _PERCENT:
        return f"{100 * value:.0f} %"
    if name == "error":
        return f"{100 * value:+.1f} %"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrate", type=Path, nargs="+", metavar="RUN_DIR", help="runs to take parameters from")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="RUN_DIR", help="runs to compare with")
    parser.add_argument("--vary", nargs="+", action="append", default=[], metavar=("OPTION", "VALUE"))
    parser.add_argument("--group_size", type=int, help="with --vary n: rollouts per trained prompt, n + n_continue")
    parser.add_argument("--seeds", type=int, default=1, help="number of simulations to average")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, help="figures of the table (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    for field in dataclasses.fields(Scenario):
        parser.add_argument(f"--{field.name}", type=lambda text, name=field.name: _value(name, text))
    return parser


def _value(name: str, text: str) -> Any:
    """An option's value in the type of its default; raises ArgumentTypeError."""
    fields = {field.name: field for field in dataclasses.fields(Scenario)}
    if name not in fields:
        raise argparse.ArgumentTypeError(f"--vary {name}: unknown option; known: {', '.join(fields)}")
    if name == "max_staleness" and text in ("null", "None"):
        return None
    kind = type(fields[name].default)
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{name} must be {kind.__name__}, got {text!r}") from None


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(argv)
    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(Scenario) if getattr(args, f.name) is not None}
    if args.compare and not args.calibrate:
        parser.error("--compare needs --calibrate, for times and pass rates")
    if args.compare and args.vary:
        parser.error("--compare and --vary exclude each other: runs are compared with their own settings")
    if args.group_size is not None and (not any(name == "n" for name, *_ in args.vary) or args.n_continue):
        parser.error("--group_size sets n_continue for each n of --vary n: use both, without --n_continue")
    if args.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {args.seeds}")
    try:
        varied = {name: [_value(name, text) for text in values] for name, *values in args.vary}
        if not all(varied.values()):
            parser.error("--vary takes an option and at least one value")
        calibrated = calibrate([MeasuredRun(folder) for folder in args.calibrate]) if args.calibrate else {}
        scenario = Scenario(**calibrated | given)
        if calibrated and not args.json:
            print("Taken from the runs: " + ", ".join(f"{k}={_cell('', v)}" for k, v in calibrated.items()) + "\n")
        if args.compare:
            rows = compare(scenario, [MeasuredRun(folder) for folder in args.compare], args.seeds)
        elif varied:
            rows = sweep(scenario, varied, args.seeds, args.group_size)
            shown = [*varied, *(args.columns or COLUMNS)]
            rows = [{name: row[name] for name in shown} for row in rows]
        else:
            result = simulate(scenario, args.seeds)
            print(json.dumps(result, indent=2) if args.json else describe(result))
            return
    except (ValueError, TooManyGenerationBatches, RuntimeError, SignalError, argparse.ArgumentTypeError) as error:
        sys.exit(f"error: {error}")
    print(json.dumps(rows, indent=2) if args.json else render(rows))


if __name__ == "__main__":
    main()
