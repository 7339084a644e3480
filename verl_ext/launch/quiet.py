"""Hides lines that verl prints at every start and that say nothing about the run."""

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def without_lines(module: ModuleType, *beginnings: str) -> Iterator[None]:
    """Hide what a module prints with one of these beginnings; its other lines are printed as before.

    Args:
        module: The module that calls `print`, in this process.
        beginnings: Of the first value that it prints.
    """

    def say(*values: Any, **options: Any) -> None:
        if not (values and str(values[0]).startswith(beginnings)):
            print(*values, **options)

    module.print = say  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del module.print  # pyright: ignore[reportAttributeAccessIssue]
