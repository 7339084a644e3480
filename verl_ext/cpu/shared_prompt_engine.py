"""verl's FSDP engine with every prompt of a micro-batch computed once.

An update on 8 rollouts of a prompt, and their old log-probs, then cost about as much as one prompt and 8 responses,
instead of 8 prompts and 8 responses.

Only verl's own passes over whole mini-batches share prompts. Influence scores are of separate rows, and golden
redaction has its own states; both call the engine differently.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
import verl.utils.torch_functional as verl_F
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.seqlen_balancing import restore_dynamic_batch
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_ext.cpu.shared_prompts import Packed, Row, costs_by_size, order_by_prompt, pack, row_cost

# Sharing must leave at most this share of the estimated cost.
_LARGEST_SHARE = 0.8
_PACKED = "packed"
# What other modes of the engine compute from the logits of separate rows.
_OTHER_MODES = ("use_remove_padding", "use_fused_kernels", "calculate_sum_pi_squared", "distillation_use_topk")


@dataclass(frozen=True)
class _Plan:
    """An order of the rows, and their number per micro-batch."""

    order: list[int]
    size: int


class SharedPromptEngine(FSDPEngineWithLMHead):
    """Shares prompts wherever that saves tokens and the model's attention takes a mask.

    Attributes:
        may_share: Whether it may; off for comparisons.
    """

    module: Any
    may_share = True
    _is_sharing = False

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Callable[..., Any] | None, forward_only: bool = False
    ) -> Any:
        """verl's pass over a mini-batch, in micro-batches of neighbouring rows if they share prompts."""
        plan = self._plan(data)
        if plan is None:
            return super().forward_backward_batch(data, loss_function, forward_only)
        ordered = tu.index_select_tensor_dict(data, plan.order)
        # So that verl cuts the rows as they are.
        tu.assign_non_tensor(ordered, use_dynamic_bsz=False, micro_batch_size_per_gpu=plan.size)
        self._is_sharing = True
        try:
            output = super().forward_backward_batch(ordered, loss_function, forward_only)
        finally:
            self._is_sharing = False
        outputs = output["model_output"]
        output["model_output"] = {name: restore_dynamic_batch(rows, [plan.order]) for name, rows in outputs.items()}
        return output

    def _plan(self, data: TensorDict) -> _Plan | None:
        """The ranks' common plan; None if they should not share."""
        rows = _rows(data) if self._can_share(data) else []
        hidden_size = self._hidden_size
        order = order_by_prompt(rows, hidden_size)
        ordered = [rows[position] for position in order]
        costs = costs_by_size(ordered, data["max_token_len_per_gpu"] if ordered else 0, hidden_size)
        own = (costs, sum(row_cost(len(row.prompt) + row.response_length, hidden_size) for row in rows))
        ranks: list[Any] = [None] * self.get_data_parallel_size()
        torch.distributed.all_gather_object(ranks, own, group=self.get_data_parallel_group())
        size = best_size(ranks)
        return None if size is None else _Plan(order, size)

    @property
    def _hidden_size(self) -> int:
        return self.model_config.hf_config.get_text_config().hidden_size

    def _can_share(self, data: TensorDict) -> bool:
        is_plain = not any(tu.get_non_tensor_data(data=data, key=name, default=False) for name in _OTHER_MODES)
        is_dynamic = tu.get_non_tensor_data(data=data, key="use_dynamic_bsz", default=True)
        fits = is_plain and is_dynamic and data["position_ids"].dim() == 2
        return self.may_share and fits and takes_masks(self.module)

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        """Packed rows, and `Packed` for `prepare_model_outputs`."""
        if not self._is_sharing:
            return super().prepare_model_inputs(micro_batch)
        pad_id = tu.get_non_tensor_data(data=micro_batch, key="pad_token_id", default=0)
        packed = pack(micro_batch["prompts"].unbind(), micro_batch["responses"].unbind(), pad_id, self._hidden_size)
        inputs = {
            "input_ids": packed.input_ids_GL,
            "position_ids": packed.position_ids_GL,
            "attention_mask": packed.attention_mask_GLL[:, None],
            "logits_to_keep": packed.columns_K,
        }
        return inputs, {_PACKED: packed}

    def prepare_model_outputs(
        self, output: Any, output_args: Mapping[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Log-probs and entropies at the places that verl reads, those that predict responses; 0 elsewhere."""
        if _PACKED not in output_args:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        packed: Packed = output_args[_PACKED]
        logits_NV = output.logits[packed.group_N, packed.column_N]
        temperature = micro_batch["temperature"]
        if isinstance(temperature, torch.Tensor):
            logits_NV = logits_NV / temperature.to(torch.float32)[packed.row_N, None]
        elif temperature != 1:
            logits_NV = logits_NV / temperature
        has_entropy = tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False)
        found = {
            "log_probs": verl_F.logprobs_from_logits(
                logits=logits_NV, labels=packed.labels_N, inplace_backward=not has_entropy
            )
        }
        if has_entropy:
            found["entropy"] = self.compute_entropy_from_logits(logits_NV)
        offsets = micro_batch["input_ids"].offsets()
        return {name: _at_their_places(values_N, packed, offsets) for name, values_N in found.items()}


def _rows(data: TensorDict) -> list[Row]:
    prompts, lengths = data["prompts"].unbind(), data["responses"].offsets().diff().tolist()
    return [Row(tuple(prompt.tolist()), length) for prompt, length in zip(prompts, lengths, strict=True)]


def best_size(ranks: list[tuple[Mapping[int, float], float]]) -> int | None:
    """Rows per micro-batch that all ranks can have and that cost least; None if that saves too little.

    Args:
        ranks: Of every rank: number of rows per micro-batch -> cost; and cost of separate rows.
    """
    common = set.intersection(*(set(costs) for costs, _ in ranks))
    if not common:
        return None
    total = {size: sum(costs[size] for costs, _ in ranks) for size in common}
    # Of equal costs, the larger micro-batches.
    best = min(common, key=lambda size: (total[size], -size))
    return best if total[best] <= _LARGEST_SHARE * sum(separate for _, separate in ranks) else None


def takes_masks(module: Any) -> bool:
    """Whether a model's attention uses a mask [batch, 1, L, L] as it is, and its head can leave out positions.

    Not so: attention other than PyTorch's, layers with a window or without attention, and models for images.
    """
    base = module.get_base_model() if hasattr(module, "get_base_model") else module
    config = base.config
    return (
        getattr(config, "_attn_implementation", None) == "sdpa"
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and getattr(config, "sliding_window", None) is None
        and not hasattr(config, "vision_config")
        and "logits_to_keep" in inspect.signature(base.forward).parameters
    )


def _at_their_places(values_N: torch.Tensor, packed: Packed, offsets: torch.Tensor) -> torch.Tensor:
    """As verl has them: nested, with as many values per row as it has tokens."""
    flat = values_N.new_zeros(int(offsets[-1])).index_put((packed.place_N,), values_N)
    return torch.nested.nested_tensor_from_jagged(flat, offsets)
