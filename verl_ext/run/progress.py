"""A progress bar in the terminal that started the run, fed by the run's own metrics stream.

The trainer runs in a Ray actor, whose output reaches this terminal only line by line, if at all.
"""

import contextlib
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl_ext.run.metrics_stream import STEP, MetricsTail
from verl_ext.run.trainer_metrics import validation_accuracy

INTERVAL_S = 0.5

# Label -> (metric, format) of what stands behind the bar.
Figures = Mapping[str, tuple[str, str]]
FIGURES: Figures = {"reward": ("critic/score/mean", ".2f")}


@contextlib.contextmanager
def show_progress(metrics: Path, total_steps: int | None, figures: Figures = FIGURES) -> Generator[None, None, None]:
    """Show a bar until the block ends.

    Args:
        metrics: stream of the run; it need not exist yet.
        total_steps: RL steps of the whole run, if known.
        figures: shown beside the validation accuracy, if the run has them.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_follow, args=(metrics, total_steps, figures, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _follow(metrics: Path, total_steps: int | None, figures: Figures, stop: threading.Event) -> None:
    tail = MetricsTail(metrics)
    earlier = max((record[STEP] for record in tail.new_records()), default=0)
    shown: dict[str, str] = {}
    with tqdm(total=total_steps, initial=earlier, desc="starting Ray, FSDP and vLLM", unit="step") as bar:
        while True:
            stopping = stop.wait(INTERVAL_S)
            for record in tail.new_records():
                bar.set_description("training")
                shown |= _texts(record, figures)
                bar.set_postfix(shown, refresh=False)
                bar.update(record[STEP] - bar.n)
            if stopping:
                return


def _texts(record: dict[str, Any], figures: Figures) -> dict[str, str]:
    accuracy = validation_accuracy(record)
    shown = {} if accuracy is None else {"val acc": f"{accuracy:.3f}"}
    for label, (metric, form) in figures.items():
        if record.get(metric) is not None:
            shown[label] = format(record[metric], form)
    return shown
