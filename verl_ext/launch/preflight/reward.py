"""Checks that the reward function loads, accepts the data's rows, and returns the values that the recipe reads.

It runs in a child process with a time limit, on a wrong answer and on the ground truth in the form of an answer.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from omegaconf import DictConfig

from verl_ext.launch.preflight.verdicts import Case, Success, Trial, place, trial_problems, try_case

T = TypeVar("T")

# Seconds for all answers together: a reward function may load a model first.
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class RewardReport:
    """Results of the trials: problems, and one line per data source for a dry run."""

    problems: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)


def check_reward(config: DictConfig, cases: Sequence[Case], success: Success | None) -> RewardReport:
    """Try the run's reward function.

    Args:
        config: Configuration of a run whose rewards come from a function, not from a model.
        cases: One row per data source.
        success: The recipe's criterion of success; None: only the reward itself is used.
    """
    name = function_name(config)
    answer = in_child(lambda: _try_all(config, cases), TIMEOUT_S)
    if isinstance(answer, str):
        return RewardReport([f"{name}: {answer}"])
    problems = [problem for trial in answer for problem in trial_problems(trial, success, name)]
    return RewardReport(problems, [("reward", row) for trial in answer for row in _rows(trial)])


def _try_all(config: DictConfig, cases: Sequence[Case]) -> list[Trial]:
    function = load_function(config)
    return [try_case(function, case) for case in cases]


def function_name(config: DictConfig) -> str:
    """The reward function as named in the configuration."""
    node = config.reward.custom_reward_function
    return f"reward.custom_reward_function={node.path}:{node.name}" if node.path else "verl's default reward function"


def load_function(config: DictConfig) -> Callable[..., Any]:
    """The run's reward function, or else verl's default."""
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.utils.reward_score import default_compute_score

    return get_custom_reward_fn(config) or default_compute_score


def _rows(trial: Trial) -> Iterator[str]:
    if trial.wrong is not None:
        scores = [verdict.score for verdict in trial.right]
        yield f"{trial.case.data_source}: {trial.wrong.score:g} for a wrong answer, {max(scores):g} for the right one"


# ------------------------------ a child process ------------------------------


def in_child(function: Callable[[], list[T]], timeout_s: float) -> list[T] | str:
    """The result of `function` in a separate process, or how that ended."""
    context = multiprocessing.get_context("fork")  # everything is imported already
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(function, sender))
    child.start()
    sender.close()
    try:
        if not receiver.poll(timeout_s):
            return f"did not answer within {timeout_s:g} s"
        return receiver.recv()
    except EOFError:
        child.join()
        return f"ended its process with exit code {child.exitcode}"
    finally:
        child.kill()
        child.join()


def _send(function: Callable[[], list[Any]], sender: Connection) -> None:
    try:
        sender.send(function())
    # It cannot be loaded: missing file, missing name, or an error in the file.
    except Exception as error:
        sender.send(place(error))
