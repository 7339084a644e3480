"""Several runs side by side: names, curves, numbers with differences, configurations. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_ext.report import curves
from verl_ext.report.blocks import pack

Table = Mapping[str, Sequence[float | None]]


def names_of(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart; a path that is there twice gets a number."""
    parts = [path.resolve().parts for path in paths]
    names = []
    for place, own in enumerate(parts):
        length = next(
            (
                length
                for length in range(1, len(own))
                if all(other[-length:] != own[-length:] for other in parts if other != own)
            ),
            len(own),
        )
        name = "/".join(own[-length:])
        repeats = parts[:place].count(own)
        names.append(f"{name} ({repeats + 1})" if repeats else name)
    return names


def compare_curve_blocks(tables: Sequence[Table]) -> dict[str, str]:
    """`curves-{group}`: metric -> one list of values a run; None for a run without that metric."""
    names = {name for table in tables for name in table}
    return {
        f"curves-{group}": pack(
            {
                name: [[curves.short(value) for value in table[name]] if name in table else None for table in tables]
                for name in own
            }
        )
        for group, own in curves.groups(names).items()
    }


def number_rows(numbers: Sequence[Mapping[str, float]]) -> list[list[Any]]:
    """[name, [value of each run or None], [difference to the first run or None]], in the order of first appearance."""
    names = list(dict.fromkeys(name for own in numbers for name in own))
    rows = []
    for name in names:
        values = [own.get(name) for own in numbers]
        rows.append([name, values, [_difference(value, values[0]) for value in values]])
    return rows


def _difference(value: float | None, first: float | None) -> float | None:
    return None if value is None or first is None else curves.short(value - first)
