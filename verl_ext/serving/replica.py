"""Registration of our vLLM replica for accelerators; the class itself is imported only where a replica is built."""

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    from verl_ext.serving.token_serving import SignalvLLMReplica

    return SignalvLLMReplica


def register() -> None:
    """Serve `rollout.name=vllm` with servers that report their health and answer questions about tokens."""
    RolloutReplicaRegistry.register("vllm", _load)
