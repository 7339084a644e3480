"""`serving.rounding`: unbiased, the same everywhere, and what it is for: small updates move what is served."""

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from transformers import LlamaConfig, LlamaForCausalLM

from verl_ext.core.errors import ConfigError
from verl_ext.core.worker_modules import add_worker_module, worker_modules
from verl_ext.launch.compatibility import SHARED, check_compatibility, choose_rounding
from verl_ext.serving.rounding import _CHUNK, _keys, round_to_bfloat16, rounded  # pyright: ignore[reportPrivateUsage]
from verl_ext.serving.settings import apply_serving

ROOT = Path(__file__).resolve().parents[3]
MODULE = "verl_ext.serving.rounded_weights"
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
# Beyond it, numbers round to infinity.
LARGEST = torch.finfo(torch.bfloat16).max
SPACING = 2.0**-7  # of bfloat16 from 1 to 2


def neighbours(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bfloat16 numbers on both sides in float32, the smaller in magnitude first."""
    bits = value.view(torch.int32) & -65536
    return bits.view(torch.float32), (bits + 65536).view(torch.float32)


# ------------------------------ one tensor ------------------------------


@given(FLOATS.filter(lambda value: abs(value) <= LARGEST), st.integers(0, 9))
@example(-0.0, 0)
@example(1e-45, 0)  # the smallest
@example(-LARGEST, 0)
def test_a_number_goes_to_one_of_its_two_neighbours(value: float, seed: int):
    exact = torch.full((64,), value)
    found = round_to_bfloat16(exact, "w", seed).float()
    lower, upper = neighbours(exact)
    assert torch.all((found == lower) | (found == upper))
    if torch.equal(exact.bfloat16().float(), exact):
        assert torch.equal(found.view(torch.int32), exact.view(torch.int32))  # also -0.0


@given(st.floats(-2, 2, width=32), st.integers(0, 3))
def test_the_mean_is_the_number(value: float, seed: int):
    exact = torch.full((20_000,), value)
    found = round_to_bfloat16(exact, "w", seed).double()
    lower, upper = (float(each[0]) for each in neighbours(exact))
    place = (value - lower) / (upper - lower)
    deviation = abs(upper - lower) * math.sqrt(place * (1 - place) / exact.numel())
    assert abs(float(found.mean()) - value) <= 6 * deviation + 1e-12


def test_every_place_in_a_cell_goes_up_as_often_as_it_should():
    places = torch.arange(65_536) / 65_536
    found = [round_to_bfloat16(1 + SPACING * places, "w", seed) > 1 for seed in range(64)]
    shares = torch.stack(found).float().mean(dim=0).reshape(64, -1).mean(dim=1)
    assert torch.allclose(shares, (torch.arange(64) + 0.5) / 64, atol=0.01)


@given(st.lists(FLOATS, min_size=2, max_size=20), st.integers(0, 9))
def test_a_larger_number_is_not_served_smaller(values: list[float], seed: int):
    # The same place in the same tensor, so the same threshold.
    found = [float(round_to_bfloat16(torch.tensor([value]), "w", seed)) for value in sorted(values)]
    assert found == sorted(found)


def test_infinities_and_nan_stay():
    found = round_to_bfloat16(torch.tensor([math.inf, -math.inf, math.nan, 1.0]), "w")
    assert found[:2].tolist() == [math.inf, -math.inf]
    assert found[2].isnan()
    # NaNs: one with all set bits in the half that is dropped, and those that would carry into the sign.
    odd = torch.tensor([0x7F800001, -1, -0x7FFFFF], dtype=torch.int32).view(torch.float32)
    assert round_to_bfloat16(odd, "w").isnan().all()


def test_the_same_name_and_seed_have_the_same_thresholds_and_others_have_others():
    exact = torch.full((1000,), 1 + SPACING / 2)
    first = round_to_bfloat16(exact, "model.layers.0.weight", 3)
    assert torch.equal(first, round_to_bfloat16(exact.clone(), "model.layers.0.weight", 3))
    for other in (
        round_to_bfloat16(exact, "model.layers.1.weight", 3),
        round_to_bfloat16(exact, "model.layers.0.weight", 4),
    ):
        assert 0.4 < float((first == other).float().mean()) < 0.6


def test_thresholds_are_those_of_whole_numbers_of_32_bits():
    """They must be the same in every release and on every device: others would move weights that were not updated."""

    def threshold(index: int) -> int:
        stride, offset = _keys("w", 0)
        state = (index * stride + offset) % 2**32
        state = ((state ^ state >> 16) * 0x7FEB352D) % 2**32
        state = ((state ^ state >> 15) * 0x846CA68B) % 2**32
        return state >> 16

    places = torch.arange(_CHUNK + 500) * 97 % 65_536
    found = (round_to_bfloat16(1 + SPACING * places / 65_536, "w") > 1).tolist()
    for index in (*range(500), *range(_CHUNK - 500, _CHUNK + 500)):  # across the end of a chunk
        assert found[index] == (int(places[index]) + threshold(index) >= 65_536)
    assert "".join(str(int(each)) for each in found[330:346]) == "1100100100011100"


def test_thresholds_are_of_the_place_in_the_tensor_whatever_its_strides():
    exact = 1 + SPACING * torch.rand(3, 5)
    expected = round_to_bfloat16(exact.reshape(-1), "w").view(3, 5)
    assert torch.equal(round_to_bfloat16(exact.T.contiguous().T, "w"), expected)
    assert round_to_bfloat16(torch.empty(0, 4), "w").shape == (0, 4)
    assert round_to_bfloat16(torch.tensor(1.0), "w").shape == ()


def test_what_is_rounded_is_left_as_it_was():
    exact = 1 + SPACING * torch.rand(100, requires_grad=True)
    before = exact.detach().clone()
    assert not round_to_bfloat16(exact, "w").requires_grad
    assert torch.equal(exact.detach(), before)


def test_only_float32_is_rounded():
    half, ids = torch.rand(3).bfloat16(), torch.arange(3)
    found = dict(rounded([("half", half), ("ids", ids), ("single", torch.rand(3))]))
    assert found["half"] is half
    assert found["ids"] is ids
    assert found["single"].dtype == torch.bfloat16
    with pytest.raises(TypeError, match=r"expected float32 values of w to round, got torch\.float64"):
        round_to_bfloat16(torch.rand(3).double(), "w")


def test_one_tensor_is_held_at_a_time():
    asked = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name in "ab":
            asked.append(name)
            yield name, torch.rand(2)

    served = rounded(weights())
    assert asked == []
    next(served)
    assert asked == ["a"]


# ------------------------------ small updates ------------------------------


def movement(rounding: Any, relative_step: float, seed: int) -> float:
    """Served over intended change of log-probs after one update along their gradient, from a bfloat16 checkpoint."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=300, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    weights = {name: value.detach().bfloat16().float() for name, value in model.named_parameters()}
    ids, tokens = torch.randint(0, 300, (8, 12)), torch.randint(0, 300, (8, 1))

    def log_prob(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        logits = torch.func.functional_call(model, weights, (ids,)).logits[:, -1]
        return torch.log_softmax(logits.double(), dim=-1).gather(1, tokens).mean()

    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    gradients = dict(zip(leaves, torch.autograd.grad(log_prob(leaves), list(leaves.values())), strict=True))
    sizes = [math.sqrt(sum(float(value.square().sum()) for value in each.values())) for each in (weights, gradients)]
    scale = relative_step * sizes[0] / sizes[1]
    after = {name: weights[name] + scale * gradients[name] for name in weights}
    with torch.no_grad():
        before = log_prob(rounding(weights))
        return float((log_prob(rounding(after)) - before) / (log_prob(after) - log_prob(weights)))


def to_nearest(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.bfloat16().float() for name, value in weights.items()}


def stochastically(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.float() for name, value in rounded(weights.items())}


def test_a_small_update_of_a_bfloat16_checkpoint_vanishes_to_nearest_and_is_served_stochastically():
    lost = [movement(to_nearest, 1e-5, seed) for seed in range(4)]
    served = [movement(stochastically, 1e-5, seed) for seed in range(4)]
    assert max(lost) < 0.5
    assert 0.9 < sum(served) / 4 < 1.1
    assert min(served) > 0.8


# ------------------------------ from verl's engine ------------------------------


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Any]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """verl's engine class with a method that returns given weights, wrapped as on import of the module."""
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    def hand_over(self: Any, layered_summon: bool = False, base_sync_done: bool = False) -> Any:
        whole = (
            (name, value.full_tensor() if isinstance(value, DTensor) else value)
            for name, value in self.parameters.items()
        )
        return whole, {"asked": (layered_summon, base_sync_done)}

    monkeypatch.setattr(FSDPEngine, "get_per_tensor_param", hand_over)
    from verl_ext.serving.rounded_weights import round_what_is_sent

    round_what_is_sent()
    once = FSDPEngine.get_per_tensor_param
    round_what_is_sent()
    assert FSDPEngine.get_per_tensor_param is once
    return FSDPEngine.__new__(FSDPEngine)


def test_the_engine_hands_over_whole_tensors_rounded_however_they_are_sharded(engine: Any, mesh: Any):
    exact = 1 + SPACING * torch.rand(6, 4)
    placements = {"none": None, "rows": Shard(0), "columns": Shard(1), "copies": Replicate()}
    for placement in placements.values():
        engine.parameters = {
            "w": exact if placement is None else DTensor.from_local(exact, mesh, [placement], run_check=False)
        }
        weights, config = engine.get_per_tensor_param(layered_summon=True, base_sync_done=True)
        assert config == {"asked": (True, True)}
        (name, served), *rest = weights
        assert (name, rest) == ("w", [])
        assert torch.equal(served, round_to_bfloat16(exact, "w"))


# ------------------------------ the setting ------------------------------


@functools.cache
def _composed(name: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(name, overrides=["data.train_files=none.parquet", "actor_rollout_ref.model.path=/none"])


def settings(name: str, *options: str) -> DictConfig:
    config = OmegaConf.merge(_composed(name), OmegaConf.from_dotlist(list(options)))
    assert isinstance(config, DictConfig)
    return config


def test_golden_redaction_rounds_stochastically_but_where_the_cpu_serves_float32():
    for name, modules in {"golden_redaction": [MODULE], "fast_dapo": []}.items():
        config = settings(name)
        assert choose_rounding(config) is None
        apply_serving(config)
        apply_serving(config)
        assert worker_modules(config) == modules
    on_cpu = settings("golden_redaction_cpu")
    check_compatibility(on_cpu, ())
    apply_serving(on_cpu)
    assert worker_modules(on_cpu) == ["verl_ext.cpu.engine"]


def test_no_change_of_a_master_counts_as_lost_that_is_rounded_stochastically():
    from types import SimpleNamespace

    from recipe.golden_redaction.trainer import GoldenTrainer

    for rounding, resolution in {"stochastic": torch.float32, "nearest": torch.bfloat16}.items():
        trainer = SimpleNamespace(config=settings("golden_redaction", f"serving.rounding={rounding}"))
        assert GoldenTrainer._resolution(trainer) == resolution  # type: ignore[arg-type]


def test_a_module_is_imported_after_those_that_are_given():
    config = settings("golden_redaction_cpu")
    add_worker_module(config, "mine")
    assert worker_modules(config) == ["verl_ext.cpu.engine", "mine"]


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match=r"serving\.rounding must be one of auto, nearest, stochastic, got 'up'"):
        apply_serving(settings("fast_dapo", "serving.rounding=up"))


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("actor_rollout_ref.rollout.dtype=float32", "rollout.dtype=bfloat16"),
        ("model_engine=megatron", "model_engine=dp"),
        ("actor_rollout_ref.actor.fsdp_config.model_dtype=bf16", "model_dtype=fp32"),
        ("actor_rollout_ref.model.lora_rank=16", "lora.merge=false"),
        ("actor_rollout_ref.model.lora_adapter_path=/adapter", "lora.merge=false"),
        ("actor_rollout_ref.rollout.checkpoint_engine.backend=delta_sharded", "backend=nccl"),
        ("actor_rollout_ref.rollout.quantization=fp8", "once more"),
        ("actor_rollout_ref.actor.qat.enable=true", "once more"),
    ],
)
def test_it_is_refused_where_it_can_do_nothing(option: str, remedy: str):
    def said(rounding: str) -> list[str]:
        config = settings("fast_dapo", option, f"serving.rounding={rounding}")
        problems = [row.problem(config) for row in SHARED if row.key == "serving.rounding"]
        return [problem for problem in problems if problem is not None]

    (problem,) = said("stochastic")
    assert problem.startswith("serving.rounding=stochastic: ")
    assert "Set serving.rounding=nearest" in problem
    assert remedy in problem
    assert said("nearest") == []

    config = settings("fast_dapo", option, "serving.rounding=auto")
    reason = choose_rounding(config)
    assert config.serving.rounding == "nearest"
    sentence = problem.removeprefix("serving.rounding=stochastic: ")
    assert reason == f"serving.rounding=auto is nearest in this run: {sentence.split('. Set ')[0]}"


def test_auto_is_stochastic_where_that_can_act_and_a_choice_stays():
    for asked, found in {"auto": "stochastic", "nearest": "nearest", "stochastic": "stochastic"}.items():
        config = settings("fast_dapo", f"serving.rounding={asked}")
        assert choose_rounding(config) is None
        assert config.serving.rounding == found
