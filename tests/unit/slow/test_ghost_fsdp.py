"""Streaming influence scores under FSDP2, on two CPU processes, against one process."""

import contextlib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from influence_models import lora_model, make_batch, sample_index, sample_losses
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from verl_ext.influence import fsdp
from verl_ext.influence.batches import whole
from verl_ext.influence.fsdp import ShardedStorage, without_gradient_sync
from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError

WORLD = 2
NUM_SAMPLES, NUM_VALIDATION = 8, 4
TRAIN, VALIDATION = make_batch(NUM_SAMPLES), make_batch(NUM_VALIDATION, seed=9)
LORA, FULL = "lora", r"base_layer$"
# Parameters, checkpointing, whether G is stored in shards.
CASES = [(LORA, False, False), (LORA, True, False), (FULL, True, False), (FULL, False, True), (FULL, True, True)]
# Mixed-precision policy, whether gradients wait unreduced in FSDP2's own buffers, whether ghost passes fail.
UPDATES = {
    "float32, accumulating": ({}, True, False),
    "bfloat16, with failing passes": (
        {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32},
        False,
        True,
    ),
}


def build(parameters: str, sharded: bool, checkpointing: bool = False, **policy) -> nn.Module:
    """The same model in every process and case; on request, the full layers are trained instead of LoRA."""
    model = lora_model(torch.float32)
    if parameters != LORA:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("base_layer" in name)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    if sharded:
        for layer in model.base_model.model.model.layers:
            fully_shard(layer, mp_policy=MixedPrecisionPolicy(**policy))
        fully_shard(model, mp_policy=MixedPrecisionPolicy(**policy))
    return model


def my_part(num: int, rank: int) -> list[int]:
    return list(range(rank, num, WORLD))


def reduced(gradients: dict[str, torch.Tensor]) -> None:
    """The sum over the ranks; what is sharded is their mean."""
    for gradient in gradients.values():
        if isinstance(gradient, DTensor):
            gradient *= WORLD
        else:
            dist.all_reduce(gradient)


def ghost_passes(model: nn.Module, ghost: GhostInfluence, rank: int, **options) -> torch.Tensor:
    """Validation and scoring, each rank on its part; returns the scores of all ranks."""
    ghost.reset_validation()
    ghost.reset_scores()
    with without_gradient_sync(model), ghost.validation():
        sample_losses(model, VALIDATION, my_part(NUM_VALIDATION, rank)).sum().backward()
    reduced(ghost.validation_gradients())
    samples = my_part(NUM_SAMPLES, rank)
    with without_gradient_sync(model), ghost.scoring(sample_index(TRAIN, samples), **options):
        sample_losses(model, TRAIN, samples).sum().backward()
    scores = ghost.scores(NUM_SAMPLES)
    dist.all_reduce(scores)
    return scores


def failing_passes(model: nn.Module, ghost: GhostInfluence, rank: int) -> None:
    """Scoring that ends with an exception, on every rank, in the forward and in the backward."""

    def interrupt(*_):
        raise RuntimeError("interrupted")

    def interrupt_backward(_module, _args, output):
        (output if isinstance(output, torch.Tensor) else output[0]).register_hook(interrupt)

    samples, layer = my_part(NUM_SAMPLES, rank), model.base_model.model.model.layers[0].mlp
    for hook in (interrupt, interrupt_backward):
        handle = layer.register_forward_hook(hook)
        with (
            pytest.raises(RuntimeError, match="interrupted"),
            without_gradient_sync(model),
            ghost.scoring(sample_index(TRAIN, samples)),
        ):
            sample_losses(model, TRAIN, samples).sum().backward()
        handle.remove()


def train(model: nn.Module, rank: int, between=lambda: None, accumulate: bool = False) -> dict[str, torch.Tensor]:
    """Two updates, `between` before each and while `.grad` is filled; returns all gradients and weights."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    result = {}
    for step in range(2):
        between()
        if accumulate:
            model.set_requires_gradient_sync(False)
            sample_losses(model, TRAIN, my_part(NUM_SAMPLES, rank)).sum().backward()
            # The next backward will reduce the gradients that wait; a ghost pass before it must not.
            model.set_requires_gradient_sync(True)
            between()
            assert all(p.grad is None for p in model.parameters())
        sample_losses(model, VALIDATION, my_part(NUM_VALIDATION, rank)).sum().backward()
        gradients = {n: p.grad.to_local().clone() for n, p in model.named_parameters() if p.grad is not None}
        between()
        assert gradients.keys() == {n for n, p in model.named_parameters() if p.grad is not None}
        for name, gradient in gradients.items():
            assert torch.equal(dict(model.named_parameters())[name].grad.to_local(), gradient), name
        result |= {f"gradient {step} {n}": g for n, g in gradients.items()}
        optimizer.step()
        optimizer.zero_grad()
    return result | {f"weight {n}": p.detach().to_local().clone() for n, p in model.named_parameters()}


def in_process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    try:
        results = {}
        fsdp.SMALLEST_SHARDED = 1
        for parameters, checkpointing, in_shards in CASES:
            model = build(parameters, sharded=True, checkpointing=checkpointing)
            ghost = GhostInfluence(model, parameters, ShardedStorage(model) if in_shards else None)
            key = f"{parameters} {checkpointing} {in_shards}"
            # The ghost passes are the model's first forward: FSDP2 initialises itself in them.
            results[f"scores {key}"] = ghost_passes(model, ghost, rank, check_identity=True, sum_gradients=True)
            results[f"identity {key}"] = ghost.identity_error()
            stored = ghost.validation_gradients()
            results[f"shapes {key}"] = {n: g.shape for n, g in stored.items()}
            results[f"stored {key}"] = sum(ShardedStorage(model).local(g).numel() for g in stored.values())
            results[f"total {key}"] = {n: whole(g) for n, g in ghost.total_gradients().items()}
            flags = [p.requires_grad for p in model.parameters()]
            failing_passes(model, ghost, rank)
            results[f"again {key}"] = ghost_passes(model, ghost, rank)
            results[f"flags {key}"] = flags == [p.requires_grad for p in model.parameters()]

        for name, (policy, accumulate, failing) in UPDATES.items():
            plain = train(build(LORA, sharded=True, **policy), rank, accumulate=accumulate)
            model = build(LORA, sharded=True, **policy)
            ghost = GhostInfluence(model)

            def between(model=model, ghost=ghost, failing=failing):
                ghost_passes(model, ghost, rank)
                if failing:
                    failing_passes(model, ghost, rank)

            disturbed = train(model, rank, between, accumulate)
            results[f"train {name}"] = plain.keys() == disturbed.keys() and all(
                torch.equal(plain[key], disturbed[key]) for key in plain
            )

        # One pass: selecting every sample gives FSDP2's own gradient, which is the mean over ranks.
        model = build(LORA, sharded=True)
        ghost = GhostInfluence(model)
        ghost_passes(model, ghost, rank, keep_gradients=True)
        ghost.accumulate_selected(torch.ones(NUM_SAMPLES))
        selected = ghost.take_selected_gradients()
        reduced(selected)
        sample_losses(model, TRAIN, my_part(NUM_SAMPLES, rank)).sum().backward()
        full = {n: p.grad.full_tensor() for n, p in model.named_parameters() if p.grad is not None}
        results["one pass"] = max(
            float((selected[n] / WORLD - g).abs().max() / g.abs().max()) for n, g in full.items() if g.abs().max() > 0
        )

        flat = FullyShardedDataParallel(nn.Sequential(nn.Linear(4, 4)), device_id=torch.device("cpu"))
        with pytest.raises(InfluenceError, match="need FSDP2"), without_gradient_sync(flat):
            pass
        with pytest.raises(InfluenceError, match="the root: FSDP2"), without_gradient_sync(nn.Sequential(model)):
            pass
        torch.save(results, f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> list[dict]:
    """The results of each process."""
    folder: Path = tmp_path_factory.mktemp("fsdp")
    mp.spawn(in_process, args=(str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORLD)]


@pytest.mark.parametrize(("parameters", "checkpointing", "in_shards"), CASES)
def test_scores_are_those_of_one_process(results, parameters, checkpointing, in_shards):
    model = build(parameters, sharded=False)
    ghost = GhostInfluence(model, parameters)
    for rank in range(WORLD):
        with ghost.validation():
            sample_losses(model, VALIDATION, my_part(NUM_VALIDATION, rank)).sum().backward()
    for rank in range(WORLD):
        samples = my_part(NUM_SAMPLES, rank)
        with ghost.scoring(sample_index(TRAIN, samples), sum_gradients=True):
            sample_losses(model, TRAIN, samples).sum().backward()
    expected, stored = ghost.scores(NUM_SAMPLES), sum(g.numel() for g in ghost.validation_gradients().values())
    key = f"{parameters} {checkpointing} {in_shards}"
    for name, total in ghost.total_gradients().items():
        # Sums of each rank's own tokens, or their mean.
        own = [result[f"total {key}"][name] for result in results]
        got = WORLD * own[0] if in_shards else sum(own)
        assert torch.allclose(got, total, rtol=1e-5, atol=1e-6 * float(total.abs().max()))
    for result in results:
        assert result[f"stored {key}"] == stored // (WORLD if in_shards else 1)
        for name in ("scores", "again"):
            assert float((result[f"{name} {key}"] - expected).abs().max() / expected.abs().max()) < 1e-6
        assert result[f"identity {key}"] < 1e-6
        assert result[f"shapes {key}"] == {n: g.shape for n, g in ghost.validation_gradients().items()}
        assert result[f"flags {key}"]


@pytest.mark.parametrize("case", UPDATES)
def test_training_is_bit_for_bit_what_it_is_without_ghost_passes(results, case):
    assert all(result[f"train {case}"] for result in results)


def test_one_pass_gives_the_gradient_that_fsdp2_reduces(results):
    assert all(result["one pass"] < 1e-6 for result in results)


def test_without_sharding_the_context_does_nothing():
    model = nn.Linear(2, 2)
    with without_gradient_sync(model), contextlib.suppress(ZeroDivisionError):
        model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is not None
