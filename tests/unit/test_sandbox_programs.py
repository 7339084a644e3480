"""Many programs in many threads: equal ones run once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.programs import Programs
from verl_ext.sandbox.results import Execution, ProgramResult, Status

PAIRS = {task: [Pair(((0,),), ((answer,),))] for answer, task in enumerate("abc")}


class SlowExecutor:
    """Every call waits for `go`."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[str, int]] = Counter()
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)

    def check_many(self, jobs: Any, stop_at_first_failure: bool = False) -> list[ProgramResult]:
        self.begun.release()
        assert self.go.wait(timeout=60)
        results = []
        for program, (pair,) in jobs:
            if program == "broken":
                raise OSError("no sandbox")
            self.runs[program, pair.output[0][0]] += 1
            results.append(ProgramResult((Execution(Status.OK, ((len(program),),)),)))
        return results


def test_threads_that_ask_for_equal_programs_share_one_run():
    executor = SlowExecutor()
    programs = Programs(executor, attempts=1)  # pyright: ignore[reportArgumentType]
    asked = [[("a", "x"), ("b", "x")], [("b", "x"), ("a", "yy")], [("a", "yy"), ("a", "x"), ("a", "x")]]
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(programs.run, "reward", jobs, PAIRS) for jobs in asked]
        assert executor.begun.acquire(timeout=60)
        executor.go.set()
        results = [future.result(timeout=60) for future in futures]
    lengths = [[result.pairs[0].grid for result in found] for found in results]
    assert lengths == [[((1,),), ((1,),)], [((1,),), ((2,),)], [((2,),), ((1,),), ((1,),)]]
    assert executor.runs == {("x", 0): 1, ("x", 1): 1, ("yy", 0): 1}


def test_all_who_wait_for_a_program_get_its_error():
    executor = SlowExecutor()
    programs = Programs(executor, attempts=1)  # pyright: ignore[reportArgumentType]
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(programs.run, "reward", [("a", "broken")], PAIRS)
        assert executor.begun.acquire(timeout=60)
        second = threads.submit(programs.run, "reward", [("a", "broken")], PAIRS)
        executor.go.set()
        for future in (first, second):
            with pytest.raises(OSError, match="no sandbox"):
                future.result(timeout=60)
    assert sum(executor.runs.values()) == 0
