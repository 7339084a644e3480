"""One test for a list: it checks every entry, and names each one that fails."""

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

Item = TypeVar("Item")


def check_each(items: Iterable[Item], check: Callable[[Item], object]) -> None:
    """Run a check on every item, and fail once with all failures.

    A separate test case for each of hundreds of items costs more than the checks do.

    Args:
        items: Their `str` is their name in the message.
        check: Raises for a bad item, for example with `assert`.

    Raises:
        Failed: Some items failed, or there was nothing to check.
    """
    checked, failures = 0, []
    for item in items:
        checked += 1
        try:
            check(item)
        except (Exception, SystemExit) as error:
            failures.append(f"--- {item} ({_place(error)})\n{type(error).__name__}: {error}")
    if not checked:
        pytest.fail("there was nothing to check: the list is empty", pytrace=False)
    if failures:
        pytest.fail(f"{len(failures)} of {checked} failed:\n" + "\n".join(failures), pytrace=False)


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
