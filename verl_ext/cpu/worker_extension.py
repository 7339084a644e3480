"""Weight reload of a live vLLM engine on the CPU.

vLLM's CPU backend repacks linear weights into its kernels' layout after loading and drops the original parameter, so
verl's `model.load_weights()` on a live engine fails. vLLM's own layerwise reload restores each layer to its checkpoint
layout, loads it, and repacks it.
"""

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class CPUWorkerExtension(vLLMColocateWorkerExtension):
    """verl's worker extension with a weight update that suits repacked weights."""

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive all buckets of one synchronisation and load them (see the base class for the arguments)."""
        if peft_config and base_sync_done:  # only a LoRA adapter: the base weights are unchanged
            return super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)

        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )

        def load_bucket(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            # The tensors are views into the shared bucket, which the sender overwrites as soon as this returns, and a
            # layer that spans two buckets is kept until it is complete: copy.
            copies = [(name, tensor.clone()) for name, tensor in weights]
            self._update_weights(copies, peft_config=peft_config, base_sync_done=base_sync_done)

        with set_current_vllm_config(self.model_runner.vllm_config), torch.no_grad():
            for model in self._iter_all_models():
                initialize_layerwise_reload(model)
            receiver.receive_weights(on_bucket_received=load_bucket)
            for model, model_config in self._iter_all_models_with_config():
                finalize_layerwise_reload(model, model_config)
