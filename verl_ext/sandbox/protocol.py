"""The bytes between trainer, fork server and child.

Trainer and fork server share a control socket of messages: a request carries two descriptors, the child's end of a
private socket pair and a memory file for its output; the reply says how the child ended. Program, input and result
go through the private pair, which the fork server never reads: so the memory that it forks contains no payload.

The nonce distinguishes this execution's result from anything else. The program can read it from its process's frames,
but a forged result is only an answer, because the program never sees the expected output.
"""

import re
import struct

# The child calls these after the program ran: bound here, they cannot be replaced by the program through `builtins`.
from builtins import len, list, repr, type  # noqa: UP029
from typing import NamedTuple

NONCE_BYTES = 16
MAX_CONFIG_BYTES = 65536
PAYLOAD = struct.Struct("<16sII")  # nonce, bytes of source, bytes of input
REQUEST = b"run"
REPLY = struct.Struct(
    "<i?dq"
)  # wait status as an exit code (negative: the signal), timed out, cpu seconds, max RSS KiB

STARTED = b"S"  # sent after the child's last lock and before the program's first line
GRID, INVALID, SYNTAX, RUNTIME, MEMORY, FORBIDDEN = b"G", b"I", b"X", b"E", b"M", b"F"
MAX_DETAIL_BYTES = 400
# The largest grid, 30 x 30, is 1,861 bytes.
MAX_RESULT_BYTES = 2 * (NONCE_BYTES + 1) + 2048
MAX_SIDE = 30

_ROW = rb"\[[0-9](?:,[0-9]){0,29}\]"
_GRID = re.compile(rb"\[" + _ROW + rb"(?:," + _ROW + rb"){0,29}\]")


class Result(NamedTuple):
    """The child's messages: whether its program was started, and the kind and body of its result."""

    started: bool
    kind: bytes = b""
    body: bytes = b""


def parse_result(data: bytes, nonce: bytes) -> Result:
    """Split the bytes of the private socket; anything except the two expected frames gets an empty kind."""
    prefix = nonce + STARTED
    if not data.startswith(prefix):
        return Result(False)
    frame = data[len(prefix) :]
    if not frame.startswith(nonce) or len(data) > MAX_RESULT_BYTES:
        return Result(True)
    kind = frame[NONCE_BYTES : NONCE_BYTES + 1]
    known = kind in (GRID, INVALID, SYNTAX, RUNTIME, MEMORY, FORBIDDEN)
    return Result(True, kind, frame[NONCE_BYTES + 1 :]) if known else Result(True)


def parse_grid(body: bytes) -> tuple[tuple[int, ...], ...] | None:
    """The grid, 1-30 x 1-30 with values 0-9, or None for any other text.

    >>> parse_grid(b"[[1,2],[3,4]]")
    ((1, 2), (3, 4))
    >>> parse_grid(b"[[1,2],[3]]"), parse_grid(b"[[10]]"), parse_grid(b"[[true]]")
    (None, None, None)
    """
    if not _GRID.fullmatch(body):
        return None
    # The pattern allows only single digits, so all other characters are punctuation.
    grid = tuple(tuple(code - 48 for code in row if 48 <= code <= 57) for row in body[2:-2].split(b"],["))
    return grid if len({len(row) for row in grid}) == 1 else None


def grid_problem(value: object) -> str:
    """Why `value` is not a grid, or an empty string. Exact types: a bool, float, numpy scalar or subclass is rejected.

    Lists and ints of exactly these types run none of the program's code, such as `__len__`, `__eq__` or `__iter__`.
    """
    if type(value) is not list:
        return f"expected list[list[int]], got {type(value).__name__}"
    if not 1 <= len(value) <= MAX_SIDE:
        return f"expected 1 to {MAX_SIDE} rows, got {len(value)}"
    for row in value:
        if type(row) is not list:
            return f"expected rows of type list, got {type(row).__name__}"
        if not 1 <= len(row) <= MAX_SIDE:
            return f"expected 1 to {MAX_SIDE} columns, got {len(row)}"
        if len(row) != len(value[0]):
            return "expected rows of the same length"
        for cell in row:
            if type(cell) is not int:
                return f"expected cells of type int, got {type(cell).__name__}"
            if not 0 <= cell <= 9:
                return "expected cells from 0 to 9"
    return ""


def grid_bytes(grid: list[list[int]]) -> bytes:
    """JSON without spaces, as `parse_grid` reads it. For grids without a `grid_problem`."""
    return repr(grid).replace(" ", "").encode("ascii")
