"""A request for continuations and the interface that answers it, so that callers need not know the engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

# Token ids of a continuation, and why it ended.
Continuation = tuple[list[int], str | None]


@dataclass(frozen=True)
class Continuations:
    """A request for continuations of one prompt.

    Attributes:
        prompt_ids: Token ids.
        num: Number of continuations.
        max_tokens: Maximum tokens of each.
        place: Requests with the same number go to the same server, whose prefix cache already has the prompt.
        stop: Strings at which a continuation ends.
    """

    prompt_ids: Sequence[int]
    num: int
    max_tokens: int
    place: int
    stop: tuple[str, ...] = ()


class Generator(Protocol):
    """`engines.ServingEngines`, or a test double."""

    def generate(self, requests: Sequence[Continuations]) -> list[list[Continuation]]:
        """The continuations of each request, by request."""
        ...

    def generate_as_completed(self, requests: Sequence[Continuations]) -> Iterator[tuple[int, list[Continuation]]]:
        """A request's index among the requests and its continuations, as soon as it has all of them."""
        ...
