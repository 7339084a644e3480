"""Estimate the pace of golden redaction on engines and ranks that you do not have yet; see `method/pace.py`.

    python -m recipe.golden_redaction.golden pace                                        # a 4B model on 8 H100s
    python -m recipe.golden_redaction.golden pace --vary num_engines 1 2 4 8 --vary visit_ahead false true

Every value of `PaceScenario` is an option. --vary takes several values of one, and makes a row of the table for each
combination. The times of the defaults are not measured: give those of your own run (`timing_s/gen`,
`timing_s/update_actor` and `timing_s/update_weights` in its metrics).
"""

import argparse
import dataclasses
import itertools
from typing import Any

from recipe.golden_redaction.method.pace import Pace, PaceScenario, simulate
from verl_ext.core.errors import SignalError

FIELDS = {field.name: field for field in dataclasses.fields(PaceScenario)}
TEXTS = {
    "states_per_hour": "states per hour",
    "step_seconds": "seconds per step",
    "visit_seconds": "of visits",
    "generation_seconds": "of these until the last rollout",
    "update_seconds": "of the update",
    "engines_busy": "share of the time in which an engine decodes",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pace`."""
    parser.add_argument("--vary", nargs="+", action="append", default=[], metavar=("OPTION", "VALUE"))
    for field in FIELDS.values():
        parser.add_argument(f"--{field.name}", metavar="VALUE", help=f"default {field.default}")


def run(args: argparse.Namespace) -> int:
    """Print one estimate, or a table; returns the exit status."""
    given = {name: _value(name, text) for name in FIELDS if (text := getattr(args, name)) is not None}
    varied = {name: [_value(name, text) for text in values] for name, *values in args.vary}
    if not all(varied.values()):
        raise SignalError("--vary takes an option and at least one value")
    rows = []
    for values in itertools.product(*varied.values()):
        changes = dict(zip(varied, values, strict=True))
        try:
            rows.append((changes, simulate(PaceScenario(**given | changes))))
        except ValueError as error:
            raise SignalError(str(error)) from None
    print(_table(rows) if varied else _lines(rows[0][1]))
    return 0


def _value(name: str, text: str) -> Any:
    if name not in FIELDS:
        raise SignalError(f"--vary {name}: unknown option; known: {', '.join(FIELDS)}")
    kind = FIELDS[name].type
    if kind is bool:
        if text not in ("true", "false"):
            raise SignalError(f"{name} must be true or false, got {text!r}")
        return text == "true"
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        raise SignalError(f"{name} must be a number, got {text!r}") from None


def _lines(pace: Pace) -> str:
    return "\n".join(f"  {_cell(name, getattr(pace, name)):>8}  {text}" for name, text in TEXTS.items())


def _table(rows: list[tuple[dict[str, Any], Pace]]) -> str:
    head = [*rows[0][0], *TEXTS.values()]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for changes, pace in rows:
        figures = (_cell(name, getattr(pace, name)) for name in TEXTS)
        cells = [*(str(value).lower() for value in changes.values()), *figures]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name: str, value: float) -> str:
    if name == "engines_busy":
        return f"{100 * value:.0f} %"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
