"""Tries a reward function on a wrong and a right answer to a row, and reports problems for the run. Pure."""

import asyncio
import inspect
import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

WRONG_ANSWER = "I do not know."
# A right answer in the forms that reward functions read: unchanged, boxed, on DAPO's last line, on GSM8K's.
RIGHT_ANSWERS = ("{}", "\\boxed{{{}}}", "Answer: {}", "#### {}")


@dataclass(frozen=True)
class Case:
    """A row of the data that a reward function is tried on, the first of its data source."""

    data_source: str
    ground_truth: Any
    extra_info: Mapping[str, Any]
    where: str  # file and row


@dataclass(frozen=True)
class Verdict:
    """The reward function's result for one answer."""

    score: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """The outcome of one case: the verdicts on the wrong answer and on the right ones, or the error."""

    case: Case
    wrong: Verdict | None = None
    right: tuple[Verdict, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Success:
    """A recipe's criterion of success: an entry of the reward's result, above a threshold or as a grade.

    Attributes:
        metric: The entry; "reward" for the reward itself.
        threshold: The value that it must exceed; None: it is a grade from 0 to 1.
        metric_option: Option that names the metric, for messages.
        threshold_option: Option that gives the threshold.
    """

    metric: str
    threshold: float | None
    metric_option: str
    threshold_option: str

    def of(self, verdict: Verdict) -> float | None:
        """The entry's value; None if it is missing or not a number."""
        value = verdict.score if self.metric == "reward" else verdict.extra.get(self.metric)
        return float(value) if isinstance(value, Real) else None


def try_case(function: Callable[..., Any], case: Case) -> Trial:
    """Score a wrong answer and the right ones, as verl's reward manager does."""
    try:
        wrong = score_answer(function, case, WRONG_ANSWER)
        right = [score_answer(function, case, form.format(case.ground_truth)) for form in RIGHT_ANSWERS]
    # A user's function may raise anything.
    except Exception as error:
        return Trial(case, error=place(error))
    return Trial(case, wrong, tuple(right))


def score_answer(function: Callable[..., Any], case: Case, answer: str) -> Verdict:
    """Score one answer, as verl's reward manager does.

    Raises:
        TypeError: The function's result is neither a number nor a dict with a number under `score`.
    """
    extra_info = {**case.extra_info, "num_turns": None, "rollout_reward_scores": {}}
    result = function(
        data_source=case.data_source, solution_str=answer, ground_truth=case.ground_truth, extra_info=extra_info
    )
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    if isinstance(result, Mapping):
        if not isinstance(score := result.get("score"), Real):
            raise TypeError(f"expected a number under 'score' in its result, got {dict(result)!r}")
        return Verdict(float(score), dict(result))
    if not isinstance(result, Real):
        raise TypeError(f"expected a number, or a dict with 'score', got {result!r}")
    return Verdict(float(result), {"acc": float(result)})


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def place(error: Exception) -> str:
    """The error of the user's code, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = [frame for frame in frames if frame.filename != __file__]
    where = f" ({inner[-1].filename}, line {inner[-1].lineno})" if inner else ""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}{where}"


def trial_problems(trial: Trial, success: Success | None, name: str) -> Iterator[str]:
    """Problems that a trial found."""
    source = f"data_source={trial.case.data_source} ({trial.case.where})"
    if trial.error is not None or trial.wrong is None:
        yield f"{name} failed for {source}: {trial.error}"
        return
    verdicts = [trial.wrong, *trial.right]
    if any(not math.isfinite(verdict.score) for verdict in verdicts):
        yield f"{name} gave a reward that is not a finite number for {source}"
    if success is None:
        return
    values = [success.of(verdict) for verdict in verdicts]
    if None in values:
        names = sorted(name for name, value in trial.wrong.extra.items() if isinstance(value, Real))
        yield (
            f"{success.metric_option}={success.metric} is not among what {name} returns for {source}: "
            f"{', '.join(names)}. Use one of these, or 'reward' for the reward itself"
        )
        return
    known = [value for value in values if value is not None]
    if success.threshold is None:
        if outside := [value for value in known if not 0 <= value <= 1]:
            yield (
                f"{success.metric_option}={success.metric} is {outside[0]:g} for {source}, and "
                f"{success.threshold_option}=null expects a grade from 0 to 1: scale it in {name}, or set a "
                "threshold"
            )
        return
    # Only for rewards that are right or wrong: others may exceed those of these answers.
    if set(known) <= {-1.0, 0.0, 1.0} and max(known) > min(known) and max(known) <= success.threshold:
        yield (
            f"{success.threshold_option}={success.threshold:g} is not below what a right answer earns, {max(known):g} "
            f"for {source}: nothing would pass. Lower it"
        )
