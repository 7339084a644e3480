"""Queries about states to the actor, and its training data. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recipe.golden_redaction.method.targets import token_weights
from recipe.golden_redaction.method.visits import StateVisit


@dataclass(frozen=True)
class StateTokens:
    """A state and the tokens whose log-probs are requested.

    Attributes:
        ids: Token ids of the state.
        tokens: K token ids, all different.
    """

    ids: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class LabelledState(StateTokens):
    """A state to train on.

    Attributes:
        targets: K target log-probs in nats; NaN without a label.
        advantages: K numbers in {+1, 0, -1}.
        weights: K weights in the loss; see `targets.token_weights`.
    """

    targets: tuple[float, ...]
    advantages: tuple[int, ...]
    weights: tuple[float, ...]


def mini_batches(visits: Sequence[StateVisit], size: int, reduction: str) -> list[list[LabelledState]]:
    """The labelled states of a step's credited visits, cut into updates.

    Args:
        visits: Visits of the step.
        size: Visits per update. Updates without a labelled state are left out, so there may be fewer.
        reduction: How an update's tokens are weighted, one of `targets.REDUCTIONS`.
    """
    batches: list[list[LabelledState]] = []
    for start in range(0, len(visits), size):
        labelled = [visit for visit in visits[start : start + size] if visit.credit.advantages.any()]
        if not labelled:
            continue
        numbers = [number for number, visit in enumerate(labelled) for _ in visit.tokens]
        advantages = np.concatenate([visit.credit.advantages for visit in labelled])
        weights = iter(token_weights(numbers, advantages, reduction).tolist())
        batches.append(
            [
                LabelledState(
                    ids=visit.ids,
                    tokens=visit.tokens,
                    targets=tuple(visit.targets.log_probs.tolist()),
                    advantages=tuple(visit.credit.advantages.tolist()),
                    weights=tuple(next(weights) for _ in visit.tokens),
                )
                for visit in labelled
            ]
        )
    return batches


class ReferenceLogProbs:
    """Log-probs under the weights that the run began with: computed once per token of a state, then cached."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int, int], float] = {}  # by problem, prompt, k and token

    def missing(self, visits: Sequence[StateVisit]) -> list[tuple[StateVisit, StateTokens]]:
        """The queries to compute before `fill`, and their visits."""
        missing: list[tuple[StateVisit, StateTokens]] = []
        for visit in visits:
            tokens = tuple(token for token in visit.tokens if _key(visit, token) not in self._known)
            if tokens:
                missing.append((visit, StateTokens(visit.ids, tokens)))
        return missing

    def add(self, visit: StateVisit, tokens: Sequence[int], log_probs: Sequence[float]) -> None:
        """Add the log-probs of some tokens of a visit's state, in nats."""
        for token, value in zip(tokens, log_probs, strict=True):
            self._known[_key(visit, token)] = value

    def fill(self, visits: Sequence[StateVisit]) -> None:
        """Set `reference` of every visit; raises KeyError if one of its tokens was never added."""
        for visit in visits:
            visit.reference = [self._known[_key(visit, token)] for token in visit.tokens]


def _key(visit: StateVisit, token: int) -> tuple[str, int, int, int]:
    return visit.problem, visit.prompt, visit.k, token
