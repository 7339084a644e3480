"""Log-probs of whole texts, a prompt and its golden solution, as the engines serve them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.method.visits import StateVisit
from verl_ext.serving.engines import ServingEngines


class TextLogProbs:
    """Log-probs, in nats, of every token of a text except the first, under two policies.

    Args:
        engines: Awake rollout servers.
        problems: Problems by id.
    """

    def __init__(self, engines: ServingEngines, problems: Mapping[str, Problem]) -> None:
        self._engines = engines
        self._problems = problems
        self._policy: dict[str, list[float]] = {}
        self._reference: dict[str, list[float]] = {}

    def measure(self, states: Sequence[RedactedState]) -> None:
        """Query the texts of some states under the current policy; log-probs of others are dropped."""
        self._policy = self._ask([(state.problem, state.prompt) for state in states])

    def measure_reference(self, path: Path, is_first: bool) -> None:
        """Log-probs before the first update; a resumed run reads its file of them, if it exists."""
        if is_first:
            texts = [
                (name, number) for name, problem in self._problems.items() for number in range(len(problem.prompts))
            ]
            self._reference = self._ask(texts)
            path.write_text(json.dumps(self._reference), encoding="utf-8")
        elif path.exists():
            self._reference = json.loads(path.read_text(encoding="utf-8"))

    def of_golden(self, state: RedactedState) -> list[float]:
        """Last measured log-probs of the golden tokens after the state's prompt."""
        return self._policy[_name(state.problem, state.prompt)][-len(self._problems[state.problem].golden_ids) :]

    def of_state(self, visit: StateVisit) -> dict[str, list[float | None]] | None:
        """Log-probs of the state's own tokens for the records, None for the first token; None if one of the two was not
        measured."""
        name = _name(visit.problem, visit.prompt)
        if name not in self._policy or name not in self._reference:
            return None
        last = len(visit.ids) - 1
        texts = {"policy": self._policy[name], "reference": self._reference[name]}
        return {name: [None, *(round(value, 4) for value in values[:last])] for name, values in texts.items()}

    def _ask(self, texts: Sequence[tuple[str, int]]) -> dict[str, list[float]]:
        problems = self._problems
        ids = [(*problems[name].prompts[number], *problems[name].golden_ids) for name, number in texts]
        names = [_name(name, number) for name, number in texts]
        return dict(zip(names, self._engines.prompt_log_probs(ids), strict=True))


def _name(problem: str, prompt: int) -> str:
    """Key of a text, in the file as well; files of runs with one prompt per problem have the problem's id."""
    return f"{problem} {prompt}" if prompt else problem
