"""One run of the leaderboard: a method chooses, the policy of `learning_lab.py` samples and learns."""

import functools
import importlib
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from leaderboard_protocol import METHODS, NUM_PROMPTS, POOLS, Job, cost_of, cut, last_cost
from leaderboard_tasks import make_task
from learning_lab import Policy
from learning_tasks import Task
from sampling_methods import Method
from transformers import AutoModel

from data_preprocess.prompt_states import last_states, principal_components

# The defaults of data_preprocess.prompt_states.
TOKENS_PER_BATCH, NUM_COMPONENTS = 16384, 16
MODELS = Path(__file__).resolve().parents[2] / "outputs/models"


@functools.cache
def task_of(pool: str) -> Task:
    """The prompts of a pool with the base model's states, made once per process."""
    task = make_task(pool, NUM_PROMPTS)
    prompts = [ids[ids != task.pad].tolist() for ids in task.prompts]
    model = AutoModel.from_pretrained(base_of(pool), dtype=torch.float32)
    states_PC, _ = principal_components(last_states(model, prompts, TOKENS_PER_BATCH), NUM_COMPONENTS)
    return replace(task, states=states_PC)


def base_of(pool: str) -> Path:
    """The folder of the model that a run starts from."""
    return MODELS / POOLS[pool]


def make_method(job: Job, task: Task) -> Method:
    """The sampling method of a job."""
    module, name = METHODS[job.method].factory.split(":")
    factory = getattr(importlib.import_module(module), name)
    return factory(NUM_PROMPTS, batch=job.settings.batch, group=job.settings.group, seed=job.seed, task=task)


class Stopwatch:
    """Processor seconds of this process, by what it did."""

    def __init__(self) -> None:
        self.seconds = {"generating": 0.0, "updating": 0.0, "looking": 0.0}

    @contextmanager
    def __call__(self, what: str) -> Generator[None, None, None]:
        began = time.process_time()
        yield
        self.seconds[what] += time.process_time() - began


def run(job: Job) -> dict[str, Any]:
    """Train to the end of a job; its result."""
    torch.set_num_threads(1)  # two processes on two cores, and sums that do not depend on the machine
    task, updates, watch = task_of(job.pool), job.settings.updates, Stopwatch()
    policy = Policy(
        base_of(job.pool),
        task,
        learning_rate=job.settings.learning_rate,
        estimator=METHODS[job.method].estimator,
        seed=job.seed,
        compact=True,
    )
    method = make_method(job, task)
    counts = method.counts
    trained = trained_tokens = 0
    history: list[dict[str, Any]] = []

    def look() -> None:
        with watch("looking"):
            by_domain = policy.accuracy_by_domain()
        history.append(
            {
                "step": policy.version,
                "rollouts": counts.generated,
                "tokens": counts.generated_tokens,
                "trained": trained,
                "trained_tokens": trained_tokens,
                "accuracy": sum(by_domain.values()) / len(by_domain),
                "accuracy_by_domain": by_domain,
            }
        )

    look()
    while cost_of({"rollouts": counts.generated, "trained": trained}, job.price) < last_cost(history, job):
        with watch("generating"):
            batch = method.next_batch(policy)
        with watch("updating"):
            policy.update(batch.rollouts, batch.groups, batch.weights, batch.advantages, updates=updates)
        trained += updates * len(batch.rollouts)
        trained_tokens += updates * sum(len(rollout.response) for rollout in batch.rollouts)
        if counts.generated >= job.looks.next_look(history[-1]["rollouts"]):
            look()
    return cut({"job": asdict(job), "history": history, "seconds": watch.seconds}, job)
