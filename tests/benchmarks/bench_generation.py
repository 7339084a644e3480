"""Time of the curriculum's own work per step, with an engine that answers immediately and thousands of prompts in
flight.

    python tests/benchmarks/bench_generation.py [--in-flight 10000] [--batch 512] [--steps 5]

Everything between the reports of finished prompts and the next dispatch: controller, predictor, rows of prompts and
records (`recipe/fast_dapo/collector.py`), in each of verl's three modes. The data plane is a dict of tags, and the
engine draws passes. Reports come one prompt at a time, which is the most expensive way, or 16 together, as when they
wait for each other. Processor time of the process without the engine's, so that a busy machine does not blur it.

Prediction, written before the first measurement: 0.3 ms per report (a predictor's choice takes 1 ms for one prompt, and
most reports admit none), so 0.5 s for a step of 512 prompts of which a third qualifies.
"""

import argparse
import sys
import tempfile
import time
from collections import deque
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/unit/slow"))

from hydra import compose, initialize_config_dir  # noqa: E402
from stored_rows import Engine, QuietTrainer, StoredRows  # noqa: E402
from tensordict import TensorDict  # noqa: E402

from recipe.fast_dapo.collector import Curriculum  # noqa: E402
from recipe.fast_dapo.settings import resolve_group_size  # noqa: E402
from verl_ext.core import garbage  # noqa: E402
from verl_ext.run.run_totals import RunTotals  # noqa: E402
from verl_ext.serving import data_plane  # noqa: E402
from verl_ext.serving.agent_loop import FIRST_SESSION, PromptReport, RolloutReport  # noqa: E402
from verl_ext.serving.rollout_key import rollout_key  # noqa: E402

MODES = ("sync", "colocate_async", "separate_async")
METHODS = {"choose": [], "two_phase": ["+signal=two_phase", "curriculum.schedule=streaming"]}


class Patches:
    """The part of pytest that `StoredRows` needs."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        setattr(target, name, value)


class TimedEngine(Engine):
    """This many reports at a time, in the order of dispatch; measures its own time separately."""

    def __init__(self, rates: np.ndarray, together: int) -> None:
        self.together = together
        random = np.random.default_rng(0)
        super().__init__(lambda index, session: random.random() < rates[index])
        self.own_seconds, self.num_reports = 0.0, 0
        self._queue: deque[tuple[str, PromptReport]] = deque()

    def dispatch(self, batch: TensorDict) -> None:
        with self._own_time():
            columns = (list(batch[name]) for name in ("uid", "index", "__rollout_n__", FIRST_SESSION))
            for uid, index, count, first in zip(*columns, strict=True):
                passes = [float(self.passes(index, session)) for session in range(first, first + count)]
                keys = [rollout_key(uid, session, 0) for session in range(first, first + count)]
                data_plane.write(keys, data_plane.TRAIN, None, [{"min_global_steps": self.version} for _ in keys])
                rollouts = [
                    RolloutReport(key, passed, {"acc": passed}, 2, self.version)
                    for key, passed in zip(keys, passes, strict=True)
                ]
                self._queue.append((uid, PromptReport(rollouts)))

    def finished_reports(self, timeout_s: float = 0.0) -> dict[str, PromptReport]:
        with self._own_time():
            reports = dict(self._queue.popleft() for _ in range(min(self.together, len(self._queue))))
            self.num_reports += len(reports)
            return reports

    @contextmanager
    def _own_time(self) -> Any:
        began = time.thread_time()
        yield
        self.own_seconds += time.thread_time() - began


class Dataset:
    """Rows with an index, as verl's."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, position: int) -> dict[str, Any]:
        return {"index": position, "data_source": "made", "raw_prompt": f"prompt {position}", "extra_info": {}}


def measure(mode: str, method: str, together: int, batch: int, in_flight: int, steps: int) -> dict[str, float]:
    """Milliseconds of processor time."""
    ahead = in_flight / batch - 1
    overrides = [
        *METHODS[method],
        f"trainer.v1.trainer_mode={mode}",
        f"data.train_batch_size={batch}",
        f"data.gen_batch_size={batch}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={batch // (4 if mode == 'separate_async' else 1)}",
        f"trainer.v1.colocate_async.num_warmup_batches={ahead}",
        f"trainer.v1.separate_async.num_warmup_batches={ahead}",
        "curriculum.max_staleness=1000",
        "trainer.n_gpus_per_node=8",
    ]
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        config = compose("fast_dapo", overrides=overrides)
    resolve_group_size(config)
    dataset = Dataset(100_000)
    engine = TimedEngine(np.random.default_rng(1).beta(0.5, 0.5, len(dataset)), together)
    with tempfile.TemporaryDirectory() as folder:
        trainer = QuietTrainer(config, Path(folder), engine)
        trainer.train_dataset, trainer.tokenizer = dataset, None
        store, curriculum = StoredRows(Patches()), Curriculum(trainer)
        curriculum.set_up_data()
        updates = 4 if mode == "separate_async" else 1
        seconds, reports, most = 0.0, 0, 0
        for step in range(steps + 1):  # the first fills what is in flight
            began, own, answered = time.process_time(), engine.own_seconds, engine.num_reports
            for trainer.local_trigger_step in range(updates):
                rows = curriculum.collect(batch // updates)
                store.clear(rows.keys, "train")
            curriculum.count(rows, {}, RunTotals())
            most = max(most, curriculum.controller.num_in_flight)
            if step:
                seconds += time.process_time() - began - (engine.own_seconds - own)
                reports += engine.num_reports - answered
            trainer.global_steps += 1
            engine.version = trainer.global_steps - 1
        curriculum.end()
    return {"ms_per_step": 1e3 * seconds / steps, "ms_per_report": 1e3 * seconds / reports, "in_flight": most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-flight", type=int, default=10_000, help="prompts in flight if generation is ahead")
    parser.add_argument("--batch", type=int, default=512, help="prompts per step")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    garbage.exempt_start_up()  # as the trainer does
    sizes = arguments.batch, arguments.in_flight, arguments.steps
    columns = ("method", "mode", "reports together", "prompts in flight", "ms per report", "s per step")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for method, mode, together in product(METHODS, MODES, (1, 16)):
        row = measure(mode, method, together, *sizes)
        print(
            f"| {method} | {mode} | {together} | {row['in_flight']:,.0f} | {row['ms_per_report']:.2f} | "
            f"{row['ms_per_step'] / 1e3:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
