"""Golden redaction with two ranks and two engines, on real Ray, FSDP2 and vLLM."""

from typing import Any

import numpy as np
import pytest
from golden_assets import GoldenAssets
from lab import Lab

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def golden_pair(labs: Any, golden_assets: GoldenAssets) -> Lab:
    two = [*golden_assets.overrides(), "trainer.n_gpus_per_node=2"]
    return labs.get("golden_pair", *two, recipe="golden_redaction_cpu")


def test_tokens_move_as_intended_in_both_engines(golden_pair: Lab):
    steps = [golden_pair.step() for _ in range(4)]
    counts = [metrics["golden/movement/engine/num_tokens"] for metrics in steps]
    shares = [metrics.get("golden/movement/engine/intended_way", 0.0) for metrics in steps]
    assert sum(counts) >= 6
    assert np.average(shares, weights=counts) >= 0.8
    # State i is asked of engine i modulo 2.
    assert all(metrics["engine_guard/probs_diff_max/after"] < 1e-3 for metrics in steps)


def test_both_engines_serve_the_actors_weights_and_both_ranks_have_states(golden_pair: Lab):
    golden_pair.step()

    def ask(trainer: Any) -> tuple[list[list[list[float]]], list[list[float]], list[int]]:
        """Log-probs of the last visits' tokens in each engine and in the actor; states of each rank."""
        import ray

        from recipe.golden_redaction.method.labelled_states import StateTokens

        visits = trainer.visits
        served = [
            ray.get([server.next_token_log_probs.remote(list(v.ids), list(v.tokens)) for v in visits])
            for server in trainer.engines._servers
        ]
        own, _ = trainer.log_probs(visits)
        ranks = trainer.actor_rollout_wg.state_log_probs([StateTokens(v.ids, v.tokens) for v in visits])
        return served, own, [len(rank.log_probs) for rank in ranks]

    served, own, states = golden_pair.call(ask)
    assert len(served) == 2
    assert states == [1, 1]
    for engine in served:
        for found, wanted in zip(engine, own, strict=True):
            np.testing.assert_allclose(np.exp(found), np.exp(wanted), rtol=0, atol=1e-4)


class CountingServer:
    """A server of an engine, with the number of its requests for rollouts."""

    def __init__(self, server: Any) -> None:
        self.server, self.num = server, 0

    def __getattr__(self, name: str) -> Any:
        self.num += name == "generate_many"
        return getattr(self.server, name)


def _count_requests(trainer: Any) -> list[int]:
    """Requests for rollouts that each engine gets in a step."""
    from verl.utils.debug import marked_timer

    from verl_ext.serving import data_plane

    servers = trainer.engines._servers
    trainer.engines._servers = [CountingServer(server) for server in servers]
    trainer.timing_raw = {}
    try:
        with marked_timer("step", trainer.timing_raw):
            batch = trainer.step({}, trainer.timing_raw)
        counts = [server.num for server in trainer.engines._servers]
    finally:
        trainer.engines._servers = servers
    data_plane.clear(batch.keys, batch.partition_id)
    trainer.global_steps += 1
    return counts


def test_rollouts_come_from_both_engines(golden_pair: Lab):
    golden_pair.step()
    assert min(golden_pair.call(_count_requests)) >= 1
