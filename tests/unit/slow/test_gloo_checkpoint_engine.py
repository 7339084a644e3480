"""Weights over gloo: two actor ranks, of which one sends, and two rollout workers; each in its own thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngineRegistry

from verl_ext.cpu.checkpoint_engine import GlooCheckpointEngine

Weights = list[tuple[str, torch.Tensor]]


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")


def _synchronise(actors: list[Any], rollouts: list[Any], weights: Weights) -> tuple[list[int], list[Weights]]:
    """As in verl's CheckpointEngineManager; returns how many weights each actor gathered and what each worker got."""
    metadata = [engine.prepare() for engine in (*actors, *rollouts)]
    topology = GlooCheckpointEngine.build_topology(len(actors), len(rollouts), metadata)
    engines = [*actors, *rollouts]
    arguments = [
        {name: values[place] for name, values in kwargs.items()}
        for kwargs, number in zip(topology, (len(actors), len(rollouts)), strict=True)
        for place in range(number)
    ]
    with ThreadPoolExecutor(len(engines)) as threads:
        list(threads.map(lambda engine, kwargs: engine.init_process_group(**kwargs), engines, arguments))
        sent = [threads.submit(_send, actor, weights) for actor in actors]
        received = [threads.submit(asyncio.run, _receive(rollout)) for rollout in rollouts]
        result = [call.result() for call in sent], [call.result() for call in received]
    for engine in engines:
        engine.finalize()
    return result


def _send(engine: GlooCheckpointEngine, weights: Weights) -> int:
    gathered = []

    def gather() -> Any:
        for name, weight in weights:
            gathered.append(name)
            yield name, weight

    asyncio.run(engine.send_weights(gather(), global_steps=3))
    return len(gathered)


async def _receive(engine: GlooCheckpointEngine) -> Weights:
    return [(name, tensor) async for name, tensor in engine.receive_weights(global_steps=3)]


def test_every_rollout_worker_gets_every_weight_bit_by_bit_each_time():
    actors = [GlooCheckpointEngine(1, is_master=True), GlooCheckpointEngine(1)]
    rollouts = [GlooCheckpointEngine(1), GlooCheckpointEngine(1)]
    for seed in (0, 1):
        random = torch.Generator().manual_seed(seed)
        weights = [
            ("matrix", torch.randn(7, 5, generator=random)),
            ("transposed", torch.randn(3, 4, generator=random).T),
            ("half", torch.randn(2, 3, 2, generator=random).bfloat16()),
            ("number", torch.tensor(2.5, dtype=torch.float64)),
            ("ids", torch.arange(4)),
        ]
        gathered, received = _synchronise(actors, rollouts, weights)
        assert gathered == [len(weights)] * 2
        for got in received:
            assert [name for name, _ in got] == [name for name, _ in weights]
            for (_, tensor), (_, weight) in zip(got, weights, strict=True):
                assert tensor.dtype == weight.dtype
                assert torch.equal(tensor, weight)


def test_verl_finds_it_by_its_name():
    assert CheckpointEngineRegistry.get("gloo") is GlooCheckpointEngine


def test_a_name_without_end_is_refused():
    with pytest.raises(ValueError, match="a weight's name of less than 1024 bytes"):
        _synchronise([GlooCheckpointEngine(1, is_master=True)], [], [("x" * 2000, torch.zeros(1))])
