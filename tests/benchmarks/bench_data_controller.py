"""Time per prompt of the Fast DAPO controller, and whether it stays flat as the buffer grows.

    python tests/benchmarks/bench_data_controller.py [--prompts 100000] [--buffers 1000 10000] [--json]
    python tests/benchmarks/bench_data_controller.py --prompts 10000000 --buffers 10000     # half an hour
    python tests/benchmarks/bench_data_controller.py --pool 10000000                        # the predictor instead

A simulation without an engine: pass rates are drawn at random, and only the controller is timed (adding, inputs,
results, eviction, batches); making the `Sample` records is not. The buffer is filled first, untimed, and stays full
because `max_buffer_prompts` evicts the stalest of the surplus, so eviction is timed as well. A checkpoint of the full
buffer is timed separately: it is O(buffer) by nature. Processor time, so that a busy machine does not blur it. Memory
is the process's RAM, including imports (about 60 MB).

With --pool the predictor over a pool of this many prompts is timed instead, each of them seen before.

Prediction, written before the first measurement: 25 microseconds per prompt (n = 4, m = 20: a screened prompt checks 4
samples, a finished one 20 more), within 1.5x from 1,000 to 100,000 buffered prompts (dict and set lookups miss the
cache in the large one, nothing else grows), and about 2 s for state_dict and json.dumps of 100,000 prompts.

Measured on a shared 2-core machine, CPython 3.11: 24 to 43 microseconds, without a trend in the buffer's size. Python's
cyclic garbage collector is the spread: a full pass over 2.4 million buffered samples takes 1.4 s (slowest round) and
falls into the timed part of some runs. With it disabled: 28, 30 and 27 microseconds at 1,000, 10,000 and 100,000.
The checkpoint of 100,000 took 3 to 5 s, more than predicted.
"""

import argparse
import json
import random
import resource
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import psutil

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings
from recipe.fast_dapo.curriculum.records import GenerationInput, Prompt, Sample

NUM_SCREENING, NUM_CONTINUATION, TRAIN_BATCH, GEN_BATCH = 4, 20, 128, 512


def simulate(buffer: int, num_prompts: int, seed: int = 0) -> dict[str, Any]:
    """One run with `buffer` ready prompts kept; returns timings in microseconds per prompt and in seconds."""
    rng, uids = random.Random(seed), count()
    settings = CurriculumSettings(
        n=NUM_SCREENING,
        n_continue=NUM_CONTINUATION,
        train_batch_size=TRAIN_BATCH,
        gen_batch_size=GEN_BATCH,
        max_buffer_prompts=buffer,
        max_staleness=10**6,
        schedule="merged",
        train_on="qualified",
    )
    controller, version = DataController(settings), 0
    rates: dict[str, float] = {}

    def new_prompts() -> list[Prompt]:
        prompts = [Prompt(f"uid-{next(uids)}", i) for i in range(GEN_BATCH)]
        rates.update({prompt.uid: rng.betavariate(0.5, 0.5) for prompt in prompts})
        return prompts

    def generate(inputs: list[GenerationInput]) -> dict[str, list[Sample]]:
        return {
            entry.prompt.uid: [
                Sample(f"{entry.prompt.uid}_{session}_0", float(rng.random() < rates[entry.prompt.uid]), version, 100)
                for session in range(entry.first_session, entry.first_session + entry.num_samples)
            ]
            for entry in inputs
        }

    def play_round(train: bool) -> tuple[float, int]:
        """Seconds spent in the controller, and new prompts taken in. Rollouts are made between the timed parts."""
        prompts = new_prompts()
        start = time.process_time()
        controller.add_new_prompts_first_generation_phase(prompts)
        inputs = controller.get_generation_inputs()
        seconds = time.process_time() - start
        samples = generate(inputs)
        start = time.process_time()
        result = controller.update_prompts(samples, version)
        batch = controller.get_training_data() if train and controller.is_ready_for_training() else []
        seconds += time.process_time() - start
        for uid in (*result.released_uids, *(group.prompt.uid for group in batch)):
            del rates[uid]
        return seconds, len(prompts)

    while controller.num_prompts_for_training < buffer + TRAIN_BATCH:
        play_round(train=False)
        version += 1
    timed, taken, slowest = 0.0, 0, 0.0
    rss_before = rss_mb()
    while taken < num_prompts:
        seconds, num_new = play_round(train=True)
        version += 1
        timed, taken, slowest = timed + seconds, taken + num_new, max(slowest, seconds)
    fates = controller.conservation()
    if fates.pop("added") != sum(fates.values()):
        raise AssertionError(f"prompts were lost or duplicated: {fates}")
    rss_after = rss_mb()
    start = time.process_time()
    saved = json.dumps(controller.state_dict())
    save_seconds = time.process_time() - start
    return {
        "buffer_prompts": buffer,
        "microseconds_a_prompt": 1e6 * timed / taken,
        "slowest_round_ms": 1e3 * slowest,
        "checkpoint_s": save_seconds,
        "checkpoint_mb": len(saved) / 1e6,
        "rss_mb_at_first": rss_before,
        "rss_mb_at_last": rss_after,
        "trained": fates["trained"],
        "evicted": fates["evicted_overflow"],
    }


def rss_mb() -> float:
    """Memory of this process in MB."""
    return psutil.Process().memory_info().rss / 1e6


def measure_predictor(num_prompts: int, repeats: int = 20) -> dict[str, float]:
    """Seconds per call and megabytes of the predictor over a pool, as the trainer uses it."""
    before = rss_mb()
    predictor = PassRatePosterior(num_prompts, PredictorSettings())
    start = time.process_time()
    rng = np.random.default_rng(0)
    for position, passes in enumerate(rng.integers(0, NUM_SCREENING + 1, num_prompts).tolist()):
        predictor.observe(position, passes, NUM_SCREENING - passes)
    row = {"prompts": float(num_prompts), "observe_us": 1e6 * (time.process_time() - start) / num_prompts}
    row["rss_mb"] = rss_mb() - before
    live = set(range(0, num_prompts, max(1, num_prompts // GEN_BATCH)))  # prompts that must not be chosen

    def timed(call: Callable[[], Any], times: int) -> float:
        start = time.process_time()
        for _ in range(times):
            call()
        return (time.process_time() - start) / times

    row["choose_1_ms"] = 1e3 * timed(lambda: predictor.choose(1, live), repeats)
    row["choose_512_ms"] = 1e3 * timed(lambda: predictor.choose(GEN_BATCH, live), repeats)
    row["set_weight_version_ms"] = 1e3 * timed(
        lambda: predictor.set_weight_version(predictor.weight_version + 1), repeats
    )
    before_index = rss_mb()
    position = {index: number for number, index in enumerate(range(num_prompts))}  # the trainer's map of the data set
    row["index_map_mb"] = rss_mb() - before_index
    del position
    start = time.process_time()
    saved = json.dumps(predictor.state_dict())
    row["checkpoint_s"], row["checkpoint_mb"] = time.process_time() - start, len(saved) / 1e6
    start = time.process_time()
    PassRatePosterior(num_prompts, PredictorSettings()).load_state_dict(json.loads(saved))
    row["restore_s"] = time.process_time() - start
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=100_000, help="prompts timed at each size of the buffer")
    parser.add_argument("--buffers", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--pool", type=int, nargs="+", help="measure the predictor over pools of this many prompts")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    arguments = parser.parse_args()
    if arguments.pool:
        for pool in arguments.pool:
            print(json.dumps({name: round(value, 2) for name, value in measure_predictor(pool).items()}))
        return
    rows = [simulate(buffer, arguments.prompts) for buffer in arguments.buffers]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    columns = (
        *("buffer_prompts", "microseconds_a_prompt", "slowest_round_ms", "checkpoint_s", "checkpoint_mb"),
        *("rss_mb_at_first", "rss_mb_at_last"),
    )
    print("  ".join(columns))
    for row in rows:
        print("  ".join(f"{row[name]:>{len(name)}.{0 if name == 'buffer_prompts' else 1}f}" for name in columns))


if __name__ == "__main__":
    main()
