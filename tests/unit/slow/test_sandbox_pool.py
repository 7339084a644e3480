"""The pool: dead servers, many programs at once, no remaining files or processes; and the command line."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.__main__ import main
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.results import Status

# SANDBOX_PROGRAMS=1000 for the long version.
NUM_PROGRAMS = int(os.environ.get("SANDBOX_PROGRAMS", "100"))
IDENTITY = "def solve(g): return g"
SLEEP = "import time\ndef solve(g): time.sleep(1000)"


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(SandboxPolicy(cpu_seconds=5.0), workers=1) as pool:
        yield pool


def _descendants(of: int) -> set[int]:
    parents = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set(), {of}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def _wait_for(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_results_say_what_protected_them(pool: SandboxPool):
    execution = pool.run(IDENTITY, [[1, 2]])
    assert execution.grid == ((1, 2),)
    assert execution.isolation == pool.isolation
    assert pool.isolation["seccomp"] == "ok"


@pytest.mark.parametrize(
    ("program", "status", "detail"),
    [
        ("def solve(g): return [[9]]", Status.OK, ""),
        ("def solve(g): return [[8]]", Status.WRONG_OUTPUT, "other cells"),
        ("def solve(g): return 9", Status.INVALID_OUTPUT, "got int"),
        ("def solve(g) return", Status.SYNTAX_ERROR, "SyntaxError"),
        ("def solve(g): return \x00", Status.SYNTAX_ERROR, "null bytes"),
        ("def solve(g): return g[7]", Status.RUNTIME_ERROR, "IndexError"),
        ("x = 1", Status.RUNTIME_ERROR, "no function solve"),
        ("raise SystemExit", Status.RUNTIME_ERROR, "SystemExit"),
        ("#" + "x" * 70000, Status.FORBIDDEN, "70001 bytes"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass A: x: int\ndef solve(g): return [[A(9).x]]",
            Status.OK,
            "",
        ),
        ("import textwrap, calendar, colorsys\ndef solve(g): return [[9]]", Status.OK, ""),
        ("import numpy as np\ndef solve(g): return np.linalg.inv(np.eye(1) / 9).astype(int).tolist()", Status.OK, ""),
        ("from numpy.lib.stride_tricks import sliding_window_view\ndef solve(g): return [[9]]", Status.OK, ""),
    ],
)
def test_programs_end_with_the_status_that_fits(pool: SandboxPool, program: str, status: Status, detail: str):
    (pair,) = pool.check(program, [Pair([[1]], [[9]])]).pairs
    assert pair.status is status, pair.detail
    assert detail in pair.detail


def test_what_a_program_prints_is_kept_from_its_beginning(pool: SandboxPool):
    execution = pool.run("import sys\nprint('hello')\nprint('there', file=sys.stderr)\ndef solve(g): return g", [[1]])
    assert "hello" in execution.printed
    assert "there" in execution.printed
    assert execution.status is Status.OK


def test_a_program_that_waits_is_ended_by_the_clock():
    with SandboxPool(SandboxPolicy(wall_seconds=4.0), workers=1) as pool:
        assert pool.run(SLEEP, [[1]]).status is Status.TIMEOUT


def test_a_program_that_closes_its_answer_is_still_timed():
    program = "import os, time\ndef solve(g):\n os.close(3)\n while True: pass"
    with SandboxPool(SandboxPolicy(cpu_seconds=0.3), workers=1) as quick:
        execution = quick.run(program, [[1]])
    assert execution.status is Status.TIMEOUT
    assert execution.cpu_seconds < 0.9  # the kernel's own limit counts whole seconds


def test_the_rest_of_a_failed_program_can_be_left_out(pool: SandboxPool):
    pairs = [Pair([[1]], [[1]]), Pair([[1]], [[2]]), Pair([[1]], [[1]])]
    assert [pair.status for pair in pool.check(IDENTITY, pairs).pairs] == ["ok", "wrong_output", "ok"]
    (short,) = pool.check_many([(IDENTITY, pairs)], stop_at_first_failure=True)
    assert [pair.status for pair in short.pairs] == ["ok", "wrong_output"]
    assert short.reward == 0.0


def test_input_that_is_no_grid_is_the_callers_mistake(pool: SandboxPool):
    with pytest.raises(ValueError, match="input_grid: expected cells of type int, got bool"):
        pool.run(IDENTITY, [[True]])


def test_the_pair_of_the_trainer_is_not_changed_by_the_program(pool: SandboxPool):
    pair = Pair([[1, 2]], [[9, 2]])
    assert pool.check("def solve(g):\n g[0][0] = 9\n return g", [pair, pair]).solved
    assert pair == Pair([[1, 2]], [[9, 2]])


@pytest.mark.parametrize("victim", ["supervisor", "server"])
def test_a_server_that_dies_makes_its_run_an_infrastructure_error_and_is_started_anew(victim: str):
    with SandboxPool(SandboxPolicy(), workers=1) as pool:
        (supervisor,) = pool.pids()
        assert _wait_for(lambda: len(_descendants(supervisor)) == 1)
        (server,) = _descendants(supervisor)
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(pool.check, SLEEP, [Pair([[1]], [[1]])])
            assert _wait_for(lambda: len(_descendants(supervisor)) == 2)
            processes = {supervisor, *_descendants(supervisor)}
            os.kill(supervisor if victim == "supervisor" else server, signal.SIGKILL)
            result = running.result(30)
        assert result.pairs[0].status is Status.INFRASTRUCTURE_ERROR
        assert result.reward is None
        assert pool.counts[Status.INFRASTRUCTURE_ERROR] == 1
        assert pool.restarts == 1
        assert _wait_for(lambda: not any(Path(f"/proc/{process}/cmdline").exists() for process in processes))
        assert pool.check(IDENTITY, [Pair([[1]], [[1]])]).solved
        assert pool.pids() != [supervisor]


@pytest.mark.parametrize("stopped", ["server", "both"])
def test_a_server_that_is_stopped_costs_no_more_than_the_wall_clock(stopped: str):
    with SandboxPool(SandboxPolicy(wall_seconds=4.0), workers=1) as pool:
        (supervisor,) = pool.pids()
        assert _wait_for(lambda: len(_descendants(supervisor)) == 1)
        processes = {supervisor, *_descendants(supervisor)}
        for process in processes - ({supervisor} if stopped == "server" else set()):
            os.kill(process, signal.SIGSTOP)
        started = time.monotonic()
        execution = pool.run(IDENTITY, [[1]])
        assert 3.9 < time.monotonic() - started < 5.0
        assert execution.status is Status.INFRASTRUCTURE_ERROR
        assert not execution.grid
        assert pool.restarts == 1
        assert _wait_for(lambda: not any(Path(f"/proc/{process}/cmdline").exists() for process in processes))
        assert pool.run(IDENTITY, [[1]]).status is Status.OK


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_the_standard_library_that_needs_c_libraries_works(python: str):
    if not os.access(python, os.X_OK):
        pytest.skip(f"there is no {python}")
    program = """
import bz2, ctypes, hashlib, lzma, os, sqlite3, xml.etree.ElementTree, zlib, zoneinfo
def solve(g):
    for module in (bz2, lzma, zlib):
        assert module.decompress(module.compress(b"1" * 99)) == b"1" * 99
    assert hashlib.sha256(b"").hexdigest()[:4] == "e3b0" and os.path.expanduser("~") == "/"
    table = sqlite3.connect(":memory:")
    table.execute("create table grid (cell)")
    table.executemany("insert into grid values (?)", [(cell,) for cell in g[0]])
    return [[sum(cell for cell, in table.execute("select cell from grid"))]]
"""
    with SandboxPool(SandboxPolicy(cpu_seconds=5.0), workers=1, python=python) as pool:
        execution = pool.run(program, [[1, 2, 3]])
    assert (execution.detail, execution.grid) == ("", ((6,),))


def test_input_is_empty_and_waits_for_nothing(pool: SandboxPool):
    execution = pool.run("import sys\ndef solve(g): return [[len(sys.stdin.read())]]", [[1]])
    assert (execution.detail, execution.grid) == ("", ((0,),))


def test_an_idle_server_that_died_costs_nobody_a_result():
    with SandboxPool(workers=1) as pool:
        os.kill(pool.pids()[0], signal.SIGKILL)
        assert _wait_for(lambda: Path(f"/proc/{pool.pids()[0]}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert pool.run(IDENTITY, [[1]]).status is Status.OK
        assert pool.restarts == 1


def test_closing_ends_everything_at_once():
    before = _descendants(os.getpid())
    pool = SandboxPool(SandboxPolicy(), workers=2)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(pool.run, SLEEP, [[1]])
        assert _wait_for(lambda: len(_descendants(os.getpid()) - before) >= 3)
        started = time.monotonic()
        pool.close()
        assert running.result(30).status is Status.INFRASTRUCTURE_ERROR
    assert time.monotonic() - started < 20
    assert _wait_for(lambda: not _descendants(os.getpid()) - before)
    with pytest.raises(RuntimeError, match="closed"):
        pool.run(IDENTITY, [[1]])


def test_everything_ends_with_a_trainer_that_is_killed():
    code = (
        "from verl_ext.sandbox.pool import SandboxPool; import os, time\n"
        "pool = SandboxPool(workers=1); child = os.fork()\n"  # a fork that keeps the trainer's descriptors open
        "if child == 0: time.sleep(60)\n"
        "print(pool.pids()[0], child, flush=True); time.sleep(60)"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    supervisor, fork = map(int, trainer.stdout.readline().split())
    processes = {supervisor, *_descendants(supervisor)}
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    assert _wait_for(lambda: not any(Path(f"/proc/{process}/cmdline").exists() for process in processes))
    os.kill(fork, signal.SIGKILL)


def test_a_server_outlives_the_thread_that_started_it(pool: SandboxPool):
    with SandboxPool(workers=2) as other:
        thread = threading.Thread(target=lambda: other.run("import numpy\n" + IDENTITY, [[1]]))
        thread.start()
        thread.join()
        time.sleep(0.1)
        assert other.run("import numpy\n" + IDENTITY, [[1]]).status is Status.OK
        assert other.restarts == 0


def test_a_forked_process_may_not_use_its_parents_pool(pool: SandboxPool):
    child = os.fork()
    if child == 0:
        try:
            pool.run(IDENTITY, [[1]])
        except RuntimeError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_an_interpreter_that_is_not_there_is_an_error():
    with pytest.raises(SandboxUnavailableError, match="does not start"):
        SandboxPool(workers=1, python="/nowhere/python")


def test_many_programs_at_once_neither_mix_nor_leave_anything():
    """Every fifth program crashes, floods or forks; every other one must be given its own answer."""
    before = _descendants(os.getpid())
    bad = ["import os\nos.abort()", "while True: print('x' * 999)", "import os\nos.fork()", "import os\nos._exit(0)"]
    rng = random.Random(0)

    def job(index: int) -> tuple[str, list[Pair]]:
        if index % 5 == 4:
            return bad[index // 5 % 4], [Pair([[1]], [[1]])]
        digits = [index // 10**place % 10 for place in range(4)]
        grid = [[rng.randrange(10) for _ in range(4)] for _ in range(3)]
        return f"def solve(g): return [*g, {digits}]", [Pair(grid, [*grid, digits]), Pair(grid[:1], [grid[0], digits])]

    jobs = [job(index) for index in range(NUM_PROGRAMS)]
    with SandboxPool(SandboxPolicy(cpu_seconds=5.0), workers=8) as pool:
        pool.run(IDENTITY, [[1]])
        # More callers than workers, as an asynchronous trainer has.
        with ThreadPoolExecutor(min(NUM_PROGRAMS, 64)) as callers:
            results = list(callers.map(lambda one: pool.check(*one), jobs))
        files = len(os.listdir("/proc/self/fd"))
        pool.check_many(jobs[:20])
        assert len(os.listdir("/proc/self/fd")) == files
        assert [result.solved for result in results] == [index % 5 != 4 for index in range(NUM_PROGRAMS)]
        assert pool.counts[Status.INFRASTRUCTURE_ERROR] == 0
        # Idle servers have no children: no zombie, and nothing that outlived its program.
        assert all(len(_descendants(pid)) == 1 for pid in pool.pids())
    assert _wait_for(lambda: not _descendants(os.getpid()) - before)


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    task = {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3]], "output": [[4]]}]}
    file = tmp_path / "tasks.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"one": task, "bad": {"train": [{"input": [[1]]}]}}).encode()))
    return file


@pytest.mark.parametrize(
    ("program", "pairs", "statuses", "code"),
    [
        ("def solve(g): return [[g[0][0] + 1]]", "all", {"train 0": "ok", "test 0": "ok"}, 0),
        ("def solve(g): return [[2]]", "all", {"train 0": "ok", "test 0": "wrong_output"}, 1),
        ("def solve(g): return [[2]]", "train", {"train 0": "ok"}, 0),
    ],
)
def test_the_command_line_says_what_came_of_every_pair(task_file, tmp_path, capsys, program, pairs, statuses, code):
    solution = tmp_path / "solution.py"
    solution.write_text(program)
    arguments = ["--task-file", str(task_file), "--task", "one", "--solution", str(solution), "--pairs", pairs]
    assert main([*arguments, "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert {pair["pair"]: pair["status"] for pair in report["pairs"]} == statuses
    assert report["solved"] == (code == 0)
    assert report["isolation"]["seccomp"] == "ok"


@pytest.mark.parametrize(
    ("task", "message"),
    [("two", "has no task 'two'"), ("bad", "train pair without input or output")],
    ids=["absent", "broken"],
)
def test_the_command_line_refuses_what_it_cannot_judge(task_file, capsys, task, message):
    assert main(["--task-file", str(task_file), "--task", task, "--solution", "absent.py"]) == 2
    assert re.search(message, capsys.readouterr().err)
