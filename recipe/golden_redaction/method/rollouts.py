"""Visits states: samples next tokens, rolls each out, runs the programs. Between the engines and the sandbox."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from recipe.golden_redaction.method.credit import CreditSettings, action_set
from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.method.visits import Rollout, StateVisit
from verl_ext.arc.prompts import FENCE, Tokenizer, decode_answer, program, teacher_token
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.programs import Programs
from verl_ext.sandbox.results import ProgramResult, Status
from verl_ext.serving.requests import Continuation, Continuations, Generator

ATTEMPTS = 2  # of a program that met an infrastructure error
# Actions whose programs are judged at the same time; how many programs run at once is the executor's affair.
JUDGED_AT_ONCE = 16


@dataclass(frozen=True)
class Answer:
    """A program that was sampled for a problem.

    Attributes:
        problem: The problem.
        given: Golden tokens that were not hidden.
        made: Token ids behind them: the action, if there is one, and what followed.
        is_whole: False if the engine gave up on it: it says nothing.
    """

    problem: Problem
    given: tuple[int, ...]
    made: tuple[int, ...]
    is_whole: bool


class StateVisitor:
    """Asks the engines and the sandbox about states.

    Args:
        engines: Awake rollout servers.
        executor: Runs programs.
        tokenizer: Of the policy.
        end_tokens: Token ids that end a text: nothing follows such an action.
        settings: How many tokens and rollouts.
        max_new_tokens: Of a rollout.
        with_outputs: Keep the grids that programs returned in the rollouts' records.
    """

    def __init__(
        self,
        engines: Generator,
        executor: Executor,
        tokenizer: Tokenizer,
        end_tokens: frozenset[int],
        settings: CreditSettings,
        max_new_tokens: int,
        with_outputs: bool,
    ) -> None:
        self._engines = engines
        self._executor = executor
        self._tokenizer = tokenizer
        self._end_tokens = end_tokens
        self._settings = settings
        self._max_new_tokens = max_new_tokens
        self._with_outputs = with_outputs

    def visit(
        self,
        states: Sequence[RedactedState],
        problems: Mapping[str, Problem],
        weight_version: int,
        timed: Callable[[str], Any],
    ) -> list[StateVisit]:
        """Actions and judged rollouts of states. An action's programs run while other actions are still rolled out.

        Args:
            states: Different problems.
            problems: By id.
            weight_version: Of the weights that the engines serve.
            timed: Context manager of a named phase: gen, and sandbox for what it has left to do then.
        """
        with ThreadPoolExecutor(JUDGED_AT_ONCE, thread_name_prefix="judge") as threads:
            with timed("gen"):
                visits = self._ask(states, problems, weight_version)
                judged = self._roll_out(visits, problems, threads)
            with timed("sandbox"):
                for visit, actions in zip(visits, judged, strict=True):
                    visit.rollouts = tuple(tuple(rollouts.result()) for rollouts in actions)
        return visits

    def pass_rates(
        self, states: Sequence[RedactedState], problems: Mapping[str, Problem], num_rollouts: int
    ) -> list[list[float | None]]:
        """Labels of free rollouts from states: nothing but the redacted golden solution is given."""
        requests = [
            Continuations(problems[state.problem].state(state.k), num_rollouts, self._max_new_tokens, index, (FENCE,))
            for index, state in enumerate(states)
        ]
        answers = [
            Answer(problems[state.problem], problems[state.problem].given(state.k), tuple(ids), reason != "aborted")
            for state, samples in zip(states, self._engines.generate(requests), strict=True)
            for ids, reason in samples
        ]
        labels = iter(rollout.reward for rollout in self.judge(answers))
        return [list(islice(labels, num_rollouts)) for _ in states]

    def judge(self, answers: Sequence[Answer], programs: Programs | None = None) -> list[Rollout]:
        """Answers with their rewards, from the examples and then what is held out, and the grids if they are kept.

        Equal programs of a problem run once. A program that met an infrastructure error is run once more.

        Args:
            answers: Any.
            programs: Those that equal ones of other calls are not run again for; None for these alone.
        """
        programs = programs or Programs(self._executor, ATTEMPTS)
        jobs = [
            (answer.problem.id, program(decode_answer((*answer.given, *answer.made), self._tokenizer)))
            for answer in answers
            if answer.is_whole
        ]
        pairs = {answer.problem.id: answer.problem.reward_pairs for answer in answers}
        results = iter(programs.run("reward", jobs, pairs, stop_at_first_failure=True))
        return [self._rollout(answer, next(results) if answer.is_whole else None) for answer in answers]

    def _rollout(self, answer: Answer, result: ProgramResult | None) -> Rollout:
        text = decode_answer(answer.made, self._tokenizer)
        if result is None:
            return Rollout(text, None, (str(Status.INFRASTRUCTURE_ERROR),))
        outputs = tuple(execution.grid for execution in result.pairs) if self._with_outputs else None
        return Rollout(text, result.reward, tuple(map(str, result.statuses)), outputs)

    def _ask(
        self, states: Sequence[RedactedState], problems: Mapping[str, Problem], weight_version: int
    ) -> list[StateVisit]:
        """Visits with their actions."""
        ids = [problems[state.problem].state(state.k) for state in states]
        requests = [Continuations(text, self._settings.num_next_tokens, 1, index) for index, text in enumerate(ids)]
        visits: list[StateVisit] = []
        for state, text, samples in zip(states, ids, self._engines.generate(requests), strict=True):
            teacher = teacher_token(problems[state.problem].golden_ids, state.k)
            sampled = [rollout[0] for rollout, _ in samples if rollout]
            tokens = tuple(action_set(sampled, teacher, self._settings.max_actions))
            visits.append(StateVisit(state.problem, state.k, tuple(text), teacher, tokens, weight_version))
        return visits

    def _roll_out(
        self, visits: Sequence[StateVisit], problems: Mapping[str, Problem], threads: ThreadPoolExecutor
    ) -> list[list[Future[list[Rollout]]]]:
        """`rollouts_per_action` judged rollouts of every action of every visit; only the engines are waited for."""
        num = self._settings.rollouts_per_action
        programs = Programs(self._executor, ATTEMPTS)

        def judge(visit: StateVisit, action: int, samples: Sequence[Continuation]) -> Future[list[Rollout]]:
            problem = problems[visit.problem]
            answers = [
                Answer(problem, problem.given(visit.k), (action, *ids), reason != "aborted") for ids, reason in samples
            ]
            return threads.submit(self.judge, answers, programs)

        places = [(index, action) for index, visit in enumerate(visits) for action in visit.tokens]
        nothing: list[Continuation] = [([], None)] * num
        judged = {
            (index, action): judge(visits[index], action, nothing)
            for index, action in places
            if action in self._end_tokens
        }
        rolled_out = [place for place in places if place not in judged]
        requests = [
            Continuations([*visits[index].ids, action], num, self._max_new_tokens, index, (FENCE,))
            for index, action in rolled_out
        ]
        for place, samples in self._engines.generate_as_completed(requests):
            index, action = rolled_out[place]
            judged[index, action] = judge(visits[index], action, samples)
        return [[judged[index, action] for action in visit.tokens] for index, visit in enumerate(visits)]
