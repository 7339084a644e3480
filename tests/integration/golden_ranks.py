"""What each process of `test_golden_worker.py` does with `TokenTrainingWorker`; results go back as plain data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from influence_oracle import LORA_SETTINGS, keep_precision
from influence_workers import with_float64
from worlds import be_rank, fork_worlds

MINI_BATCHES = ((0, 1, 2, 3, 4), (5,), (6, 7, 8))
MAX_TOKENS, INFER_MAX_TOKENS = 20, 30
LEARNING_RATE, WEIGHT_DECAY, CLIP, TOTAL_STEPS = 0.01, 0.02, 0.5, 10
NUM_MOVED = 3  # number of states in the low-precision updates


@dataclass(frozen=True)
class Precision:
    """Dtypes of the parameters, FSDP's computation (with autocast) and the attention; and a suitable learning rate."""

    label: str
    kept_in: str
    computed_in: str
    attention: str | None
    learning_rate: float


PRECISIONS = (
    Precision("fp32", "fp32", "fp32", None, 1e-3),
    Precision("fp32 with bf16 attention", "fp32", "fp32", "bf16", 1e-3),
    # In bfloat16, the next number after 0.3 is 0.002 away.
    Precision("bf16 parameters", "bf16", "bf16", None, 5e-3),
    Precision("fp32 parameters, bf16 computation", "fp32", "bf16", None, 1e-3),
)
EXACT = Precision("fp64", "fp64", "fp64", None, LEARNING_RATE)


def build_worker(folder: Path, precision: Precision, lora: bool = False, **optimizer: Any) -> Any:
    """verl's training worker with this recipe's calls and fresh weights."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig

    from recipe.golden_redaction.worker import TokenTrainingWorker

    adapter = {}
    if lora:
        adapter = {
            "lora_rank": LORA_SETTINGS["r"],
            "lora_alpha": LORA_SETTINGS["lora_alpha"],
            "lora_adapter_path": str(folder / "adapter"),
        }
    config = TrainingWorkerConfig(
        model_type="language_model",
        model_config=HFModelConfig(
            path=str(folder / "model"),
            external_lib="verl_ext.cpu.engine",
            use_remove_padding=False,
            enable_gradient_checkpointing=True,
            override_config={"attn_implementation": "sdpa"},
            **adapter,
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2",
            model_dtype=precision.kept_in,
            mixed_precision={
                "param_dtype": precision.computed_in,
                "reduce_dtype": "fp64" if precision == EXACT else "fp32",
            },
            use_torch_compile=False,
            max_token_len_per_gpu=MAX_TOKENS,
            infer_max_token_len_per_gpu=INFER_MAX_TOKENS,
        ),
        optimizer_config=FSDPOptimizerConfig(
            **{
                "optimizer": "AdamW",
                "lr": precision.learning_rate,
                "weight_decay": WEIGHT_DECAY,
                "clip_grad": CLIP,
                "lr_scheduler_type": "cosine",
                "total_training_steps": TOTAL_STEPS,
                **optimizer,
            }
        ),
        checkpoint_config=CheckpointConfig(),
    )
    with with_float64():
        worker = TokenTrainingWorker(config)
        worker.reset()
    if precision == EXACT:
        worker.engine._autocast_dtype = torch.float32  # verl's name for "no autocast"
    if precision.attention is not None:
        worker.compute_attention_in(torch.bfloat16)
    return worker


def from_all(value: Any) -> list[Any]:
    """`value` of every rank."""
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, value)
    return parts


def log_probs(
    worker: Any, rows: list[dict[str, Any]], without_adapter: bool = False, with_hidden_norms: bool = False
) -> dict[str, Any]:
    """Log-probs of all rows, in order, and what every rank reports."""
    from recipe.golden_redaction.method.labelled_states import StateTokens

    states = [StateTokens(row["ids"], row["tokens"]) for row in rows]
    ranks = from_all(asdict(worker.state_log_probs(states, without_adapter, with_hidden_norms)))
    found = {index: values for rank in ranks for index, values in rank["log_probs"].items()}
    return {
        "values": [value for index in range(len(rows)) for value in found[index]],
        "states": [sorted(rank["log_probs"]) for rank in ranks],
        "hidden_norms": [rank["hidden_norms"] for rank in ranks],
    }


@contextmanager
def counted_forwards(worker: Any) -> Iterator[list[int]]:
    """The number of states in every forward pass of this rank."""
    sizes: list[int] = []
    head = worker.engine.module.get_submodule("lm_head")
    hook = head.register_forward_hook(lambda _, args, out: sizes.append(len(out)))
    yield sizes
    hook.remove()


def weights(worker: Any) -> dict[str, torch.Tensor]:
    return {name: p.full_tensor().detach().clone() for name, p in worker.engine.module.named_parameters()}


def train(
    worker: Any, mini_batches: list[list[dict[str, Any]]], serving_dtype: torch.dtype | None = None, targets: Any = None
) -> Any:
    """One call of `train_states`; returns the updates as [rank][mini-batch]."""
    from recipe.golden_redaction.method.labelled_states import LabelledState

    states = [[LabelledState(**row) for row in rows] for rows in mini_batches]
    return from_all([asdict(update) for update in worker.train_states(states, serving_dtype, targets)])


# ------------------------------ checks ------------------------------


def ask(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    worker = build_worker(folder, EXACT)
    with counted_forwards(worker) as sizes:
        found = log_probs(worker, rows, with_hidden_norms=True)
    found["forwards"] = from_all(sizes)
    found["without norms"] = log_probs(worker, rows[:1])["hidden_norms"]
    found["requires grad"] = any(p.grad is not None for p in worker.engine.module.parameters())
    adapted = build_worker(folder, EXACT, lora=True)
    for without_adapter in (False, True):
        found[f"lora, without={without_adapter}"] = log_probs(adapted, rows, without_adapter)["values"]
    return found


def update(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Two calls with the same mini-batches; only the second measures statistics."""
    worker, mini_batches = build_worker(folder, EXACT), [[rows[index] for index in part] for part in MINI_BATCHES]
    rates = [worker.engine.lr_scheduler.get_last_lr()]
    updates, after = [], []
    for dtype in (None, torch.bfloat16):
        with counted_forwards(worker) as sizes:
            updates.append(train(worker, mini_batches, dtype))
        rates.append(worker.engine.lr_scheduler.get_last_lr())
        after.append(weights(worker))
    steps = {int(state["step"]) for state in worker.engine.optimizer.state.values()}
    cleared = all(p.grad is None or not p.grad.full_tensor().any() for p in worker.engine.module.parameters())
    found = {"updates": updates, "rates": rates, "weights": after, "steps": steps, "cleared": cleared}
    return found | {"forwards": from_all(sizes)}


def update_past_targets(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All tokens are past their targets; no weight decay, which would move the weights by itself."""
    worker = build_worker(folder, EXACT, weight_decay=0.0)
    before = weights(worker)
    values = iter(log_probs(worker, rows)["values"])
    reached = []
    for row in rows:
        own = [next(values) for _ in row["tokens"]]
        targets = [value - 0.01 * sign for value, sign in zip(own, row["advantages"], strict=True)]
        reached.append(row | {"targets": tuple(targets)})
    updates = train(worker, [reached])
    after = weights(worker)
    return {"updates": updates, "moved": [name for name in before if not torch.equal(before[name], after[name])]}


def approach(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Updates of many steps with far too large a learning rate, for far and near targets; and updates of one step."""
    from recipe.golden_redaction.method.targets import TargetSettings

    found: dict[str, Any] = {}
    for name, share, steps in (("far", 1.0, 60), ("near", 0.1, 60), ("one far", 1.0, 1), ("one near", 0.1, 1)):
        worker = build_worker(folder, EXACT, optimizer="SGD", lr=2.0, weight_decay=0.0)
        values = iter(log_probs(worker, rows)["values"])
        given = []
        for row in rows:
            own = [next(values) for _ in row["tokens"]]
            targets = [value + share * (target - value) for value, target in zip(own, row["targets"], strict=True)]
            given.append(row | {"targets": tuple(targets), "before": own})
        sent = [{key: value for key, value in row.items() if key != "before"} for row in given]
        updates = train(worker, [sent], torch.bfloat16, TargetSettings(steps=steps))
        found[name] = {"rows": given, "updates": updates, "after": log_probs(worker, rows)["values"]}
    return found


def scaled_lr(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One step of SGD on four states, at a learning rate that follows their number or not; and the rates it leaves."""
    from recipe.golden_redaction.method.targets import TargetSettings

    found: dict[str, Any] = {}
    for scale in (True, False):
        worker = build_worker(folder, EXACT, optimizer="SGD", lr=0.01, weight_decay=0.0)
        before = weights(worker)
        train(worker, [rows[:4]], None, TargetSettings(scale_lr=scale))
        found[str(scale)] = {name: weight - before[name] for name, weight in weights(worker).items()}
        found[f"{scale}, rates"] = [group["lr"] for group in worker.engine.optimizer.param_groups]
    return found


def update_in(precision: Precision, folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    worker, names = build_worker(folder, precision), ("q_proj", "o_proj", "gate_proj")
    dtypes: dict[str, str] = {}
    hooks = [
        module.register_forward_hook(lambda _, args, out, name=name: dtypes.update({name: str(out.dtype)}))
        for path, module in worker.engine.module.named_modules()
        if (name := path.rpartition(".")[2]) in names
    ]
    before = log_probs(worker, rows)["values"]
    for hook in hooks:
        hook.remove()
    updates = train(worker, [rows], torch.bfloat16)
    return {
        "before": before,
        "after": log_probs(worker, rows)["values"],
        "loss": sum(rank[0]["loss"] for rank in updates),
        "changed": [tensor["changed_share"] for tensor in updates[0][0]["statistics"].values()],
        "computed in": dtypes,
        "kept in": {str(p.dtype) for p in worker.engine.module.parameters()},
    }


def serve(folder: Path, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """The weights sent to the engines with `serving.rounding=stochastic`; verl makes this import in its workers."""
    import verl_ext.serving.rounded_weights  # noqa: F401

    worker = build_worker(folder, Precision("", "fp32", "bf16", None, 1e-3))
    sent, peft_config = worker.engine.get_per_tensor_param(layered_summon=False, base_sync_done=True)
    assert peft_config is None
    return {name: weight.clone() for name, weight in sent}


def refuse(folder: Path, rows: list[dict[str, Any]]) -> str:
    """The error for a model without attention."""
    worker = build_worker(folder, PRECISIONS[0])
    worker.engine.module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    try:
        worker.compute_attention_in(torch.bfloat16)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


# ------------------------------ processes ------------------------------


def in_process(rank: int, world: int, folder: Path) -> None:
    """Run all checks for one world size; rank 0 saves the results."""
    be_rank(rank, world, folder)
    rows = torch.load(folder / "rows.pt")
    checks: dict[str, Callable[..., Any]] = {
        "log-probs": ask,
        "update": update,
        "past targets": update_past_targets,
        "approach": approach,
        "scaled": scaled_lr,
        "refusal": refuse,
        "served": serve,
    }
    found = {name: check(folder, rows) for name, check in checks.items()}
    for precision in PRECISIONS:
        found[precision.label] = update_in(precision, folder, rows[:NUM_MOVED])
    if rank == 0:
        torch.save(found, folder / f"{world}.pt")
    dist.destroy_process_group()


def all_worlds(_rank: int, worlds: tuple[int, ...], folder: Path) -> None:
    """Run the worlds of these sizes."""
    fork_worlds(in_process, worlds, folder, "recipe.golden_redaction.worker", keep_precision)
