"""Visits states: samples next tokens, rolls each out in the engines, and has the answers judged."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from recipe.golden_redaction.method.credit import CreditSettings, action_set
from recipe.golden_redaction.method.judging import Answer, Judge
from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.method.visits import Rollout, StateVisit
from verl_ext.arc.prompts import teacher_token
from verl_ext.serving.requests import Continuation, Continuations, Generator

# Actions whose answers are judged concurrently; the executor limits the number of running programs.
JUDGED_AT_ONCE = 16


class StateVisitor:
    """Queries the engines and a judge about states.

    Args:
        engines: Awake rollout servers.
        judge: Gives answers their rewards.
        end_tokens: Token ids that end a text: such an action is not continued.
        settings: How many tokens and rollouts.
        max_new_tokens: Maximum tokens of a rollout.
    """

    def __init__(
        self,
        engines: Generator,
        judge: Judge,
        end_tokens: frozenset[int],
        settings: CreditSettings,
        max_new_tokens: int,
    ) -> None:
        self._engines = engines
        self._judge = judge
        self._end_tokens = end_tokens
        self._settings = settings
        self._max_new_tokens = max_new_tokens

    def visit(
        self,
        states: Sequence[RedactedState],
        problems: Mapping[str, Problem],
        weight_version: int,
        timed: Callable[[str], Any],
    ) -> list[StateVisit]:
        """Actions and judged rollouts of states; an action's answers are judged while others are still rolled out.

        Args:
            states: States of distinct problems.
            problems: Problems by id.
            weight_version: Version of the weights that the engines serve.
            timed: Context manager that times a named phase: gen, then sandbox for the remaining programs.
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
        """Labels of free rollouts from states: only the redacted golden solution is given."""
        requests = [
            Continuations(
                problems[state.problem].state(state.k, state.prompt),
                num_rollouts,
                self._max_new_tokens,
                index,
                self._judge.stop,
            )
            for index, state in enumerate(states)
        ]
        answers = [
            Answer(problems[state.problem], problems[state.problem].given(state.k), tuple(ids), reason != "aborted")
            for state, samples in zip(states, self._engines.generate(requests), strict=True)
            for ids, reason in samples
        ]
        labels = iter(rollout.reward for rollout in self._judge.session()(answers))
        return [list(islice(labels, num_rollouts)) for _ in states]

    def _ask(
        self, states: Sequence[RedactedState], problems: Mapping[str, Problem], weight_version: int
    ) -> list[StateVisit]:
        """Visits with their actions."""
        ids = [problems[state.problem].state(state.k, state.prompt) for state in states]
        requests = [Continuations(text, self._settings.num_next_tokens, 1, index) for index, text in enumerate(ids)]
        visits: list[StateVisit] = []
        for state, text, samples in zip(states, ids, self._engines.generate(requests), strict=True):
            teacher = teacher_token(problems[state.problem].golden_ids, state.k)
            sampled = [rollout[0] for rollout, _ in samples if rollout]
            tokens = tuple(action_set(sampled, teacher, self._settings.max_actions))
            visit = StateVisit(state.problem, state.k, tuple(text), teacher, tokens, weight_version)
            visit.prompt = state.prompt
            visit.golden_start = len(problems[state.problem].prompts[state.prompt])
            visits.append(visit)
        return visits

    def _roll_out(
        self, visits: Sequence[StateVisit], problems: Mapping[str, Problem], threads: ThreadPoolExecutor
    ) -> list[list[Future[list[Rollout]]]]:
        """`rollouts_per_action` judged rollouts of every action of every visit; waits only for the engines."""
        num = self._settings.rollouts_per_action
        judged_alike = self._judge.session()

        def judge(visit: StateVisit, action: int, samples: Sequence[Continuation]) -> Future[list[Rollout]]:
            problem = problems[visit.problem]
            answers = [
                Answer(problem, problem.given(visit.k), (action, *ids), reason != "aborted") for ids, reason in samples
            ]
            return threads.submit(judged_alike, answers)

        places = [(index, action) for index, visit in enumerate(visits) for action in visit.tokens]
        nothing: list[Continuation] = [([], None)] * num
        judged = {
            (index, action): judge(visits[index], action, nothing)
            for index, action in places
            if action in self._end_tokens
        }
        rolled_out = [place for place in places if place not in judged]
        requests = [
            Continuations([*visits[index].ids, action], num, self._max_new_tokens, index, self._judge.stop)
            for index, action in rolled_out
        ]
        for place, samples in self._engines.generate_as_completed(requests):
            index, action = rolled_out[place]
            judged[index, action] = judge(visits[index], action, samples)
        return [[judged[index, action] for action in visit.tokens] for index, visit in enumerate(visits)]
