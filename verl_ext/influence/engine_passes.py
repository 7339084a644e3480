"""verl's own mini-batches, normalisation and forward, one micro-batch at a time and without an update; its update
without the rows that have no part in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed
from tensordict import NonTensorData, TensorDict
from torch.distributed.tensor import DTensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.engine_workers import TrainingWorker

from verl_ext.influence.batches import SAMPLE_POSITION, buckets, rows_to_compute, whole

_BUCKET_BYTES = 64 * 2**20  # of gradients that are reduced together

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self.engine": "verl.workers.engine.fsdp.transformer_impl.FSDPEngineWithLMHead",
    "self.engine_config": "verl.workers.config.FSDPEngineConfig",
}


class EnginePasses(TrainingWorker):
    """verl's training worker, with access to its individual steps."""

    @property
    def _actor_config(self) -> Any:
        return self.loss_fn.keywords["config"]

    @contextmanager
    def _engine_ready(self, data: TensorDict) -> Iterator[None]:
        """Train mode (gradient checkpointing needs it), with the parameters loaded and `.grad` unchanged."""
        settings = {
            "use_remove_padding": self.model_config.get("use_remove_padding", False),
            "use_dynamic_bsz": self.engine_config.use_dynamic_bsz,
            "max_token_len_per_gpu": self.engine_config.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": self.engine_config.micro_batch_size_per_gpu,
            "use_fused_kernels": self.engine_config.use_fused_kernels,
        }
        for name, value in settings.items():
            if name not in data.keys():  # noqa: SIM118 (a TensorDict iterates over rows)
                tu.assign_non_tensor(data, **{name: value})
        training = self.engine.module.training
        with self.engine.train_mode(zero_grad_on_exit=False):
            try:
                yield
            finally:
                self.engine.module.train(training)

    def train_batch(self, data: TensorDict) -> TensorDict:
        """verl's update on a mini-batch, without the rows that have no loss: those that were not selected, and padding.

        The loss of a mini-batch is a sum over its rows, divided by numbers that do not change: its tokens with a loss,
        and the `global_batch_size` that the trainer gives. Every rank keeps as many rows as the one that needs most, so
        that all have the same number of micro-batches.
        """
        lengths = data["input_ids"].offsets().diff().tolist()
        own = list(zip(lengths, (bool(mask.any()) for mask in data["loss_mask"].unbind()), strict=True))
        ranks: list[Any] = [None] * self.engine.get_data_parallel_size()
        torch.distributed.all_gather_object(ranks, own, group=self.engine.get_data_parallel_group())
        count = max(1, *(sum(has_loss for _, has_loss in rows) for rows in ranks))
        if not self.engine_config.use_dynamic_bsz:  # whole micro-batches
            size = self.engine_config.micro_batch_size_per_gpu
            count = -(-count // size) * size
        kept = tu.index_select_tensor_dict(data, rows_to_compute(own, count))
        tokens = [rows[position][0] for rows in ranks for position in rows_to_compute(rows, count)]
        tu.assign_non_tensor(kept, global_token_num=NonTensorData(tokens))  # for the metrics of its speed
        return super().train_batch(kept)

    def _mini_batches(self, data: TensorDict) -> Iterator[TensorDict]:
        """The mini-batches of the first epoch of `train_mini_batch`, with the normaliser of their loss."""
        size = tu.pop(data, "mini_batch_size") // self.engine.get_data_parallel_size()
        tu.pop(data, "epochs", default=1)
        seed = tu.pop(data, "seed", default=42) + self.engine.get_data_parallel_rank()
        dataloader_kwargs = tu.pop(data, "dataloader_kwargs", default={})
        data[SAMPLE_POSITION] = torch.arange(len(data))
        for mini_batch in tu.make_iterator(
            data, mini_batch_size=size, epochs=1, seed=seed, dataloader_kwargs=dataloader_kwargs
        ):
            self._add_normalisation(mini_batch)
            yield mini_batch

    def _add_normalisation(self, data: TensorDict) -> None:
        """The fields that `FSDPEngine.forward_backward_batch` adds to a mini-batch before splitting it."""
        num_tokens = data["loss_mask"].sum().to(get_device_id())
        torch.distributed.all_reduce(num_tokens, group=self.engine.get_data_parallel_group())
        tu.assign_non_tensor(
            data, sp_size=1, batch_num_tokens=num_tokens.item(), dp_size=self.engine.get_data_parallel_size()
        )

    def _split(self, data: TensorDict) -> list[TensorDict]:
        return self._split_with_indices(data)[0]

    def _split_unevenly(self, data: TensorDict) -> list[TensorDict]:
        """`_split` for rows that are not a multiple of the micro-batch, as in a validation set."""
        if tu.get_non_tensor_data(data, "use_dynamic_bsz", default=True):
            return self._split(data)
        size, rows = data["micro_batch_size_per_gpu"], list(range(len(data)))
        return [tu.index_select_tensor_dict(data, rows[start : start + size]) for start in rows[::size]]

    def _split_with_indices(self, data: TensorDict) -> tuple[list[TensorDict], Any]:
        return prepare_micro_batches(
            data=data, dp_group=self.engine.get_data_parallel_group(), same_micro_num_in_dp=True
        )

    def _pad_size(self, micro_batch: TensorDict) -> int:
        """Positions that the engine adds at the end of a packed sequence."""
        return self.engine._get_packed_pad_size(int(micro_batch["input_ids"].offsets()[-1]))

    def _forward_backward(self, micro_batch: TensorDict, loss_function: Callable[..., Any]) -> dict[str, Any]:
        loss, output = self.engine.forward_step(micro_batch, loss_function=loss_function, forward_only=False)
        loss.backward()
        output.pop("model_output", None)
        return output

    def _average_over_ranks(self, tensors: dict[str, torch.Tensor]) -> None:
        """Reduce tensors in place, except sharded ones, which are means already; needs memory for one bucket."""
        sums = (tensor for tensor in tensors.values() if not isinstance(tensor, DTensor))
        for bucket in buckets(sums, _BUCKET_BYTES):
            mean = self._mean_over_ranks(torch.cat([tensor.flatten() for tensor in bucket]))
            for tensor, part in zip(bucket, mean.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def _whole_mean(self, stored: torch.Tensor) -> torch.Tensor:
        """Mean over the ranks of a sum as `ShardedStorage` has it, unsharded."""
        return whole(stored) if isinstance(stored, DTensor) else self._mean_over_ranks(stored)

    def _mean_over_ranks(self, tensor: torch.Tensor) -> torch.Tensor:
        torch.distributed.all_reduce(tensor, group=self.engine.get_data_parallel_group())
        return tensor / self.engine.get_data_parallel_size()
