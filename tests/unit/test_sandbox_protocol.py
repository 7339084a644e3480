"""What the trainer's process believes of what a program's process tells it."""

import json
import signal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_ext.sandbox import protocol
from verl_ext.sandbox.fork_server import classify
from verl_ext.sandbox.policy import SandboxPolicy
from verl_ext.sandbox.protocol import GRID, STARTED, grid_bytes, grid_problem, parse_grid
from verl_ext.sandbox.results import Execution, ProgramResult, Status, deciding_status, judge, label

NONCE = b"n" * protocol.NONCE_BYTES
START = NONCE + STARTED

# A busy machine must not make a test fail.
crowded = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

sides = st.integers(1, 30)
grids = st.tuples(sides, sides).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(0, 9), min_size=size[1], max_size=size[1]), min_size=size[0], max_size=size[0]
    )
)


def _classify(data: bytes, code: int = 0, timed_out: bool = False, cpu: float = 0.0) -> Status:
    return classify(data, NONCE, code, timed_out, cpu, SandboxPolicy())[0]


@crowded
@given(grids)
def test_every_grid_survives_the_way(grid: list[list[int]]):
    assert grid_problem(grid) == ""
    assert parse_grid(grid_bytes(grid)) == tuple(map(tuple, grid))
    assert len(2 * START + grid_bytes(grid)) <= protocol.MAX_RESULT_BYTES


@crowded
@given(st.binary(max_size=40) | st.text("[],0123456789-. te", max_size=40).map(str.encode))
def test_whatever_is_parsed_is_a_grid(body: bytes):
    grid = parse_grid(body)
    if grid is not None:
        rows = [list(row) for row in grid]
        assert grid_problem(rows) == ""
        assert json.loads(body) == rows


@pytest.mark.parametrize(
    "body",
    [
        *(
            "",
            "[]",
            "[[]]",
            "[[1],[]]",
            "[[1, 2]]",
            "[[10]]",
            "[[-1]]",
            "[[1.0]]",
            "[[true]]",
            "[[1]]\n",
            "[[1],[1,2]]",
        ),
        *("[" + ",".join(["[1]"] * 31) + "]", "[[" + ",".join(["1"] * 31) + "]]", "[[\u0661]]"),
    ],
)
def test_anything_else_is_none(body: str):
    assert parse_grid(body.encode()) is None


@crowded
@given(
    st.recursive(
        st.integers(-2, 12) | st.booleans() | st.floats() | st.none() | st.text(max_size=2),
        lambda children: st.lists(children, max_size=4) | st.tuples(children),
        max_leaves=12,
    )
)
def test_the_check_in_the_child_and_the_parser_agree(value: object):
    if grid_problem(value) == "":
        assert parse_grid(repr(value).replace(" ", "").encode()) == tuple(map(tuple, value))
    else:
        assert type(value) is not list or parse_grid(repr(value).replace(" ", "").encode()) is None


def test_an_end_before_the_start_is_never_the_programs_fault():
    for data in (b"", b"x", NONCE, NONCE + GRID + b"[[1]]", b"x" * 99):
        for code in (0, 1, 70, -signal.SIGKILL, -signal.SIGSYS):
            assert _classify(data, code) is Status.INFRASTRUCTURE_ERROR


@crowded
@given(st.binary(max_size=60), st.integers(-64, 255), st.booleans(), st.floats(0, 9))
def test_an_end_after_the_start_always_is(data: bytes, code: int, timed_out: bool, cpu: float):
    assert _classify(START + data, code, timed_out, cpu) is not Status.INFRASTRUCTURE_ERROR


@pytest.mark.parametrize(
    ("after_start", "code", "timed_out", "cpu", "status"),
    [
        (NONCE + b"G[[1]]", 0, False, 0.1, Status.OK),
        (NONCE + b"G[[1]]", 0, True, 0.1, Status.TIMEOUT),
        (NONCE + b"G[[1]]", -signal.SIGSEGV, False, 0.1, Status.KILLED),
        (NONCE + b"G[[1]]", 3, False, 0.1, Status.RUNTIME_ERROR),
        (NONCE + b"G[[1]]" + NONCE + b"G[[2]]", 0, False, 0.1, Status.INVALID_OUTPUT),
        (b"x" * 16 + b"G[[1]]", 0, False, 0.1, Status.INVALID_OUTPUT),
        (NONCE + b"?[[1]]", 0, False, 0.1, Status.INVALID_OUTPUT),
        (NONCE + b"M", 0, False, 0.1, Status.MEMORY),
        (NONCE + b"F", 0, False, 0.1, Status.FORBIDDEN),
        (b"x" * 5000, 1, False, 0.1, Status.OUTPUT_LIMIT),
        (b"", 0, False, 0.1, Status.RUNTIME_ERROR),
        (b"", -signal.SIGXCPU, False, 2.0, Status.TIMEOUT),
        (b"", -signal.SIGKILL, False, 3.0, Status.TIMEOUT),
        (b"", -signal.SIGKILL, False, 0.1, Status.KILLED),
        (b"", -signal.SIGXFSZ, False, 0.1, Status.OUTPUT_LIMIT),
        (b"", -signal.SIGSYS, False, 0.1, Status.FORBIDDEN),
    ],
)
def test_how_it_ended_decides(after_start: bytes, code: int, timed_out: bool, cpu: float, status: Status):
    assert _classify(START + after_start, code, timed_out, cpu) is status


def test_the_comparison_says_what_differs():
    right = judge(Execution(Status.OK, ((1, 2),)), ((1, 2),))
    assert right.status is Status.OK
    cells = judge(Execution(Status.OK, ((1, 2),)), ((1, 3),))
    assert (cells.status, cells.detail, cells.grid) == (Status.WRONG_OUTPUT, "other cells", ((1, 2),))
    assert judge(Execution(Status.OK, ((1, 2),)), ((1,), (2,))).detail == "size 1x2 instead of 2x1"
    assert judge(Execution(Status.TIMEOUT), ((1,),)).status is Status.TIMEOUT


def test_an_infrastructure_error_is_no_reward_of_zero():
    ok, wrong, unknown = (Execution(s) for s in (Status.OK, Status.WRONG_OUTPUT, Status.INFRASTRUCTURE_ERROR))
    assert ProgramResult((ok, ok)).reward == 1.0
    assert ProgramResult((ok, wrong)).reward == 0.0
    assert ProgramResult((ok, unknown)).reward is None
    assert ProgramResult((unknown,)).reward is None
    assert ProgramResult(()).reward is None
    # If failures were labelled here and possible passes were not, the remaining labels would be too low.
    assert ProgramResult((wrong, unknown)).reward is None
    assert not ProgramResult((ok, unknown)).solved


@pytest.mark.parametrize(
    ("statuses", "decides", "expected"),
    [
        (["ok", "ok"], "ok", 1.0),
        (["ok", "timeout", "wrong_output"], "timeout", 0.0),
        (["ok", "infrastructure_error", "wrong_output"], "infrastructure_error", None),
        (["infrastructure_error"], "infrastructure_error", None),
        ([], "infrastructure_error", None),
    ],
)
def test_one_status_decides_the_label(statuses: list[str], decides: str, expected: float | None):
    assert deciding_status(iter(statuses)) == decides
    assert label(iter(statuses)) == expected
