"""The columns of an unknown data set: nested ones, and which of them the rows have."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from verl_ext.data.row_report import SourceError

# Marks a column that a row does not have, as opposed to a null.
MISSING = object()
_LISTED = 30


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column, `MISSING` if the row has no such column.

    Args:
        row: A row, whose columns may contain records and lists.
        column: A name; `a.b` is the field b of the record in a, and `a.0` the first entry of the list in a.

    Example:
        >>> value_at({"messages": [{"content": "1+1?"}]}, "messages.0.content")
        '1+1?'
    """
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return MISSING
    return value


def column_names(row: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of a row's columns for `value_at`; a record's fields instead of the record."""
    for name, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from column_names(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


class Columns:
    """Records which columns the rows of a file have.

    Args:
        needed: The option and the name of each column that at least one row must have.
    """

    def __init__(self, needed: Iterable[tuple[str, str]]) -> None:
        self.names: dict[str, None] = {}  # in the order of their first rows
        self._missing = list(needed)

    def watch(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the rows and record their columns."""
        for row in rows:
            self.names.update(dict.fromkeys(column_names(row)))
            self._missing = [(option, name) for option, name in self._missing if value_at(row, name) is MISSING]
            yield row

    def check(self, source: str) -> None:
        """Raises SourceError if no row had a needed column, unless there were no rows."""
        if self._missing and self.names:
            wrong = " and ".join(f"--{option} {name}" for option, name in self._missing)
            raise SourceError(f"{source}: no row has the column of {wrong}. It has: {listed(self.names)}.")


def listed(names: Iterable[str]) -> str:
    """The first names, and the number of further ones."""
    names = list(names)
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
