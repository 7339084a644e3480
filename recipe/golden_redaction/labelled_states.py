"""What the actor is asked about states, and what it trains on. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recipe.golden_redaction.credit import StateCredit
from recipe.golden_redaction.targets import Targets, token_weights
from recipe.golden_redaction.visits import Visit


@dataclass(frozen=True)
class StateTokens:
    """A state and the tokens that are asked about.

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


def mini_batches(
    visits: Sequence[Visit], credits: Sequence[StateCredit], targets: Sequence[Targets], size: int, reduction: str
) -> list[list[LabelledState]]:
    """The labelled states of a step, cut into updates.

    Args:
        visits, credits, targets: Of the step, in the same order.
        size: Visits an update. Updates without a labelled state are left out, so there may be fewer.
        reduction: How an update's tokens weigh, one of `targets.REDUCTIONS`.
    """
    batches: list[list[LabelledState]] = []
    for start in range(0, len(visits), size):
        end = min(start + size, len(visits))
        places = [place for place in range(start, end) if credits[place].advantages.any()]
        if not places:
            continue
        numbers = [place for place in places for _ in visits[place].tokens]
        advantages = np.concatenate([credits[place].advantages for place in places])
        weights = iter(token_weights(numbers, advantages, reduction).tolist())
        batches.append(
            [
                LabelledState(
                    ids=visits[place].ids,
                    tokens=visits[place].tokens,
                    targets=tuple(targets[place].log_probs.tolist()),
                    advantages=tuple(credits[place].advantages.tolist()),
                    weights=tuple(next(weights) for _ in visits[place].tokens),
                )
                for place in places
            ]
        )
    return batches


class ReferenceLogProbs:
    """Log-probs under the weights that the run began with: computed once for each token of a state, then kept."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], float] = {}  # by problem, k and token

    def missing(self, visits: Sequence[Visit]) -> dict[int, StateTokens]:
        """What has to be computed before `of`: by place of the visit."""
        missing: dict[int, StateTokens] = {}
        for place, visit in enumerate(visits):
            tokens = tuple(token for token in visit.tokens if (visit.problem, visit.k, token) not in self._known)
            if tokens:
                missing[place] = StateTokens(visit.ids, tokens)
        return missing

    def add(self, visit: Visit, tokens: Sequence[int], log_probs: Sequence[float]) -> None:
        """Keep those of some tokens of a visit's state, in nats."""
        for token, value in zip(tokens, log_probs, strict=True):
            self._known[visit.problem, visit.k, token] = value

    def of(self, visits: Sequence[Visit]) -> list[list[float]]:
        """Of every visit's tokens; raises KeyError if one was never added."""
        return [[self._known[visit.problem, visit.k, token] for token in visit.tokens] for visit in visits]
