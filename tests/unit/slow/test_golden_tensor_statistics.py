"""Statistics of weight tensors: by brute force, value by value, and in a serving dtype that loses small changes."""

import math

import pytest
import torch
from torch import nn

from recipe.golden_redaction.loss.tensor_statistics import NAMES, StepStart, UpdateStatistics, statistics_metrics

FP32, BF16 = torch.float32, torch.bfloat16


def parameter(values: list[float], gradient: list[float] | None, dtype: torch.dtype = FP32) -> nn.Parameter:
    made = nn.Parameter(torch.tensor(values, dtype=dtype))
    if gradient is not None:
        made.grad = torch.tensor(gradient, dtype=dtype)
    return made


def measure(weight: nn.Parameter, change: list[float], serving_dtype: torch.dtype) -> dict[str, float]:
    statistics = UpdateStatistics([("w", weight)], serving_dtype)
    with torch.no_grad():
        weight += torch.tensor(change, dtype=weight.dtype)
    return statistics.after_update()["w"]


def norm(values: list[float]) -> float:
    return math.sqrt(sum(value * value for value in values))


def test_statistics_are_those_of_a_loop_over_the_values():
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3, bias=False))
    layer(torch.randn(4, 7)).square().sum().backward()
    before = {name: p.flatten().tolist() for name, p in layer.named_parameters()}
    statistics = UpdateStatistics(layer.named_parameters(), BF16)
    torch.optim.AdamW(layer.parameters(), lr=1e-3).step()
    found = statistics.after_update()
    assert list(found) == ["0.weight", "0.bias", "1.weight"]
    shares = set()
    for name, p in layer.named_parameters():
        assert p.grad is not None
        after = p.flatten().tolist()
        changes = [new - old for old, new in zip(before[name], after, strict=True)]
        rounded = [(torch.tensor(old).bfloat16(), torch.tensor(new).bfloat16()) for old, new in
                   zip(before[name], after, strict=True)]  # fmt: skip
        wanted = {
            "grad_norm": norm(p.grad.flatten().tolist()),
            "update_to_weight": norm(changes) / norm(before[name]),
            "changed_share": sum(bool(old != new) for old, new in rounded) / len(after),
        }
        assert tuple(found[name]) == NAMES
        assert found[name] == pytest.approx(wanted, rel=1e-4)
        shares.add(found[name]["changed_share"])
    # Otherwise every share could be a constant.
    assert any(0 < share < 1 for share in shares)


def test_a_change_that_serving_rounds_away_changes_nothing_there():
    # bfloat16 has 8 significant bits: its next number after 1 is 1 + 1/128.
    small = [1 / 1024, -1 / 1024]
    served_in_bf16 = measure(parameter([1.0, 2.0], [3.0, 4.0]), small, BF16)
    assert served_in_bf16["changed_share"] == 0.0
    assert served_in_bf16["update_to_weight"] == pytest.approx(norm(small) / norm([1.0, 2.0]))
    assert served_in_bf16["grad_norm"] == pytest.approx(5.0)
    assert measure(parameter([1.0, 2.0], [3.0, 4.0]), small, FP32)["changed_share"] == 1.0
    assert measure(parameter([1.0, 2.0], [3.0, 4.0]), [1 / 64, 0.0], BF16)["changed_share"] == 0.5


def test_a_change_that_the_weights_own_dtype_loses_is_no_change():
    lost = measure(parameter([1.0, 2.0], [1.0, 1.0], BF16), [1 / 1024, 1 / 1024], BF16)
    assert (lost["update_to_weight"], lost["changed_share"]) == (0.0, 0.0)
    kept = measure(parameter([1.0, 2.0], [1.0, 1.0], BF16), [1 / 64, 0.0], BF16)
    # In float32: the norm of a bfloat16 tensor would itself be rounded to 8 bits.
    assert kept["update_to_weight"] == pytest.approx(1 / 64 / math.sqrt(5), rel=1e-6)


def test_parameters_without_a_gradient_are_left_out():
    trained, frozen = parameter([1.0], [1.0]), parameter([1.0], None)
    assert list(UpdateStatistics([("a", trained), ("b", frozen)], FP32).after_update()) == ["a"]


def test_weights_of_zero_have_no_relative_change():
    # Like LoRA's B factors before their first update.
    found = measure(parameter([0.0, 0.0], [1.0, 0.0]), [0.5, 0.0], BF16)
    assert found == {"grad_norm": 1.0, "update_to_weight": 0.0, "changed_share": 0.5}


def test_metrics_are_mean_smallest_and_largest_over_tensors():
    statistics = {
        "a": {"grad_norm": 1.0, "update_to_weight": 0.1, "changed_share": 0.0},
        "b": {"grad_norm": 2.0, "update_to_weight": 0.4, "changed_share": 1.0},
        "c": {"grad_norm": 6.0, "update_to_weight": 0.1, "changed_share": 0.5},
    }
    assert statistics_metrics(statistics) == pytest.approx(
        {
            "golden/tensors/grad_norm/mean": 3.0,
            "golden/tensors/grad_norm/min": 1.0,
            "golden/tensors/grad_norm/max": 6.0,
            "golden/tensors/update_to_weight/mean": 0.2,
            "golden/tensors/update_to_weight/min": 0.1,
            "golden/tensors/update_to_weight/max": 0.4,
            "golden/tensors/changed_share/mean": 0.5,
            "golden/tensors/changed_share/min": 0.0,
            "golden/tensors/changed_share/max": 1.0,
        }
    )
    assert statistics_metrics({}) == {}


def test_a_step_is_shortened_to_a_share_of_its_way_and_taken_back():
    moved, frozen = torch.nn.Parameter(torch.tensor([1.0, 2.0])), torch.nn.Parameter(torch.tensor([5.0]))
    moved.grad = torch.ones(2)
    start = StepStart([moved, frozen])
    with torch.no_grad():
        moved += torch.tensor([4.0, -8.0])
        frozen += 1.0
    start.shorten(0.5)
    assert moved.tolist() == [3.0, -2.0]
    start.shorten(0.5)
    assert moved.tolist() == [2.0, 0.0]
    start.shorten(0.0)
    assert moved.tolist() == [1.0, 2.0]
    assert frozen.tolist() == [6.0]
