"""Registration of our vLLM replica for accelerators; the class itself is only imported to build a replica."""

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    from verl_ext.serving.token_serving import SignalvLLMReplica

    return SignalvLLMReplica


def register() -> None:
    """Serve `rollout.name=vllm` with servers that report their health and answer queries about tokens."""
    RolloutReplicaRegistry.register("vllm", _load)
