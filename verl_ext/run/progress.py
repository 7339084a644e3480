"""The progress of a run in its terminal: a bar with a running clock, or, in a log file, a line per step.

The trainer runs in a Ray actor, whose output reaches this terminal only line by line, if at all. So both follow the
run's own files, `status.json` and the metrics stream.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol

from tqdm import tqdm

from verl_ext.run.metrics_stream import STEP, MetricsTail
from verl_ext.run.pace import Record, seconds_left
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile
from verl_ext.run.trainer_metrics import validation_accuracy

INTERVAL_S = 0.5

# Label -> (metric, format) of the figures shown per step.
Figures = Mapping[str, tuple[str, str]]
FIGURES: Figures = {"reward": ("critic/score/mean", ".2f")}


@contextlib.contextmanager
def show_progress(
    folder: RunFolder, total_steps: int | None, figures: Figures = FIGURES
) -> Generator[None, None, None]:
    """Show the run's progress on stderr until the block ends.

    Args:
        folder: Folder of the run; its files need not exist yet.
        total_steps: RL steps of the whole run, if known.
        figures: Shown next to the validation accuracy, if the run has them.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_follow, args=(folder, total_steps, figures, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# ------------------------------ the words ------------------------------


def phase(status: Mapping[str, Any]) -> str:
    """A run's activity: "starting Ray", "validating", "step 3 of 20: generating, 24 of 32 prompts"."""
    state, doing = status.get("state", "starting"), status.get("doing")
    if state == "training":
        of = f" of {status['of']}" if status.get("of") else ""
        prompts = f", {status['prompts'][0]} of {status['prompts'][1]} prompts" if status.get("prompts") else ""
        return f"step {status.get('step')}{of}" + (f": {doing}{prompts}" if doing else "")
    return doing or str(state)


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def texts(record: Record, figures: Figures) -> dict[str, str]:
    """The figures of a step, by label."""
    accuracy = validation_accuracy(dict(record))
    shown = {} if accuracy is None else {"val acc": f"{accuracy:.3f}"}
    for label, (metric, form) in figures.items():
        if record.get(metric) is not None:
            shown[label] = format(record[metric], form)
    return shown


def pace(records: Sequence[Record], of: int | None) -> str:
    """Seconds per step and the remaining time, both without start-up; empty before the first step."""
    if not records or not isinstance(records[-1].get("timing_s/step"), (int, float)):
        return ""
    left = seconds_left(records, of)
    return f"{records[-1]['timing_s/step']:.1f} s" + (f", {clock(left)} left" if left else "")


# ------------------------------ the two forms ------------------------------


class _View(Protocol):
    """A display that follows a run."""

    def phase(self, status: Mapping[str, Any]) -> None:
        """Update the run's activity; called every `INTERVAL_S`."""
        ...

    def step(self, records: Sequence[Record], of: int | None, shown: Mapping[str, str]) -> None:
        """Report new records, the last of these; `of`: steps of the whole run, if known."""
        ...

    def close(self) -> None: ...


class _Bar:
    """On a terminal: one line, updated in place."""

    def __init__(self, of: int | None, earlier: int) -> None:
        form = "{desc} |{bar}| {n_fmt}/{total_fmt}{postfix}"
        self._bar = tqdm(total=of, initial=earlier, bar_format=form, mininterval=0.0)

    def phase(self, status: Mapping[str, Any]) -> None:
        now = time.time()
        self._bar.set_description_str(f"{phase(status)} {clock(now - (status.get('doing_since') or now))}")

    def step(self, records: Sequence[Record], of: int | None, shown: Mapping[str, str]) -> None:
        self._bar.total = of
        self._bar.set_postfix_str(_line(records, of, shown), refresh=False)
        self._bar.update(records[-1][STEP] - self._bar.n)

    def close(self) -> None:
        self._bar.set_description_str("done" if self._bar.n == self._bar.total else "stopped")
        self._bar.close()


class _Lines:
    """In a log file: a line per phase before the first step, and one per step."""

    def __init__(self) -> None:
        self._said = ""

    def phase(self, status: Mapping[str, Any]) -> None:
        now = phase(status)
        if status.get("state") != "training" and now != self._said:
            self._said = now
            _say(now)

    def step(self, records: Sequence[Record], of: int | None, shown: Mapping[str, str]) -> None:
        _say(f"step {records[-1][STEP]}{f' of {of}' if of else ''}: {_line(records, of, shown)}")

    def close(self) -> None:
        pass


def _line(records: Sequence[Record], of: int | None, shown: Mapping[str, str]) -> str:
    return ", ".join(filter(None, [pace(records, of), *map(" ".join, shown.items())]))


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def _has_screen() -> bool:
    """Whether stderr is a terminal with a size: with 0 columns, as in some containers, tqdm shows nothing."""
    if not sys.stderr.isatty():
        return False
    with contextlib.suppress(OSError):  # it has no file of its own
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    return True


def _follow(folder: RunFolder, of: int | None, figures: Figures, stop: threading.Event) -> None:
    tail, status = MetricsTail(folder.metrics), StatusFile(folder.status)
    known: dict[int, Record] = {record[STEP]: record for record in tail.new_records()}
    view: _View = _Bar(of, max(known, default=0)) if _has_screen() else _Lines()
    shown: dict[str, str] = {}
    while True:
        stopping, now = stop.wait(INTERVAL_S), status.read()
        for record in tail.new_records():
            step = record[STEP]
            if known.get(step) == record:
                continue  # read again: a resume has truncated the stream
            known = {number: of_step for number, of_step in known.items() if number < step} | {step: record}
            shown |= texts(record, figures)
            view.step(list(known.values()), of or now.get("of"), shown)
        if stopping:
            view.close()
            return
        view.phase(now)
