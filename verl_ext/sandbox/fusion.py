"""Programs on a server of Sandbox Fusion, through verl's client: for machines without the sandbox of `pool.py`.

Each program and pair is one call of the server's run_code. It sends the program followed by a harness and, as standard
input, the input grid in JSON; the harness calls `solve` and prints the result. The expected output is
never sent: results are read and compared here.

This does not protect against:

- The program is in the harness's process and can print anything in its place. It then forges its own answer, which is
  compared like any other.
- Everything else (files, network, neighbours, whether a program outlives its call) depends on the server's isolation,
  which this module does not know: check how the server was started, and do not run it on the trainer's machine.
- A program that crashes its server causes an infrastructure error and so escapes its label. Sandbox Fusion keeps the
  first MiB of a program's output; a larger answer of a server is read into this process's memory as a whole.
- The server limits only wall-clock time: on a busy server slow programs time out.

Source: bytedance/SandboxFusion, sandbox/server/sandbox_api.py and sandbox/runners/base.py;
verl.utils.reward_score.sandbox_fusion.
"""

import inspect
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from verl_ext.data.arc_tasks import Grid, Pair
from verl_ext.sandbox.executor import PairwiseExecutor
from verl_ext.sandbox.policy import LAYERS, SandboxPolicy, SandboxUnavailableError
from verl_ext.sandbox.protocol import MAX_DETAIL_BYTES, MAX_SIDE, grid_problem, parse_grid
from verl_ext.sandbox.results import Execution, ProgramResult, Status

DEFAULT_WORKERS = 64  # as verl's reward.sandbox_fusion.max_concurrent

# Runs in a separate namespace, where the program's global names (such as its own `list`) have no effect.
_HARNESS = f"""
import __main__, json, os, sys
MAX_SIDE = {MAX_SIDE}
{inspect.getsource(grid_problem)}
if "solve" not in __main__.__dict__:
    sys.exit("the program defines no function solve(input_grid)")
output = __main__.__dict__["solve"](json.load(sys.stdin))
problem = grid_problem(output)
sys.stdout.flush()
data = ("\\n" + NONCE + ("I" + problem if problem else "G" + repr(output).replace(" ", "")) + "\\n").encode()
while data:
    data = data[os.write(1, data):]
os._exit(0)
"""
_SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
_MAX_ANSWER = 2 * MAX_SIDE * (MAX_SIDE + 1) + MAX_DETAIL_BYTES
_IDENTITY = "def solve(input_grid):\n    return input_grid\n"


class SandboxFusionExecutor(PairwiseExecutor):
    """An `Executor` over the run_code API of a Sandbox Fusion server.

        with SandboxFusionExecutor("http://HOST:8080/run_code", call_sandbox_api) as executor:
            (result,) = executor.check_many([(program, [Pair(input_grid, expected_grid)])])

    Args:
        url: URL of run_code.
        call_api: `verl.utils.reward_score.sandbox_fusion.utils.call_sandbox_api`. It is passed in so that the sandbox
            can be used and tested without verl.
        policy: `wall_seconds`, `memory_mib` (of the whole process, including the interpreter), `output_bytes` and
            `source_bytes` are used; CPU time and layers are up to the server.
        workers: Number of concurrent calls.

    Attributes:
        counts: Number of executions by final status, including infrastructure errors.

    Raises:
        SandboxUnavailableError: Immediately, if the server fails to run a program that returns its input.
    """

    def __init__(
        self,
        url: str,
        call_api: Callable[..., Any],
        policy: SandboxPolicy | None = None,
        workers: int = DEFAULT_WORKERS,
    ) -> None:
        if workers < 1:
            raise ValueError(f"expected workers of at least 1, got {workers}")
        self._call_api = call_api
        self._url = url
        super().__init__(policy or SandboxPolicy(), dict.fromkeys(LAYERS, "unknown: left to the Sandbox Fusion server"))
        first = self.run(_IDENTITY, ((1,),))
        if first.grid != ((1,),):
            raise SandboxUnavailableError(
                f"{url} did not run a program that returns its input ({first.status}: {first.detail}). Give the "
                "address of a Sandbox Fusion server's run_code, such as http://HOST:8080/run_code"
            )
        self.counts.clear()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="sandbox_fusion")

    def check_many(
        self, jobs: Iterable[tuple[str, Sequence[Pair]]], stop_at_first_failure: bool = False
    ) -> list[ProgramResult]:
        """See `Executor`; `workers` programs at a time, each on one pair after another."""
        return list(self._threads.map(lambda job: self.check(job[0], job[1], stop_at_first_failure), jobs))

    def close(self) -> None:
        """Wait for running calls and start no others."""
        self._threads.shutdown(cancel_futures=True)

    def _execute(self, source: bytes, grid: list[list[int]]) -> Execution:
        nonce = secrets.token_hex(16)
        # The server's limits are floats, whatever verl's annotations say.
        response, error = self._call_api(
            self._url,
            code=_with_harness(source.decode("utf-8"), nonce),
            stdin=json.dumps(grid),
            compile_timeout=self._policy.wall_seconds,  # pyright: ignore[reportArgumentType]
            run_timeout=self._policy.wall_seconds,  # pyright: ignore[reportArgumentType]
            memory_limit_mb=self._policy.memory_mib,
            language="python",
        )
        if error is not None:
            return Execution(Status.INFRASTRUCTURE_ERROR, detail=_short(error), isolation=self._isolation)
        return replace(read_response(response, nonce, self._policy.output_bytes), isolation=self._isolation)


def read_response(response: Any, nonce: str, output_bytes: int) -> Execution:
    """The program's result in an answer of run_code; an answer without one is an infrastructure error.

    Args:
        response: The answer's JSON.
        nonce: Precedes the result in the program's output.
        output_bytes: Output limit of the program.
    """
    result = response.get("run_result") if isinstance(response, dict) else None
    compiled = response.get("compile_result") if isinstance(response, dict) else None
    if isinstance(response, dict) and response.get("status") == "Failed" and isinstance(compiled, dict):
        # Python has no compile step in Sandbox Fusion; a server that has one reports everything with it.
        if compiled.get("status") == "TimeLimitExceeded":
            return Execution(Status.TIMEOUT, detail="compiling was over the server's time limit")
        if compiled.get("status") == "Finished" and compiled.get("return_code") != 0:
            return Execution(Status.SYNTAX_ERROR, detail=_short(str(compiled.get("stderr") or "")))
    # A run's own status `Error` is an exception in the server (runners/base.py), not in the program.
    if not isinstance(result, dict) or response.get("status") not in ("Success", "Failed"):
        said = response.get("message") if isinstance(response, dict) else response
        return Execution(Status.INFRASTRUCTURE_ERROR, detail=_short(f"the server gave no result: {said}"))
    if result.get("status") == "TimeLimitExceeded":
        return Execution(Status.TIMEOUT, detail="over the server's time limit")
    code = result.get("return_code")
    if result.get("status") != "Finished" or type(code) is not int:
        return Execution(Status.INFRASTRUCTURE_ERROR, detail=_short(f"the server gave no result: {result}"))
    stdout, stderr = str(result.get("stdout") or ""), str(result.get("stderr") or "")
    before, found, answer = stdout.rpartition(nonce)
    printed = before if found else stdout
    status, detail, grid = _end(code, stderr, answer if found else None)
    if len(printed) + len(stderr) > output_bytes:
        status, detail, grid = Status.OUTPUT_LIMIT, f"printed more than {output_bytes} bytes", None
    return Execution(status, grid=grid, detail=_short(detail), printed=printed[:output_bytes])


def _end(code: int, stderr: str, answer: str | None) -> tuple[Status, str, Grid | None]:
    """Status, detail and grid of a program that ended with this exit code, with or without an answer."""
    if answer is not None and code == 0:
        kind, body = answer[:1], answer[1:_MAX_ANSWER].strip()
        grid = parse_grid(body.encode("ascii", "replace")) if kind == "G" else None
        if grid is not None:
            return Status.OK, "", grid
        return Status.INVALID_OUTPUT, body if kind == "I" else "no grid", None
    if code < 0 or code > 128:  # a shell in between adds 128 to the signal
        return Status.KILLED, f"ended by signal {-code if code < 0 else code - 128}", None
    last = stderr.strip().rpartition("\n")[2]
    if last.startswith("MemoryError"):
        return Status.MEMORY, last, None
    if last.startswith(_SYNTAX_ERRORS) and "Traceback (most recent call last)" not in stderr:
        return Status.SYNTAX_ERROR, last, None
    return Status.RUNTIME_ERROR, last or "ended without an answer", None


def _with_harness(program: str, nonce: str) -> str:
    # One line: an unfinished end of a program (an open bracket or string, a deeper block) makes it a syntax error or
    # has no effect. The empty line before it completes a line that ends in a backslash.
    return f"{program}\n\n__import__('builtins').exec({_HARNESS!r}, {{'NONCE': {nonce!r}}})\n"


def _short(text: str) -> str:
    return text[:MAX_DETAIL_BYTES]
