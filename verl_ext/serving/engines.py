"""A trainer's queries to the rollout servers of its run, besides verl's agent loops; `token_serving` answers them."""

from collections.abc import Iterator, Sequence
from typing import Any

import ray

from verl_ext.serving.requests import Continuation, Continuations

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "replica": "verl.workers.rollout.replica.RolloutReplica",
}


class ServingEngines:
    """The rollout servers of a run; they must be awake.

    Args:
        replicas: verl's replicas, from `llm_server_manager.get_replicas()`.
    """

    def __init__(self, replicas: Sequence[Any]) -> None:
        self._servers = [replica.servers[0] for replica in replicas]

    def generate(self, requests: Sequence[Continuations]) -> list[list[Continuation]]:
        """Continuations at temperature 1 from the whole distribution, by request; all run concurrently."""
        return ray.get(self._start(requests))

    def generate_as_completed(self, requests: Sequence[Continuations]) -> Iterator[tuple[int, list[Continuation]]]:
        """The same, yielding each request's index as soon as it has all of its continuations."""
        places = {call: place for place, call in enumerate(self._start(requests))}
        waiting = list(places)
        while waiting:
            (done, *_), waiting = ray.wait(waiting)
            yield places[done], ray.get(done)

    def _start(self, requests: Sequence[Continuations]) -> list[ray.ObjectRef]:
        calls = []
        for request in requests:
            params: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": request.max_tokens}
            if request.stop:
                params["stop"] = list(request.stop)
            server = self._servers[request.place % len(self._servers)]
            calls.append(server.generate_many.remote(list(request.prompt_ids), request.num, params))
        return calls

    def prompt_log_probs(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-prob of every token of each text except its first."""
        return ray.get(
            [
                self._servers[place % len(self._servers)].prompt_log_probs.remote(list(text))
                for place, text in enumerate(texts)
            ]
        )

    def next_token_log_probs(
        self, states: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Log-probs of each state's tokens; the server of `place` i answers for state i."""
        return ray.get(
            [
                self._servers[place % len(self._servers)].next_token_log_probs.remote(list(state), list(candidates))
                for place, (state, candidates) in enumerate(zip(states, tokens, strict=True))
            ]
        )
