"""How model engines lay rows, micro-batches and weights over the ranks, and which sizes are refused."""

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from verl_ext.launch.estimate import Storage, memory_estimate
from verl_ext.launch.model_backend import (
    MODEL_ENGINES,
    Layout,
    has_vanilla_bridge,
    layout,
    layout_keys,
    layout_problems,
)

# The options of each engine that are read, with verl's defaults.
NODES: dict[str, dict[str, Any]] = {
    "dp": {"model_dtype": "fp32", "fsdp_size": -1, "ulysses_sequence_parallel_size": 1},
    "megatron": {
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "context_parallel_size": 1,
        "dynamic_context_parallel": False,
        "use_megatron_fsdp": False,
        "use_distributed_optimizer": True,
        "vanilla_mbridge": False,
    },
    "veomni": {"ulysses_parallel_size": 1, "fsdp_size": -1, "mixed_precision": True},
    "torchtitan": {
        "data_parallel_replicate_size": 1,
        "data_parallel_shard_size": 1,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "context_parallel_size": 1,
    },
}


def _config(name: str, ranks: int = 8, actor: dict[str, Any] | None = None, **sizes: Any) -> DictConfig:
    engine, node = MODEL_ENGINES[name], NODES[name] | sizes
    return OmegaConf.create(
        {
            "model_engine": name,
            "trainer": {"nnodes": 1, "n_gpus_per_node": ranks},
            "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
            "actor_rollout_ref": {
                "actor": {"use_kl_loss": False, engine.node: dict(node)} | (actor or {}),
                "ref": {engine.node: dict(node)},
            },
            "critic": {"enable": None, engine.critic_node: dict(node)},
        }
    )


def _megatrons(model_parallel: int, optimizer: int) -> Storage:
    return Storage(2, 4, 4, model_parallel, model_parallel, optimizer, keeps_gradients=True)


TP, PP, CP = (f"{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("dp", {}, Layout(8, 1, Storage.sharded(8))),
        ("dp", {"ulysses_sequence_parallel_size": 2}, Layout(4, 2, Storage.sharded(8))),
        ("dp", {"fsdp_size": 2, "model_dtype": "bf16"}, Layout(8, 1, Storage.sharded(2, 2))),
        ("megatron", {}, Layout(8, 1, _megatrons(1, 8))),
        ("megatron", {TP: 2, PP: 2}, Layout(2, 1, _megatrons(4, 8))),
        ("megatron", {TP: 2, CP: 2}, Layout(2, 2, _megatrons(2, 8))),
        ("megatron", {TP: 2, "use_distributed_optimizer": False}, Layout(4, 1, _megatrons(2, 2))),
        ("megatron", {TP: 2, "use_megatron_fsdp": True}, Layout(4, 1, _megatrons(8, 8))),
        ("megatron", {TP: 2, "dynamic_context_parallel": True}, Layout(1, 1, _megatrons(2, 8))),
        ("veomni", {}, Layout(8, 1, Storage.sharded(8))),
        ("veomni", {"ulysses_parallel_size": 4}, Layout(2, 4, Storage.sharded(8))),
        ("veomni", {"ulysses_parallel_size": 2, "fsdp_size": 2}, Layout(4, 2, Storage.sharded(4))),
        ("veomni", {"mixed_precision": False}, Layout(8, 1, Storage.sharded(8, 2))),
        ("torchtitan", {"data_parallel_shard_size": 8}, Layout(8, 1, Storage.sharded(8))),
        (
            "torchtitan",
            {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 2, "tensor_parallel_size": 2},
            Layout(4, 2, Storage.sharded(4)),
        ),
    ],
)
def test_eight_ranks_are_divided(name: str, sizes: dict[str, Any], expected: Layout):
    config = _config(name, **sizes)
    assert layout(config) == expected
    assert list(layout_problems(config)) == []


def test_fsdps_ulysses_may_stand_at_the_actor():
    config = _config("dp", actor={"ulysses_sequence_parallel_size": 2})
    assert layout(config).data_parallel == 4
    (problem,) = layout_problems(_config("dp", actor={"ulysses_sequence_parallel_size": 3}))
    assert problem.startswith("actor_rollout_ref.actor.ulysses_sequence_parallel_size=3 does not divide")


NODE = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("megatron", {TP: 3}, f"{NODE}.megatron.{TP}=3 does not divide trainer.nnodes x n_gpus_per_node = 8 ranks"),
        ("megatron", {TP: 2, PP: 3}, f"{NODE}.megatron.{TP}=2 x {PP}=3 = 6 does not divide"),
        ("megatron", {CP: 0}, f"{NODE}.megatron.{CP} must be a whole number of at least 1, got 0"),
        ("veomni", {"ulysses_parallel_size": 16}, f"{NODE}.veomni.ulysses_parallel_size=16 does not divide"),
        ("veomni", {"fsdp_size": 3}, f"{NODE}.veomni.fsdp_size=3 does not divide 8 ranks"),
        ("veomni", {"ulysses_parallel_size": 2, "fsdp_size": 3}, f"{NODE}.veomni.fsdp_size=3 does not divide 4 ranks"),
        ("dp", {"fsdp_size": 3}, f"{NODE}.fsdp_config.fsdp_size=3 does not divide 8 ranks"),
        ("dp", {"fsdp_size": 0}, f"{NODE}.fsdp_config.fsdp_size=0 does not divide 8 ranks"),
        ("torchtitan", {}, f"set {NODE}.torchtitan.data_parallel_shard_size, so that the product of its sizes is 8"),
        ("torchtitan", {"data_parallel_shard_size": -1}, "data_parallel_shard_size must be a whole number"),
    ],
)
def test_sizes_that_do_not_divide_the_ranks_are_named(name: str, sizes: dict[str, int], expected: str):
    (problem,) = layout_problems(_config(name, **sizes))
    assert expected in problem


@pytest.mark.parametrize(("name", "size"), [("megatron", TP), ("veomni", "ulysses_parallel_size")])
def test_reference_and_critic_have_the_actors_groups_where_a_process_makes_them_once(name: str, size: str):
    config = _config(name, **{size: 2})
    config.critic[name][size] = config.actor_rollout_ref.ref[name][size] = 1
    assert list(layout_problems(config)) == []  # there is neither
    config.critic.enable = config.actor_rollout_ref.actor.use_kl_loss = True
    reference, critic = layout_problems(config)
    assert reference.startswith(f"actor_rollout_ref.ref.{name}.{size}=1, but {NODE}.{name}.{size}=2")
    assert critic.startswith(f"critic.{name}.{size}=1, but {NODE}.{name}.{size}=2")


def test_fsdps_critic_may_have_sequences_of_its_own():
    config = _config("dp", ulysses_sequence_parallel_size=2)
    config.critic.enable, config.critic.fsdp.ulysses_sequence_parallel_size = True, 1
    assert list(layout_problems(config)) == []


@pytest.mark.parametrize(
    ("name", "laid_out_by", "free"),
    [
        ("dp", "fsdp_config.fsdp_size", "fsdp_config.ulysses_sequence_parallel_size"),
        ("megatron", f"megatron.{PP}", "megatron.use_distributed_optimizer"),
        ("veomni", "veomni.fsdp_size", "veomni.mixed_precision"),
    ],
)
def test_a_checkpoint_is_laid_out_by_the_engine_and_its_sizes(name: str, laid_out_by: str, free: str):
    keys = layout_keys(_config(name))
    assert {"model_engine", f"{NODE}.strategy", f"{NODE}.{laid_out_by}"} <= set(keys)
    assert f"{NODE}.{free}" not in keys


def test_only_megatron_has_two_bridges():
    assert not has_vanilla_bridge(_config("megatron"))
    assert has_vanilla_bridge(_config("megatron", vanilla_mbridge=True))
    assert not has_vanilla_bridge(_config("dp"))


def test_megatrons_memory_of_a_billion_parameters_on_eight_gpus():
    """Tensor parallel 2: half the weights in bf16, half the gradients in float32, and an eighth of 12 bytes each."""
    storage = layout(_config("megatron", **{TP: 2})).storage
    estimate = memory_estimate(10**9, storage=storage, tensor_parallel=2)
    assert estimate["weights"] == 10**9
    assert estimate["gradients"] == 2 * 10**9
    assert estimate["optimizer"] == 1_500_000_000
    # Its buffer of gradients stays, unless it is offloaded to host memory with the weights.
    assert estimate["generation"] == 4_500_000_000
    offloaded = memory_estimate(10**9, storage=storage, is_offloaded=(True, False))
    assert offloaded["generation"] == 1_500_000_000
