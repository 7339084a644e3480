"""From sampled answers to rewards: programs that run in the sandbox, or texts that a reward function reads."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.visits import Rollout
from recipe.golden_redaction.method.worked import WorkedProblem
from verl_ext.arc.prompts import FENCE, Tokenizer, decode_answer, program
from verl_ext.launch.preflight.verdicts import Case, score_answer
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.programs import Programs
from verl_ext.sandbox.results import ProgramResult, Status

ATTEMPTS = 2  # of a program that met an infrastructure error
# `acc`, or the score where the reward function gives no `acc`, from which on an answer passes.
PASS_FROM = 0.5


@dataclass(frozen=True)
class Answer:
    """An answer that was sampled for a problem.

    Attributes:
        problem: The problem.
        given: Golden tokens that were not hidden.
        made: Token ids after them: the action, if there is one, and its continuation.
        is_whole: False if the engine aborted it: it has no reward.
    """

    problem: Problem
    given: tuple[int, ...]
    made: tuple[int, ...]
    is_whole: bool


Session = Callable[[Sequence[Answer]], list[Rollout]]


class Judge(Protocol):
    """Gives answers their rewards; any number of threads may ask."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a rollout."""
        ...

    def session(self) -> Session:
        """A function from answers to rollouts with their rewards; equal answers of all its calls are judged once."""
        ...

    def close(self) -> None:
        """Release the judge's resources."""
        ...


class ProgramJudge:
    """Runs the answers as programs, on the examples and then on the held-out pairs.

    A program that met an infrastructure error is run once more.

    Args:
        executor: Runs programs; closed with the judge.
        tokenizer: The policy's.
        with_outputs: Keep the grids that programs returned in the rollouts' records.
    """

    stop = (FENCE,)

    def __init__(self, executor: Executor, tokenizer: Tokenizer, with_outputs: bool) -> None:
        self._executor = executor
        self._tokenizer = tokenizer
        self._with_outputs = with_outputs

    def session(self) -> Session:
        """A function from answers to rollouts; equal programs of all its calls run once."""
        programs = Programs(self._executor, ATTEMPTS)

        def judge(answers: Sequence[Answer]) -> list[Rollout]:
            jobs = [
                (answer.problem.id, program(decode_answer((*answer.given, *answer.made), self._tokenizer)))
                for answer in answers
                if answer.is_whole
            ]
            pairs = {answer.problem.id: answer.problem.reward_pairs for answer in answers}
            results = iter(programs.run("reward", jobs, pairs, stop_at_first_failure=True))
            return [self._rollout(answer, next(results) if answer.is_whole else None) for answer in answers]

        return judge

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()

    def _rollout(self, answer: Answer, result: ProgramResult | None) -> Rollout:
        text = decode_answer(answer.made, self._tokenizer)
        if result is None:
            return _unknown(text)
        outputs = tuple(execution.grid for execution in result.pairs) if self._with_outputs else None
        return Rollout(text, result.reward, tuple(map(str, result.statuses)), outputs)


class RewardJudge:
    """Asks the run's reward function about the whole answer: the visible golden tokens and their continuation.

    Args:
        function: As verl calls it: (data_source, solution_str, ground_truth, extra_info).
        tokenizer: The policy's.
    """

    stop: tuple[str, ...] = ()

    def __init__(self, function: Callable[..., Any], tokenizer: Tokenizer) -> None:
        self._function = function
        self._tokenizer = tokenizer

    def session(self) -> Session:
        """A function from answers to rollouts; equal answers of all its calls are asked about once."""
        known: dict[tuple[str, str], Future[bool]] = {}
        lock = Lock()

        def passes(problem: WorkedProblem, text: str) -> bool:
            with lock:
                key = problem.id, text
                is_new = key not in known
                future = known.setdefault(key, Future())
            if is_new:
                try:
                    future.set_result(is_right(self._function, problem.case, text))
                except BaseException as error:
                    future.set_exception(error)
            return future.result()

        def judge(answers: Sequence[Answer]) -> list[Rollout]:
            rollouts = []
            for answer in answers:
                text = decode_answer(answer.made, self._tokenizer)
                if not answer.is_whole:
                    rollouts.append(_unknown(text))
                    continue
                assert isinstance(answer.problem, WorkedProblem)
                whole = decode_answer((*answer.given, *answer.made), self._tokenizer)
                right = passes(answer.problem, whole)
                status = Status.OK if right else Status.WRONG_OUTPUT
                rollouts.append(Rollout(text, float(right), (str(status),)))
            return rollouts

        return judge

    def close(self) -> None:
        """Nothing to release."""


def is_right(function: Callable[..., Any], case: Case, text: str) -> bool:
    """Whether a reward function calls an answer right: its `acc`, or else its score, is at least `PASS_FROM`."""
    verdict = score_answer(function, case, text)
    return float(verdict.extra.get("acc", verdict.score)) >= PASS_FROM


def _unknown(text: str) -> Rollout:
    return Rollout(text, None, (str(Status.INFRASTRUCTURE_ERROR),))
