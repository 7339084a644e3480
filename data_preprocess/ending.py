"""Error handling of scripts: one line on standard error and exit code 1, without a traceback."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from verl_ext.core.errors import SignalError
from verl_ext.data.schema import DataFileError


class OutputError(SignalError):
    """The script cannot write to its output folder."""


@contextmanager
def errors_in_one_line(folder: Path, *others: type[Exception]) -> Generator[None]:
    """End the program with one line for any problem with its files, and before any work for a wrong output folder.

    Args:
        folder: The value of --local_save_dir. It need not exist and is not created.
        *others: Additional errors caused by wrong arguments.
    """
    try:
        check_output(folder)
        yield
    except DataFileError as error:
        sys.exit(f"error: {'; '.join(map(str, error.problems))}")
    except (SignalError, OSError, *others) as error:
        sys.exit(f"error: {error}")


def check_output(folder: Path) -> None:
    """Check whether files can be written into a folder, without writing any.

    Raises:
        OutputError: It or its parent is a file or not writable.
    """
    there = next(path for path in [folder.absolute(), *folder.absolute().parents] if os.path.lexists(path))
    if not there.is_dir():
        raise OutputError(f"--local_save_dir {folder}: {there} is not a folder. Name another folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(f"--local_save_dir {folder}: {there} is not writable. Name another folder.")
