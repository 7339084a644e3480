"""What the GPU tests check, for any device: unit tests run the same code on the CPU, at toy size."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/unit"), str(ROOT / "tests/benchmarks")]

import golden_actor  # noqa: E402
import tracin_overhead  # noqa: E402
from influence_models import Batch, lora_model, make_batch, sample_index, sample_losses  # noqa: E402
from influence_reference import inner, per_sample_gradients  # noqa: E402

from verl_ext.influence.fsdp import without_gradient_sync  # noqa: E402
from verl_ext.influence.method.ghost import GhostInfluence  # noqa: E402

NUM_SAMPLES, NUM_VALIDATION = 8, 4


def on_device(batch: Batch, device: str) -> Batch:
    return Batch([tokens.to(device) for tokens in batch.tokens], batch.advantages)


# ------------------------------ FSDP2, hooks, packed bfloat16 rows ------------------------------


@dataclass(frozen=True)
class ShardedScores:
    """Scores of FSDP2 with bfloat16 compute, and of float32 autograd on the whole model, one sample at a time.

    Args:
        scores: (NUM_SAMPLES,) float64, from the hooks.
        expected: The same from autograd.
        identity_error: See `GhostInfluence.identity_error`.
        is_undisturbed: Whether an update after scoring gives the same weights as one without scoring.
    """

    scores: torch.Tensor
    expected: torch.Tensor
    identity_error: float
    is_undisturbed: bool

    @property
    def error(self) -> float:
        """Largest difference, as a share of the largest score."""
        return float((self.scores - self.expected).abs().max() / self.expected.abs().max())


def sharded_scores(device: str, folder: Path, checkpointing: bool) -> ShardedScores:
    """One rank of FSDP2 on `device`, rows packed without padding, bfloat16 parameters and float32 reduction."""
    train, validation = (
        on_device(make_batch(count, seed), device) for count, seed in ((NUM_SAMPLES, 1), (NUM_VALIDATION, 9))
    )
    whole = lora_model(torch.float32).to(device)
    names = [name for name, parameter in whole.named_parameters() if parameter.requires_grad]
    gradients = [
        per_sample_gradients(whole, names, lambda i, rows=rows: sample_losses(whole, rows, [i], "packed")[0], len(rows))
        for rows in (validation, train)
    ]
    total = {name: sum(gradient[name] for gradient in gradients[0]) for name in names}
    expected = torch.tensor([inner(gradient, total) for gradient in gradients[1]], dtype=torch.float64)

    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    try:
        model, plain = _sharded(device, checkpointing), _sharded(device, checkpointing)
        ghost = GhostInfluence(model)
        everyone = list(range(NUM_SAMPLES))
        with without_gradient_sync(model), ghost.validation():
            sample_losses(model, validation, list(range(NUM_VALIDATION)), "packed").sum().backward()
        index = sample_index(train, everyone, "packed").to(device)
        with without_gradient_sync(model), ghost.scoring(index, check_identity=True):
            sample_losses(model, train, everyone, "packed").sum().backward()
        scores, identity_error = ghost.scores(NUM_SAMPLES).cpu(), ghost.identity_error()
        for updated in (model, plain):
            optimizer = torch.optim.AdamW([p for p in updated.parameters() if p.requires_grad], lr=1e-2)
            sample_losses(updated, train, everyone, "packed").sum().backward()
            optimizer.step()
        pairs = zip(model.parameters(), plain.parameters(), strict=True)
        is_undisturbed = all(torch.equal(ours.to_local(), theirs.to_local()) for ours, theirs in pairs)
    finally:
        dist.destroy_process_group()
    return ShardedScores(scores, expected, identity_error, is_undisturbed)


def _sharded(device: str, checkpointing: bool) -> nn.Module:
    model = lora_model(torch.float32).to(device)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh(device, (1,))
    for layer in model.base_model.model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model.train(), mesh=mesh, mp_policy=policy)


# ------------------------------ at size, with random weights ------------------------------


def influence_at_size(
    device: str, size: str, seq_len: int
) -> tuple[dict[str, float], dict[str, dict[int, int | None]]]:
    """Each method's error against per-sample autograd, and its peak memory in bytes by the number of samples."""
    bench = tracin_overhead.Bench(size, seq_len, device, checkpointing=True)
    peaks = {
        name: {count: min(bench.peak_bytes(name, count) or 0 for _ in range(3)) for count in (8, 32)}
        for name in ("plain", "scoring", "one_pass")
    }
    return bench.agreement(), peaks


def golden_at_size(device: str, size: str, state_tokens: int) -> tuple[float, float]:
    """For 16 tokens of a state, one forward pass against one row per token: the largest difference of a log-prob in
    nats, and 1 - cosine of the loss's gradients."""
    bench = golden_actor.Bench(size, state_tokens, device)
    gradients = []
    for method in ("shared", "rows"):
        bench.seconds(method, 16)
        gradients.append({n: p.grad.float().cpu() for n, p in bench.model.named_parameters() if p.grad is not None})
    shared, rows = gradients
    cosine = inner(shared, rows) / (inner(shared, shared) * inner(rows, rows)) ** 0.5
    return bench.disagreement(), 1 - cosine
