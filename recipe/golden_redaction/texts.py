"""Log-probs of whole texts, each problem's prompt and golden solution, as the engines serve them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from recipe.golden_redaction.method.problems import Problem
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

    def measure(self, problems: Sequence[str]) -> None:
        """Query the texts of some problems under the current policy; log-probs of others are dropped."""
        self._policy = self._ask(problems)

    def measure_reference(self, path: Path, is_first: bool) -> None:
        """Log-probs before the first update; a resumed run reads its file of them, if it exists."""
        if is_first:
            self._reference = self._ask(list(self._problems))
            path.write_text(json.dumps(self._reference), encoding="utf-8")
        elif path.exists():
            self._reference = json.loads(path.read_text(encoding="utf-8"))

    def of_golden(self, problem: str) -> list[float]:
        """Last measured log-probs of the golden tokens."""
        return self._policy[problem][-len(self._problems[problem].golden_ids) :]

    def of_state(self, visit: StateVisit) -> dict[str, list[float | None]] | None:
        """Log-probs of the state's own tokens for the records, None for the first token; None if one of the two was not
        measured."""
        if visit.problem not in self._policy or visit.problem not in self._reference:
            return None
        last = len(visit.ids) - 1
        texts = {"policy": self._policy[visit.problem], "reference": self._reference[visit.problem]}
        return {name: [None, *(round(value, 4) for value in values[:last])] for name, values in texts.items()}

    def _ask(self, problems: Sequence[str]) -> dict[str, list[float]]:
        texts = [(*self._problems[name].prompt_ids, *self._problems[name].golden_ids) for name in problems]
        return dict(zip(problems, self._engines.prompt_log_probs(texts), strict=True))
