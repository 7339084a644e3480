"""Processor time of the way between curriculum and agent loops, with thousands of prompts in flight.

    python tests/benchmarks/bench_dispatch.py [--in_flight 1000 10000] [--rate 250] [--workers 8] [--own 1.0 0.35]

Real Ray, the product's agent-loop manager and workers (`verl_ext/serving/agent_loop.py`); in place of verl's agent
loops and engines each prompt is answered some seconds after its dispatch, so that `in_flight` prompts at a time give
`rate` answers per second. The driver does what the collector does: it takes the reports that are there and dispatches
as many prompts; a share `own` of them in one call each, as where a prompt is continued as soon as it is reported, the
others in calls of 512, as where a step's prompts are admitted. The driver's time includes building the calls'
TensorDicts.

Prediction, written before the first measurement: 1 ms per prompt in the driver, 1 ms in all workers together, and the
same with ten times as many in flight.
"""

import argparse
import asyncio
import itertools
import random
import time
from pathlib import Path

import numpy as np
import psutil
import ray
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from verl_ext.core import garbage
from verl_ext.serving.agent_loop import RolloutReport, SignalAgentLoopManager, SignalAgentLoopWorker
from verl_ext.serving.rollout_key import rollout_key

ROOT = Path(__file__).resolve().parents[2]
ROLLOUTS = 4  # per prompt and call
AT_ONCE = 512  # prompts
WARM_UP_S, MEASURED_S = 10.0, 20.0


class AnsweringWorker(SignalAgentLoopWorker):
    """The product's worker without agent loops: a prompt is answered after a random time, `seconds` on average."""

    def __init__(self, seconds: float) -> None:
        super().__init__(OmegaConf.create(), None)
        garbage.exempt_start_up()
        self._seconds = seconds
        self._tasks: set[asyncio.Task] = set()

    async def generate_sequences(self, batch: TensorDict) -> None:
        for uid in batch["uid"]:
            task = asyncio.create_task(self._answer(uid))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, uid: str) -> None:
        await asyncio.sleep(random.expovariate(1 / self._seconds))
        self._reports[uid].rollouts = [
            RolloutReport(rollout_key(uid, session, 0), 1.0, {"acc": 1.0}, 1000, 0) for session in range(ROLLOUTS)
        ]
        self._finished.pop(uid).put_nowait(uid)

    def processor_seconds(self) -> float:
        return _processor_seconds()


def _processor_seconds() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


def _batch(numbers: list[int]) -> TensorDict:
    """Rows as `PromptRows.batch` makes them."""
    rows = {
        "uid": np.array([str(number) for number in numbers], dtype=object),
        "index": np.array(numbers, dtype=object),
        "raw_prompt": np.array([[{"role": "user", "content": f"prompt {number}"}] for number in numbers], dtype=object),
        "extra_info": np.array([{} for _ in numbers], dtype=object),
    }
    batch = tu.get_tensordict(rows)
    tu.assign_non_tensor_stack(batch, "__rollout_n__", [ROLLOUTS] * len(numbers))
    return batch


def measure(in_flight: int, rate: float, workers: int, own: float) -> dict[str, float]:
    """Milliseconds of processor time per prompt, and answers per second."""
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        manager = SignalAgentLoopManager(compose("fast_dapo"), None)
    kind = ray.remote(AnsweringWorker)
    manager.agent_loop_workers = [kind.options(num_cpus=0).remote(in_flight / rate) for _ in range(workers)]
    numbers = itertools.count()

    def dispatch(count: int, at_once: int) -> None:
        for _ in range(0, count, at_once):
            manager.dispatch(_batch(list(itertools.islice(numbers, at_once))))

    def spent() -> tuple[float, float, float]:
        of_workers = ray.get([worker.processor_seconds.remote() for worker in manager.agent_loop_workers])
        return time.monotonic(), _processor_seconds(), sum(of_workers)

    spent()  # once they have started
    dispatch(in_flight, at_once=100)
    began, answered, admitted, before = time.monotonic(), 0, 0, None
    while time.monotonic() - began < WARM_UP_S + MEASURED_S:
        if before is None and time.monotonic() - began >= WARM_UP_S:
            before, answered = spent(), 0
        count = len(manager.finished_reports(1.0))
        answered += count
        continued = sum(random.random() < own for _ in range(count))
        dispatch(continued, at_once=1)
        admitted += count - continued
        if admitted >= AT_ONCE:
            dispatch(AT_ONCE, at_once=AT_ONCE)
            admitted -= AT_ONCE
    assert before is not None
    seconds, driver, of_workers = (after - earlier for after, earlier in zip(spent(), before, strict=True))
    for worker in manager.agent_loop_workers:
        ray.kill(worker)
    return {
        "driver": 1000 * driver / max(1, answered),
        "workers": 1000 * of_workers / max(1, answered),
        "rate": answered / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in_flight", nargs="+", type=int, default=[1000, 10_000], help="prompts")
    parser.add_argument("--rate", type=float, default=250.0, help="answers per second")
    parser.add_argument("--own", nargs="+", type=float, default=[1.0, 0.35], help="share of prompts, one per call")
    parser.add_argument("--workers", type=int, default=8, help="agent-loop workers (verl's default is 8)")
    args = parser.parse_args()
    garbage.exempt_start_up()  # as the trainer and the product's workers do
    ray.init(num_cpus=args.workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    print("| in flight | one per call | driver, ms per prompt | all workers, ms per prompt | answers per second |")
    print("|---|---|---|---|---|")
    for in_flight, own in itertools.product(args.in_flight, args.own):
        found = measure(in_flight, args.rate, args.workers, own)
        cells = [f"{in_flight:,}", f"{100 * own:.0f} %", *(f"{found[name]:.2f}" for name in ("driver", "workers"))]
        print("| " + " | ".join([*cells, f"{found['rate']:.0f}"]) + " |", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
