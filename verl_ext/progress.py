"""A progress bar in the terminal that started the run, fed by the run's own metrics stream.

The trainer runs in a Ray actor, whose output reaches this terminal only line by line, if at all.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl_ext.metrics_stream import STEP, MetricsTail
from verl_ext.trainer_metrics import validation_accuracy

INTERVAL_S = 0.5


@contextlib.contextmanager
def show_progress(metrics: Path, total_steps: int | None) -> Iterator[None]:
    """Show a bar until the block ends.

    Args:
        metrics: stream of the run; it need not exist yet.
        total_steps: RL steps of the whole run, if known.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_follow, args=(metrics, total_steps, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _follow(metrics: Path, total_steps: int | None, stop: threading.Event) -> None:
    tail = MetricsTail(metrics)
    earlier = max((record[STEP] for record in tail.new_records()), default=0)
    shown: dict[str, str] = {}
    with tqdm(total=total_steps, initial=earlier, desc="starting Ray, FSDP and vLLM", unit="step") as bar:
        while True:
            stopping = stop.wait(INTERVAL_S)
            for record in tail.new_records():
                bar.set_description("training")
                shown |= _figures(record)
                bar.set_postfix(shown, refresh=False)
                bar.update(record[STEP] - bar.n)
            if stopping:
                return


def _figures(record: dict[str, Any]) -> dict[str, str]:
    figures = {}
    accuracy = validation_accuracy(record)
    if accuracy is not None:
        figures["val acc"] = f"{accuracy:.3f}"
    if record.get("critic/score/mean") is not None:
        figures["reward"] = f"{record['critic/score/mean']:.2f}"
    if record.get("curriculum/qualified_share") is not None:
        figures["qualified"] = f"{record['curriculum/qualified_share']:.0%}"
    return figures
