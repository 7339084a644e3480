"""A request for continuations, and who answers it; what asks for them needs to know no engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

# Token ids of a continuation, and the reason of its end.
Continuation = tuple[list[int], str | None]


@dataclass(frozen=True)
class Continuations:
    """A request for continuations of one prompt.

    Attributes:
        prompt_ids: Token ids.
        num: How many.
        max_tokens: Tokens of each at most.
        place: Requests with the same number go to the same server, whose prefix cache has the prompt already.
        stop: Texts at which a continuation ends.
    """

    prompt_ids: Sequence[int]
    num: int
    max_tokens: int
    place: int
    stop: tuple[str, ...] = ()


class Generator(Protocol):
    """`engines.ServingEngines`, or a test's stand-in."""

    def generate(self, requests: Sequence[Continuations]) -> list[list[Continuation]]:
        """The continuations of each request, by request."""
        ...

    def generate_as_completed(self, requests: Sequence[Continuations]) -> Iterator[tuple[int, list[Continuation]]]:
        """A request's place among the requests and its continuations, as soon as it has all of them."""
        ...
