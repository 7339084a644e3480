"""Registration of the vLLM replica; the class itself is imported only where a replica is built."""

from typing import Any

import ray.cloudpickle
from verl.workers.rollout import router
from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    from verl_ext.cpu.rollout import CPUvLLMReplica

    return CPUvLLMReplica


def register() -> None:
    """Serve `rollout.name=vllm` with the CPU replica."""
    # The load balancer's process needs nothing but its class: by name it would import all of verl.
    ray.cloudpickle.register_pickle_by_value(router)
    RolloutReplicaRegistry.register("vllm", _load)
