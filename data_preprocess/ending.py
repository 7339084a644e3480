"""How a script ends when something is wrong: one line on standard error and exit code 1, and no traceback."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from verl_ext.core.errors import SignalError
from verl_ext.data.schema import DataFileError


class OutputError(SignalError):
    """Nothing can be written where the script is to write."""


@contextmanager
def errors_in_one_line(folder: Path, *others: type[Exception]) -> Generator[None]:
    """End the program with one line for whatever is wrong with its files, and before any work for a wrong output.

    Args:
        folder: What --local_save_dir names. It need not be there yet and is not made.
        *others: Errors that are a wrong argument's, too.
    """
    try:
        check_output(folder)
        yield
    except DataFileError as error:
        sys.exit(f"error: {'; '.join(map(str, error.problems))}")
    except (SignalError, OSError, *others) as error:
        sys.exit(f"error: {error}")


def check_output(folder: Path) -> None:
    """Find out whether files can be written into a folder, without writing any.

    Raises:
        OutputError: It, or what it would be made in, is a file or may not be written to.
    """
    there = next(path for path in [folder.absolute(), *folder.absolute().parents] if os.path.lexists(path))
    if not there.is_dir():
        raise OutputError(f"--local_save_dir {folder}: {there} is not a folder. Name another folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(f"--local_save_dir {folder}: {there} may not be written to. Name another folder.")
