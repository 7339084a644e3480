"""Programs on a server of Sandbox Fusion: every ending gets its status, and a server's failure is never a label.

The server speaks run_code as bytedance/SandboxFusion does and really runs what it is sent, with this interpreter.
"""

import json
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from verl.utils.reward_score.sandbox_fusion.utils import call_sandbox_api

from recipe.golden_redaction.sandbox import make_executor
from recipe.golden_redaction.settings import SandboxSettings
from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.fusion import SandboxFusionExecutor, read_response
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.results import Status

PAIR = Pair([[1]], [[9]])
NINE = "def solve(g): return [[9]]"


class FusionServer(ThreadingHTTPServer):
    """A run_code without any isolation.

    Attributes:
        answer: Status and body to answer with instead of running anything; None: run it.
        requests: Bodies of the requests.
        most: The largest number of requests that were answered at the same time.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: tuple[int, Any] | None = None
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.now = self.most = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/run_code"


class _Handler(BaseHTTPRequestHandler):
    server: FusionServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append(request)
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        try:
            status, body = self.server.answer or (200, run_code(request))
        finally:
            with self.server.lock:
                self.server.now -= 1
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def run_code(request: dict[str, Any]) -> dict[str, Any]:
    """What Sandbox Fusion's run_python, run_command_bare and parse_run_status do."""
    assert request["language"] == "python"
    memory = request["memory_limit_MB"] << 20
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(request["code"])
        file.flush()
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", file.name],
                input=request["stdin"].encode(),
                capture_output=True,
                timeout=request["run_timeout"],
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
            )
        except subprocess.TimeoutExpired:
            return _response("Failed", {"status": "TimeLimitExceeded", "execution_time": request["run_timeout"]})
    return _response("Failed" if done.returncode else "Success", {
        "status": "Finished", "execution_time": 0.1, "return_code": done.returncode,
        "stdout": done.stdout[: 1 << 20].decode(), "stderr": done.stderr[: 1 << 20].decode(),
    })  # fmt: skip


def _response(status: str, run_result: dict[str, Any] | None) -> dict[str, Any]:
    return {"status": status, "message": "", "compile_result": None, "run_result": run_result}


@pytest.fixture(scope="module")
def shared_server() -> Iterator[FusionServer]:
    server = FusionServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server(shared_server: FusionServer) -> Iterator[FusionServer]:
    shared_server.requests.clear()
    shared_server.most = 0
    yield shared_server
    shared_server.answer = None


@pytest.fixture(scope="module")
def executors(shared_server: FusionServer) -> Iterator[dict[str, Executor]]:
    """Both executors, as settings make them."""
    limits: dict[str, Any] = {"cpu_seconds": 1.0, "wall_seconds": 3.0, "memory_mib": 256, "workers": 2}
    server = SandboxSettings(executor="sandbox_fusion", url=shared_server.url, **limits)
    with make_executor(SandboxSettings(**limits)) as local, make_executor(server) as fusion:
        yield {"local": local, "sandbox_fusion": fusion}


@pytest.fixture(scope="module")
def fusion(executors: dict[str, Executor]) -> Executor:
    return executors["sandbox_fusion"]


@pytest.mark.parametrize(
    ("program", "status", "detail"),
    [
        (NINE, Status.OK, ""),
        ("from __future__ import annotations\ndef solve(g: Grid): return [[9]]", Status.OK, ""),
        ("print('[[7]]')\ndef solve(g):\n print('[[8]]', end='')\n return [[9]]", Status.OK, ""),
        ("list = len = type = print = None\ndef solve(g): return [[9]]", Status.OK, ""),
        ("def solve(g): return [[8]]", Status.WRONG_OUTPUT, "other cells"),
        ("def solve(g): return [[9, 9]]", Status.WRONG_OUTPUT, "size 1x2 instead of 1x1"),
        ("def solve(g): return 9", Status.INVALID_OUTPUT, "got int"),
        ("def solve(g): return ([9],)", Status.INVALID_OUTPUT, "got tuple"),
        ("def solve(g): return [[True]]", Status.INVALID_OUTPUT, "got bool"),
        ("def solve(g): return [[10]]", Status.INVALID_OUTPUT, "from 0 to 9"),
        ("def solve(g) return", Status.SYNTAX_ERROR, "SyntaxError"),
        ("def solve(g):\nreturn", Status.SYNTAX_ERROR, "IndentationError"),
        ("def solve(g): return [[9]]\nx = (", Status.SYNTAX_ERROR, "SyntaxError"),
        ("def solve(g): return [[9]]\nx = ''''", Status.SYNTAX_ERROR, "SyntaxError"),
        ("def solve(g): return g[7]", Status.RUNTIME_ERROR, "IndexError"),
        ("def solve(g): raise SyntaxError('mine')", Status.RUNTIME_ERROR, "mine"),
        ("x = 1", Status.RUNTIME_ERROR, "no function solve"),
        ("1 / 0", Status.RUNTIME_ERROR, "ZeroDivisionError"),
        ("def solve(g): return [[0] * (1 << 40)]", Status.MEMORY, "MemoryError"),
        ("def solve(g):\n while True: pass", Status.TIMEOUT, ""),
        ("def solve(g):\n while True: print('x' * 999)", Status.OUTPUT_LIMIT, ""),
        ("def solve(g):\n import ctypes\n ctypes.string_at(0)", Status.KILLED, "signal 11"),
        ("#" + "x" * 70000, Status.FORBIDDEN, "70001 bytes"),
    ],
)
@pytest.mark.parametrize("name", ["local", "sandbox_fusion"])
def test_both_executors_give_a_program_the_same_status(
    executors: dict[str, Executor], name: str, program: str, status: Status, detail: str
):
    if (name, status) == ("sandbox_fusion", Status.OUTPUT_LIMIT):
        program = "def solve(g):\n for _ in range(99): print('x' * 999)\n return [[9]]"  # the server has no such limit
    executor = executors[name]
    before = executor.counts[status]
    ((pair,),) = [result.pairs for result in executor.check_many([(program, [PAIR])])]
    assert pair.status == status, pair.detail
    assert detail in pair.detail or name == "local"
    assert pair.isolation == executor.isolation
    assert executor.counts[status] == before + 1
    assert (pair.grid == ((9,),)) == (status is Status.OK)


def test_ends_without_an_answer_are_the_programs_fault(fusion: Executor):
    programs = ["raise SystemExit", "import os\ndef solve(g): os._exit(0)", "def solve(g): exit(137)"]
    programs.append("import sys\nsys.stdin.read()\ndef solve(g): return [[9]]")
    results = fusion.check_many([(program, [PAIR]) for program in programs])
    assert [result.reward for result in results] == [0.0] * len(programs)


def test_a_program_that_prints_a_grid_in_the_harnesss_place_has_only_answered(fusion: Executor):
    forger = (
        "import os, re\nnonce = re.search(\"'NONCE': '([0-9a-f]+)'\", open(__file__).read()).group(1)\n"
        "os.write(1, (nonce + 'G' + {answer!r}).encode())\nos._exit(0)\n"
    )
    answers = ["[[9]]", "[[8]]", "[[9.0]]", "[[true]]", "[" * 4000, "[[9]]" * 9000, "x"]
    results = fusion.check_many([(forger.format(answer=answer), [PAIR]) for answer in answers])
    statuses = [result.pairs[0].status for result in results]
    assert statuses == [Status.OK, Status.WRONG_OUTPUT, *[Status.INVALID_OUTPUT] * 5]


def test_the_expected_output_is_not_sent(fusion: Executor, server: FusionServer):
    (result,) = fusion.check_many([("def solve(g): return g", [Pair([[1, 2], [3, 4]], [[4, 5, 6, 7]])])])
    assert result.reward == 0.0
    (request,) = server.requests
    assert json.loads(request["stdin"]) == [[1, 2], [3, 4]]
    assert "4, 5, 6, 7" not in json.dumps(request)
    assert (request["run_timeout"], request["memory_limit_MB"]) == (3.0, 256)


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"detail": "no"}),
        (200, b"no JSON"),
        (200, []),
        (200, {"status": "SandboxError", "message": "no", "compile_result": None, "run_result": None}),
        (200, _response("SandboxError", {"status": "Error", "stderr": "exception on running command"})),
        (200, _response("SandboxError", {"status": "Finished", "return_code": 1})),
        (200, _response("Failed", None)),
        (200, _response("Success", {"status": "Finished", "return_code": None})),
    ],
)
def test_a_servers_failure_is_no_label(fusion: Executor, server: FusionServer, answer: tuple[int, Any]):
    server.answer = answer
    (result,) = fusion.check_many([(NINE, [PAIR])])
    assert result.pairs[0].status is Status.INFRASTRUCTURE_ERROR
    assert result.pairs[0].detail
    assert result.reward is None
    server.answer = None
    assert fusion.check_many([(NINE, [PAIR])])[0].reward == 1.0  # and the next one is judged again


def test_a_server_that_compiles_says_what_went_wrong_there():
    failed = {"status": "Failed", "message": "", "run_result": None}
    error = read_response({**failed, "compile_result": {"status": "Finished", "return_code": 1, "stderr": "E"}}, "n", 9)
    assert (error.status, error.detail) == (Status.SYNTAX_ERROR, "E")
    late = read_response({**failed, "compile_result": {"status": "TimeLimitExceeded"}}, "n", 9)
    assert late.status is Status.TIMEOUT


def test_a_refused_connection_is_said_at_once_and_later_is_no_label():
    gone = FusionServer()
    thread = threading.Thread(target=gone.serve_forever)
    thread.start()
    executor = SandboxFusionExecutor(gone.url, call_sandbox_api, workers=1)
    gone.shutdown()
    thread.join()
    gone.server_close()
    with executor:
        assert executor.check_many([(NINE, [PAIR])])[0].pairs[0].status is Status.INFRASTRUCTURE_ERROR
    with pytest.raises(SandboxUnavailableError, match="did not run a program that returns its input"):
        SandboxFusionExecutor(gone.url, call_sandbox_api)


def test_results_are_in_order_and_no_more_calls_are_made_at_once_than_allowed(server: FusionServer):
    slow = "import time\ntime.sleep(0.2)\ndef solve(g): return [[{}]]"
    with SandboxFusionExecutor(server.url, call_sandbox_api, SandboxPolicy(), workers=3) as executor:
        results = executor.check_many([(slow.format(number), [Pair([[1]], [[number]])]) for number in range(8)])
    assert [result.pairs[0].grid for result in results] == [((number,),) for number in range(8)]
    assert all(result.solved for result in results)
    assert server.most == 3


def test_the_rest_of_a_failed_program_can_be_left_out(executors: dict[str, Executor]):
    pairs = [Pair([[1]], [[1]]), Pair([[1]], [[2]]), Pair([[1]], [[1]])]
    for executor in executors.values():
        for stop, statuses in ((True, ["ok", "wrong_output"]), (False, ["ok", "wrong_output", "ok"])):
            (result,) = executor.check_many([("def solve(g): return g", pairs)], stop_at_first_failure=stop)
            assert [pair.status for pair in result.pairs] == statuses


def test_an_input_that_is_no_grid_is_the_callers_mistake(fusion: Executor):
    with pytest.raises(ValueError, match="input_grid: expected cells from 0 to 9"):
        fusion.check_many([(NINE, [Pair([[10]], [[9]])])])


def test_settings_choose_the_executor(executors: dict[str, Executor]):
    assert isinstance(executors["local"], SandboxPool)
    assert isinstance(executors["sandbox_fusion"], SandboxFusionExecutor)
    assert executors["local"].isolation["seccomp"] == "ok"
    assert all("unknown" in state for state in executors["sandbox_fusion"].isolation.values())
