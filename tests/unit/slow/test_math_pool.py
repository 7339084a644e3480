"""The processes behind the math reward: only a stuck or dead one is replaced, and no other answer loses its score."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from verl_ext.core.errors import SignalError
from verl_ext.rewards import math_answer, math_pool
from verl_ext.rewards.math_pool import MathPool

# Far longer than anything here takes: it fails when something hangs, and measures nothing.
NO_HANG_SECONDS = 20.0

STUCK = "9^{9^{9^9}}"  # the guards would stop it; the pool must survive what they miss


@pytest.fixture(scope="module")
def pool() -> Iterator[MathPool]:
    """One worker with little time."""
    pool = MathPool(num_workers=1, cpu_seconds=1.0, wall_seconds=8.0)
    yield pool
    pool.close()


def test_a_worker_that_is_stuck_in_c_code_is_replaced_and_the_next_answer_is_scored(pool: MathPool):
    assert pool.verify(r"\frac{1}{2}", "0.5") == 1.0
    before = pool.pids()
    started = time.monotonic()
    assert pool.verify("5", STUCK) == 0.0
    assert time.monotonic() - started < NO_HANG_SECONDS
    assert pool.pids() == []
    assert pool.verify(r"\frac{1}{2}", "0.5") == 1.0
    assert pool.pids() != before


def test_stuck_answers_leave_the_answers_beside_them_alone():
    pool = MathPool(num_workers=2, cpu_seconds=1.0)
    answers = [STUCK, "0.5", "0.5", STUCK, "0.5", "0.25", STUCK, "0.5"]
    with ThreadPoolExecutor(len(answers)) as executor:
        scores = list(executor.map(lambda answer: pool.verify(r"\frac{1}{2}", answer), answers))
    pool.close()
    assert scores == [float(answer == "0.5") for answer in answers]


def test_a_worker_that_sleeps_is_replaced_too(pool: MathPool):
    pool.verify("5", "6")
    os.kill(pool.pids()[0], signal.SIGSTOP)
    pool._wall_seconds = 0.5
    assert pool.verify("5", "5") == 0.0
    pool._wall_seconds = NO_HANG_SECONDS
    assert pool.verify("5", "5") == 1.0


def test_a_worker_that_was_killed_costs_no_answer_its_score(pool: MathPool, monkeypatch: pytest.MonkeyPatch):
    pool.verify("5", "6")
    os.kill(pool.pids()[0], signal.SIGKILL)
    monkeypatch.setattr(math_pool._Worker, "alive", True)  # killed between the check and the request
    assert pool.verify(r"\frac{1}{2}", "0.5") == 1.0


def test_a_worker_that_dies_twice_is_the_answers_fault(pool: MathPool, monkeypatch: pytest.MonkeyPatch, caplog):
    def dies(self, *args):
        self.kill()
        raise math_pool._DiedError("exit code -11")

    with monkeypatch.context() as patch:
        patch.setattr(math_pool._Worker, "ask", dies)
        assert pool.verify("5", "5") == 0.0
    assert "asked again" in caplog.text
    assert "counted as wrong" in caplog.text
    assert pool.verify("5", "5") == 1.0


def test_a_pool_that_cannot_start_is_an_error_and_not_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broken = tmp_path / "math_verify.py"
    broken.write_text("raise ImportError('no sympy here')")
    monkeypatch.setattr(math_pool, "_verl_file", lambda: str(broken))
    with pytest.raises(SignalError, match="no sympy here"):
        MathPool(num_workers=1).verify("5", "5")


def test_starting_a_worker_does_not_use_up_the_time_of_its_first_answer():
    pool = MathPool(num_workers=1, cpu_seconds=0.5, wall_seconds=5.0)  # importing sympy takes longer than 0.5 s
    assert pool.verify(r"\frac{1}{2}", "0.5") == 1.0
    pool.close()


def test_it_works_in_a_threads_event_loop():
    results = []

    async def reward() -> float:
        return math_answer.compute_score("math500", r"\boxed{0.125}", r"\frac{1}{8}")["acc"]

    thread = threading.Thread(target=lambda: results.append(asyncio.run(reward())))
    thread.start()
    thread.join(NO_HANG_SECONDS)
    assert results == [1.0]


def test_a_forked_child_does_not_read_its_parents_replies():
    child = os.fork()
    if child == 0:
        os._exit(0 if not math_answer._pool.pids() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert math_answer._pool.pids()


@pytest.mark.parametrize("limit", ["num_workers", "cpu_seconds", "wall_seconds", "memory_gib"])
def test_limits_of_nothing_are_refused(limit: str):
    with pytest.raises(ValueError, match="limits above 0"):
        MathPool(**{limit: 0})
