"""Visits states: samples next tokens, rolls each out, runs the programs. Between the engines and the sandbox."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from recipe.golden_redaction.credit import INFRASTRUCTURE_ERROR, CreditSettings, action_set, label
from recipe.golden_redaction.problems import Problem
from recipe.golden_redaction.prompts import FENCE, Tokenizer, decode_answer, program, state_ids, teacher_token
from recipe.golden_redaction.redaction import RedactedState
from recipe.golden_redaction.visits import Visit
from verl_ext.engines import Continuations, ServingEngines
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.results import ProgramResult, Status


@dataclass(frozen=True)
class Answer:
    """A program that was sampled for a problem.

    Attributes:
        problem: The problem.
        ids: Token ids behind the assistant prefix, hidden or not.
        is_whole: False if the engine gave up on it: it says nothing.
    """

    problem: Problem
    ids: tuple[int, ...]
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
        engines: ServingEngines,
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
        problems: dict[str, Problem],
        weight_version: int,
        timed: Callable[[str], Any],
    ) -> list[Visit]:
        """Actions and judged rollouts of states.

        Args:
            states: Different problems.
            problems: By id.
            weight_version: Of the weights that the engines serve.
            timed: Context manager of a named phase: gen, sandbox.
        """
        of = [problems[state.problem] for state in states]
        ks = [state.k for state in states]
        ids = [state_ids(problem.prompt_ids, problem.golden_ids, k) for problem, k in zip(of, ks, strict=True)]
        teachers = [teacher_token(problem.golden_ids, k) for problem, k in zip(of, ks, strict=True)]
        with timed("gen"):
            actions = self._actions(ids, teachers)
            continuations = self._roll_out(ids, actions)
        answers = [
            Answer(problem, (*problem.golden_ids[: len(problem.golden_ids) - state.k], action, *rollout), is_whole)
            for problem, state, tokens, rollouts in zip(of, states, actions, continuations, strict=True)
            for action, samples in zip(tokens, rollouts, strict=True)
            for rollout, is_whole in samples
        ]
        with timed("sandbox"):
            records = iter(self.judge(answers))
        visits = []
        for state, state_id, teacher, tokens, rollouts in zip(
            states, ids, teachers, actions, continuations, strict=True
        ):
            judged = []
            for action, samples in zip(tokens, rollouts, strict=True):
                texts = [decode_answer([action, *rollout], self._tokenizer) for rollout, _ in samples]
                judged.append(tuple({"text": text} | next(records) for text in texts))
            visits.append(
                Visit(state.problem, state.k, tuple(state_id), teacher, tuple(tokens), tuple(judged), weight_version)
            )
        return visits

    def pass_rates(
        self, states: Sequence[RedactedState], problems: dict[str, Problem], num_rollouts: int
    ) -> list[list[float | None]]:
        """Labels of free rollouts from states: nothing but the redacted golden solution is given."""
        of = [problems[state.problem] for state in states]
        requests = [
            Continuations(
                state_ids(problem.prompt_ids, problem.golden_ids, state.k),
                num_rollouts,
                self._max_new_tokens,
                place,
                (FENCE,),
            )
            for place, (problem, state) in enumerate(zip(of, states, strict=True))
        ]
        answers = [
            Answer(problem, (*problem.golden_ids[: len(problem.golden_ids) - state.k], *rollout), reason != "aborted")
            for problem, state, samples in zip(of, states, self._engines.generate(requests), strict=True)
            for rollout, reason in samples
        ]
        labels = iter(record["reward"] for record in self.judge(answers))
        return [[next(labels) for _ in range(num_rollouts)] for _ in states]

    def judge(self, answers: Sequence[Answer]) -> list[dict[str, Any]]:
        """Reward and statuses of answers on their examples, and the grids if they are kept.

        Equal programs of a problem run once. A program that met an infrastructure error is run once more.
        """
        programs = [program(decode_answer(answer.ids, self._tokenizer)) for answer in answers]
        keys = [
            (answer.problem.id, text) if answer.is_whole else None
            for answer, text in zip(answers, programs, strict=True)
        ]
        pairs = {answer.problem.id: answer.problem.pairs for answer in answers}
        waiting = list(dict.fromkeys(key for key in keys if key is not None))
        results: dict[tuple[str, str], ProgramResult] = {}
        for _ in range(2):
            jobs = [(text, pairs[name]) for name, text in waiting]
            results |= zip(waiting, self._executor.check_many(jobs, stop_at_first_failure=True), strict=True)
            waiting = [key for key in waiting if _met_infrastructure_error(results[key])]
            if not waiting:
                break
        return [self._record(results.get(key) if key is not None else None) for key in keys]

    def _record(self, result: ProgramResult | None) -> dict[str, Any]:
        if result is None:
            return {"reward": None, "statuses": [INFRASTRUCTURE_ERROR]}
        statuses = [str(execution.status) for execution in result.pairs]
        record: dict[str, Any] = {"reward": label(statuses), "statuses": statuses}
        if self._with_outputs:
            record["outputs"] = [execution.grid for execution in result.pairs]
        return record

    def _actions(self, ids: Sequence[Sequence[int]], teachers: Sequence[int]) -> list[list[int]]:
        requests = [Continuations(state, self._settings.num_next_tokens, 1, place) for place, state in enumerate(ids)]
        sampled = self._engines.generate(requests)
        return [
            action_set([rollout[0] for rollout, _ in samples if rollout], teacher, self._settings.max_actions)
            for samples, teacher in zip(sampled, teachers, strict=True)
        ]

    def _roll_out(
        self, ids: Sequence[Sequence[int]], actions: Sequence[Sequence[int]]
    ) -> list[list[list[tuple[list[int], bool]]]]:
        """[state][action][rollout] -> its token ids after the action, and whether it came to its end."""
        num = self._settings.rollouts_per_action
        requests = [
            Continuations([*state, action], num, self._max_new_tokens, place, (FENCE,))
            for place, (state, tokens) in enumerate(zip(ids, actions, strict=True))
            for action in tokens
            if action not in self._end_tokens
        ]
        made = iter(self._engines.generate(requests))
        return [
            [
                [([], True)] * num
                if action in self._end_tokens
                else [(rollout, reason != "aborted") for rollout, reason in next(made)]
                for action in tokens
            ]
            for tokens in actions
        ]


def _met_infrastructure_error(result: ProgramResult) -> bool:
    return any(execution.status is Status.INFRASTRUCTURE_ERROR for execution in result.pairs)
