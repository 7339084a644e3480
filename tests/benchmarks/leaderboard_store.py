"""Finished runs in a file, and the processes that make what is missing. Pure: a run is what a function returns."""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from leaderboard_protocol import Job, Result, covers, cut, seconds_of

from verl_ext.core.json_lines import JsonLines

SECONDS_PER_LINE = 30


def start_workers(count: int) -> ProcessPoolExecutor:
    """Processes that live until the end: a start costs as much as a run."""
    os.environ["OMP_NUM_THREADS"] = "1"  # theirs, before they load torch
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Let this process exit silently at Ctrl-C, which its parent handles, and when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class RunStore:
    """Finished runs in a file, one JSON object per line.

    An incomplete last line, whose writer was killed, is dropped.

    Args:
        path: The file; its folder is made.

    Raises:
        ValueError: If a line is not JSON although more follow.
    """

    def __init__(self, path: Path) -> None:
        self._file = JsonLines(path)
        self._results: dict[Job, list[Result]] = {}
        for result in read_whole_lines(self._file):
            self._keep(result)

    def find(self, job: Job) -> dict[str, Any] | None:
        """What a run of the job returns, read off a run that is as long or longer; None if there is none."""
        for result in self._results.get(_identity(job), []):
            if covers(result, job):
                return cut(result, job)
        return None

    def finish(
        self, jobs: Sequence[Job], run: Callable[[Job], dict[str, Any]], workers: Executor, title: str
    ) -> list[dict[str, Any]]:
        """Make what is missing, the longest first; the results of all jobs, in their order."""
        missing = [job for job in dict.fromkeys(jobs) if self.find(job) is None]
        missing.sort(key=lambda job: -seconds_of(job.method, job.most_rollouts))
        began = said = time.monotonic()
        futures = {workers.submit(run, job): job for job in missing}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                try:
                    result = future.result()
                except Exception as error:
                    error.add_note(f"in the run {futures[future]}")
                    raise
                self._file.append([result])
                self._keep(result)
                now = time.monotonic()
                if done == len(missing) or now - said > SECONDS_PER_LINE:
                    said = now
                    print(f"{title}: {done} of {len(missing)} runs in {now - began:.0f} s", flush=True)
        finally:
            for future in futures:
                future.cancel()
        found = [self.find(job) for job in jobs]
        return [result for result in found if result is not None]

    def _keep(self, result: Result) -> None:
        self._results.setdefault(_identity(Job.from_json(result["job"])), []).append(result)


def _identity(job: Job) -> Job:
    """The same for jobs that differ in their length only."""
    return replace(job, budget=0, after=0, price=0.0)


def read_whole_lines(file: JsonLines) -> list[dict[str, Any]]:
    """All records of a file, whose last line is cut off if its writer did not come to the end of it."""
    if not file.num_bytes:
        return []
    content = file.path.read_bytes()
    file.cut_back_to(content.rfind(b"\n") + 1)
    records = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            message = f"line {number} of {file.path} is not JSON: remove it, and its run is made again"
            raise ValueError(message) from None
    return records
