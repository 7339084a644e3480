"""Three ways to choose rollouts on a pretrained model and real word problems: tests/benchmarks' leaderboard on a GPU.

The methods, advantages and the loss are those of the leaderboard on a CPU; the policy is `adapter_policy.py`, which
needs neither Ray nor vLLM. Settings are not tuned: one shape per method, equal rollouts for all, and one learning rate.
"""

import importlib
import io
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from adapter_policy import AdapterPolicy
from leaderboard_protocol import METHODS
from relived import OtherRequestError, log_of_plain, plain_log, relive
from saved_state import load_bytes, save_bytes
from sessions import Setting, Table
from toy_assets import make_toy_assets
from word_problems import Problems, prompt_states, read_problems, with_states


@dataclass(frozen=True)
class Shape:
    """Prompts per batch and rollouts per prompt."""

    batch: int
    group: int


@dataclass(frozen=True)
class Plan:
    """What is run.

    Attributes:
        shapes: Shapes by method of the leaderboard.
        seeds: Seeds of every method.
        budget: Rollouts after which a run ends.
        look_every: Rollouts between two evaluations of the accuracy.
        temperature, learning_rate: Settings of every run.
        max_response: Maximum tokens of a response.
    """

    shapes: dict[str, Shape]
    seeds: tuple[int, ...]
    budget: int
    look_every: int
    temperature: float
    learning_rate: float
    max_response: int


# Only the text of a prompt is known, so choose uses the model's own states as features.
FULL = Plan(
    shapes={"uniform_rloo": Shape(16, 8), "filter_groups": Shape(8, 8), "choose_states": Shape(32, 4)},
    seeds=(0, 1, 2),
    budget=4096,
    look_every=512,
    temperature=0.5,
    learning_rate=2e-4,
    max_response=48,
)
TOY = Plan(
    shapes={"uniform_rloo": Shape(3, 4), "filter_groups": Shape(2, 4), "choose_states": Shape(3, 4)},
    seeds=(0,),
    budget=36,
    look_every=24,
    temperature=1.0,
    learning_rate=1e-2,
    max_response=4,
)


class Training:
    """One run: a method chooses, the policy samples and learns.

    Args:
        name: `METHOD/SEED`.
        state: State of an earlier object, to continue it.

    Raises:
        OtherRequestError: The run of this state cannot be continued.
    """

    def __init__(
        self, name: str, plan: Plan, model: Path, problems: Problems, device: str, state: dict[str, Any] | None = None
    ) -> None:
        method, seed = name.split("/")
        shape, entry = plan.shapes[method], METHODS[method]
        self.name, self.plan = name, plan
        self.policy = AdapterPolicy(
            model,
            problems,
            device=device,
            temperature=plan.temperature,
            learning_rate=plan.learning_rate,
            estimator=entry.estimator,
            seed=int(seed),
        )
        module, function = entry.factory.split(":")
        self.method = getattr(importlib.import_module(module), function)(
            len(problems.truths), batch=shape.batch, group=shape.group, seed=int(seed), task=problems.task
        )
        self.history: list[dict[str, float]] = []
        self.seconds = {"generating": 0.0, "updating": 0.0, "looking": 0.0}
        if state is None:
            self._look()
        else:
            self.policy.log = log_of_plain(state["log"])
            relive(self.method, self.policy.log, state["policy"]["version"])
            self.policy.load_state_dict(state["policy"])
            self.history, self.seconds = state["history"], state["seconds"]

    def is_over(self) -> bool:
        """Whether the budget is spent, and the last evaluation done."""
        return self.history[-1]["rollouts"] >= self.plan.budget

    def step(self) -> None:
        """Make a batch, an update, and an evaluation if one is due."""
        with self._watch("generating"):
            batch = self.method.next_batch(self.policy)
        with self._watch("updating"):
            self.policy.update(batch.rollouts, batch.groups, batch.weights, batch.advantages)
        due = min(self.history[-1]["rollouts"] + self.plan.look_every, self.plan.budget)
        if self.method.counts.generated >= due:
            self._look()

    def state_dict(self) -> dict[str, Any]:
        """State for continuing the run."""
        return {
            "name": self.name,
            "policy": self.policy.state_dict(),
            "log": plain_log(self.policy.log),
            "history": self.history,
            "seconds": self.seconds,
        }

    def _look(self) -> None:
        with self._watch("looking"):
            accuracy = self.policy.accuracy()
        counts = self.method.counts
        rewards = [rollout.reward for rollouts in self.policy.log for rollout in rollouts]
        self.history.append(
            {
                "step": self.policy.version,
                "rollouts": counts.generated,
                "tokens": counts.generated_tokens,
                "trained": counts.trained,
                "accuracy": accuracy,
                "reward_so_far": sum(rewards) / max(1, len(rewards)),
            }
        )

    @contextmanager
    def _watch(self, what: str) -> Generator[None, None, None]:
        began = time.monotonic()
        yield
        self.seconds[what] += time.monotonic() - began


class Leaderboard(Table):
    """Every method with every seed, seed by seed; a run in progress is kept with its weights.

    The order lets the methods be compared before the last seed is done.
    """

    def __init__(self, setting: Setting, plan: Plan, model: Path, problems: Problems) -> None:
        names = [f"{method}/{seed}" for seed in plan.seeds for method in plan.shapes]
        super().__init__(setting.state, {name: lambda name=name: self._finish(name) for name in names})
        self.setting, self.plan, self.model, self.problems = setting, plan, model, problems
        self.training: Training | None = None

    def advance(self) -> bool:
        """One update of the run in progress; it is recorded after its last."""
        if not self.names_left():
            return False
        training = self.training = self.training or self._open(self.names_left()[0])
        if not training.is_over():
            training.step()
        return super().advance() if training.is_over() else True

    def save(self) -> None:
        """Write the records and the run in progress."""
        super().save()
        if self.training is None:
            return  # the saved state is of an earlier call, or of a run with a record, which `_open` skips
        file = io.BytesIO()
        torch.save(self.training.state_dict(), file)
        save_bytes(self.setting.state, "run", file.getvalue())

    def figures(self) -> dict[str, Any]:
        """Finished runs, and each method's accuracies before and after."""
        by_method: dict[str, list[list[float]]] = {}
        for name, record in self.records.items():
            accuracies = [look["accuracy"] for look in record["history"]]
            by_method.setdefault(name.split("/")[0], []).append([accuracies[0], accuracies[-1]])
        return {"accuracy_before_and_after": by_method, "runs": self.records}

    def _finish(self, name: str) -> dict[str, Any]:
        training = self.training
        assert training is not None
        assert training.name == name
        self.training = None
        return {"history": training.history, "seconds": training.seconds}

    def _open(self, name: str) -> Training:
        """The run of the saved state, if there is one, or a new one."""
        data = load_bytes(self.setting.state, "run")
        state = None if data is None else torch.load(io.BytesIO(data), weights_only=True)
        if state is not None and state["name"] == name:
            try:
                return Training(name, self.plan, self.model, self.problems, self.setting.device, state)
            except OtherRequestError as error:
                print(f"{name} starts again: {error}")
        return Training(name, self.plan, self.model, self.problems, self.setting.device)


def make(setting: Setting) -> Leaderboard:
    """With SmolLM2 and SVAMP in `outputs`, or with the toy's model and questions."""
    if setting.is_toy:
        plan = TOY
        model, data = make_toy_assets(setting.state / "toy")
    else:
        plan = FULL
        model, data = setting.root / "outputs/models/smollm2_135m", setting.root / "outputs/data/svamp"
    problems = read_problems(model, data, max_response=plan.max_response)
    saved = load_bytes(setting.state, "prompt_states")
    if saved is None:
        # Written once: on another machine the last digits differ, and choose would ask for other prompts.
        file = io.BytesIO()
        np.save(file, prompt_states(problems, model, setting.device))
        saved = file.getvalue()
        save_bytes(setting.state, "prompt_states", saved)
    return Leaderboard(setting, plan, model, with_states(problems, np.load(io.BytesIO(saved))))
