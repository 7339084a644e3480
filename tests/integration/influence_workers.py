"""verl's training worker in the processes of `test_influence_worker.py`: how to build, feed, inspect and restore it."""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from influence_cases import Engine
from influence_oracle import LORA, LORA_SETTINGS, NUM_ROWS, Rows, actor_config, as_batch
from tensordict import TensorDict

from verl_ext.influence.batches import replaced

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.float32}


@contextmanager
def with_float64() -> Iterator[None]:
    """Let verl accept fp64, which it does not support."""
    from verl.utils.torch_dtypes import PrecisionType

    original = PrecisionType.to_dtype
    PrecisionType.to_dtype = staticmethod(lambda name: torch.float64 if name == "fp64" else original(name))
    try:
        yield
    finally:
        PrecisionType.to_dtype = staticmethod(original)


def build_worker(folder: Path, engine: Engine) -> Any:
    """verl's training worker, ready to train and to score."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig

    from verl_ext.influence.worker import InfluenceTrainingWorker

    lora = {}
    if engine.parameters == LORA:
        lora = {
            "lora_rank": LORA_SETTINGS["r"],
            "lora_alpha": LORA_SETTINGS["lora_alpha"],
            "lora_adapter_path": str(folder / "adapter"),
        }
    model = HFModelConfig(
        path=str(folder / "model"),
        external_lib="verl_ext.cpu.engine",
        use_remove_padding=engine.packed,
        enable_gradient_checkpointing=engine.checkpointing,
        override_config={"attn_implementation": "sdpa"},
        **lora,
    )
    kept_in = "fp64" if engine.precision == "fp64" else "fp32"
    fsdp = FSDPEngineConfig(
        strategy="fsdp2",
        model_dtype=kept_in,
        mixed_precision={
            "param_dtype": engine.precision,
            "reduce_dtype": "fp64" if engine.precision == "fp64" else "fp32",
        },
        use_torch_compile=False,
        pad_to_length=engine.bucket > 0,
        pad_to_length_bucket=engine.bucket,
        fsdp_size=engine.fsdp_size,
        param_offload=engine.offload,
        optimizer_offload=engine.offload,
    )
    # No clipping: the scale of an update must be visible, at least with SGD.
    optimizer = FSDPOptimizerConfig(
        optimizer=engine.optimizer,
        lr=0.1,
        weight_decay=0.01 if engine.optimizer == "AdamW" else 0.0,
        clip_grad=1e9,
        total_training_steps=100,
    )
    with with_float64():
        worker = InfluenceTrainingWorker(
            TrainingWorkerConfig(
                model_type="language_model",
                model_config=model,
                engine_config=fsdp,
                optimizer_config=optimizer,
                checkpoint_config=CheckpointConfig(),
            )
        )
        worker.reset()
    if engine.precision == "fp64":
        worker.engine._autocast_dtype = torch.float32  # verl's name for "no autocast"
    worker.set_up_influence(engine.parameters)
    return worker


def set_loss(worker: Any, mode: str, terms: bool) -> None:
    from verl.workers.utils.losses import ppo_loss

    worker.set_loss_fn(partial(ppo_loss, config=actor_config(mode, terms)))


def set_micro_batches(worker: Any, rows: int | None) -> None:
    worker.engine_config.use_dynamic_bsz = rows is None
    worker.engine_config.micro_batch_size_per_gpu = rows and min(rows, NUM_ROWS // dist.get_world_size())
    worker.engine_config.max_token_len_per_gpu = 40


def my_part(rows: Rows) -> Rows:
    """The contiguous part of a batch that verl gives to this rank."""
    size = len(rows) // dist.get_world_size()
    return rows[dist.get_rank() * size :][:size]


def training_batch(rows: Rows, engine: Engine, terms: bool, mini_batch: int = 16, **settings: Any) -> TensorDict:
    return as_batch(
        my_part(rows),
        terms,
        DTYPES[engine.precision],
        mini_batch_size=mini_batch,
        global_batch_size=mini_batch,
        seed=7,
        **{"epochs": 1, "dataloader_kwargs": {"shuffle": False}} | settings,
    )


def take_validation_gradient(worker: Any, rows: Rows, engine: Engine, terms: bool) -> dict[str, float]:
    data = as_batch(my_part(rows), terms, DTYPES[engine.precision], global_batch_size=len(rows))
    return worker.compute_validation_gradient(data)


def all_scores(worker: Any) -> tuple[torch.Tensor, float]:
    """Scores of the whole batch in order, and the largest identity error."""
    mine = worker.take_influence_scores()
    assert mine.rank == dist.get_rank()
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, (torch.from_numpy(mine.scores), mine.identity_error))
    errors = [error for _, error in parts if error is not None]
    return torch.cat([scores for scores, _ in parts]), max(errors, default=float("nan"))


# ------------------------------ state ------------------------------


def local(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach().clone()


def state_of(worker: Any) -> dict[str, Any]:
    """The state of this rank that scoring must not change."""
    module, optimizer = worker.engine.module, worker.engine.optimizer
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state()[1].tolist()}
    state["torch"] = torch.random.get_rng_state()
    for name, parameter in module.named_parameters():
        state[f"weight {name}"] = local(parameter)
        state[f"gradient {name}"] = None if parameter.grad is None else local(parameter.grad)
        state[f"required {name}"] = parameter.requires_grad
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"optimizer {key} {name}"] = local(value) if isinstance(value, torch.Tensor) else value
    for name, part in module.named_modules():
        state[f"training {name}"] = part.training
        state[f"attributes {name}"] = sorted(part.__dict__)
    return state


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of the entries that are not bit-identical."""

    def same(left: Any, right: Any) -> bool:
        if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
            return left.dtype == right.dtype and torch.equal(left, right)
        return type(left) is type(right) and left == right

    return sorted(
        {n for n in before.keys() | after.keys() if n not in before or n not in after or not same(before[n], after[n])}
    )


def weights(worker: Any) -> torch.Tensor:
    """All trainable weights, unsharded, in one vector."""
    parts = [p.full_tensor() for p in worker.engine.module.parameters() if p.requires_grad]
    return torch.cat([part.detach().flatten() for part in parts])


@contextmanager
def restored(worker: Any) -> Iterator[None]:
    """Restore weights and optimizer state afterwards."""
    module, optimizer = worker.engine.module, worker.engine.optimizer
    shards = {name: local(parameter) for name, parameter in module.named_parameters()}
    state = {parameter: copy.deepcopy(its) for parameter, its in optimizer.state.items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.to_local().copy_(shards[name])
        optimizer.state.clear()
        optimizer.state.update(state)


def update_of(worker: Any, update: Callable[[], Any]) -> torch.Tensor:
    """What an update adds to the trainable weights, in one vector; the weights are restored."""
    before = weights(worker)
    with restored(worker):
        update()
        return weights(worker) - before


def counted_update_of(worker: Any, update: Callable[[], Any]) -> tuple[torch.Tensor, int]:
    """`update_of`, and the rows that all ranks compute for it."""
    lengths: list[int] = []
    forward_step = worker.engine.forward_step

    def counted(micro_batch: TensorDict, *args: Any, **kwargs: Any) -> Any:
        lengths.append(len(micro_batch))
        return forward_step(micro_batch, *args, **kwargs)

    with replaced(worker.engine, "forward_step", counted):
        added = update_of(worker, update)
    rows = torch.tensor(sum(lengths))
    dist.all_reduce(rows)
    return added, int(rows)


def with_masks(rows: Rows, masked: torch.Tensor, factors: torch.Tensor) -> Rows:
    changed = []
    for row, mask, factor in zip(rows, masked.tolist(), factors.tolist(), strict=True):
        row = dict(row, advantages=row["advantages"] * factor)
        if mask:
            row |= {name: torch.zeros_like(row[name]) for name in ("response_mask", "loss_mask")}
        changed.append(row)
    return changed
