"""Registration of the vLLM replica; the class itself is imported only where a replica is built."""

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    from verl_ext.cpu.rollout import CPUvLLMReplica

    return CPUvLLMReplica


def register() -> None:
    """Serve `rollout.name=vllm` with the CPU replica."""
    RolloutReplicaRegistry.register("vllm", _load)
