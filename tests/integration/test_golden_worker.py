"""`TokenTrainingWorker` on verl's real training worker and FSDP2 engine, against plain torch.

1 and 2 CPU processes (2: `make test-release`), no Ray. verl runs in float64 here, so that 1e-10 separates an exact
number from a nearly right one; lower precisions are only checked to move log-probs the intended way.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import golden_ranks as ranks
import influence_oracle as oracle
import pytest
import torch
from golden_ranks import (
    CLIP,
    INFER_MAX_TOKENS,
    LEARNING_RATE,
    MAX_TOKENS,
    MINI_BATCHES,
    NUM_MOVED,
    PRECISIONS,
    TOTAL_STEPS,
    WEIGHT_DECAY,
)
from influence_oracle import FULL, LORA
from worlds import Found, each_world

from recipe.golden_redaction.loss.forward import plan_micro_batches
from recipe.golden_redaction.method.movement import movement
from verl_ext.serving.rounding import round_to_bfloat16

WORLDS = each_world((1, 2))
NUM_STATES = 9
Rows = list[dict[str, Any]]


def plain_log_probs(model: torch.nn.Module, row: dict[str, Any]) -> torch.Tensor:
    """(K,) log-probs of one unpadded state."""
    return model(input_ids=torch.tensor([row["ids"]])).logits[0, -1].log_softmax(dim=-1)[list(row["tokens"])]


def make_rows(model: torch.nn.Module) -> Rows:
    """Labelled states of 1 to 17 tokens, with preferred, dispreferred and unlabelled tokens and one past its target."""
    generator = torch.Generator().manual_seed(3)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    rows: Rows = []
    for place in range(NUM_STATES):
        length = 17 if place == 2 else number(1, 12)
        ids = tuple(number(0, 250) for _ in range(length))
        tokens = tuple(torch.randperm(250, generator=generator)[: number(2, 5)].tolist())
        row = {"ids": ids, "tokens": tokens}
        with torch.no_grad():
            log_probs = plain_log_probs(model, row).tolist()
        advantages = ((1, -1, 0, 1), (-1, 1, 1, 0), (1, 1, -1, -1))[place % 3][: len(tokens)]
        ways = {1: 0.5, -1: 2.0, 0: math.nan}
        targets = [ways[sign] * value for sign, value in zip(advantages, log_probs, strict=True)]
        if place == 4:
            targets[0] = log_probs[0] + advantages[0] * -1.0
        # Rounded to 32 bits, as the worker's targets are.
        rows.append(row | {
            "targets": tuple(torch.tensor(targets).tolist()),
            "advantages": advantages,
            "weights": tuple((0.25 * torch.arange(1, len(tokens) + 1)).tolist()),
        })  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The model, the adapter and the rows."""
    folder = tmp_path_factory.mktemp("golden")
    with pytest.MonkeyPatch.context() as patch:
        oracle.keep_precision(patch.setattr)
        oracle.save_models(folder)
        torch.save(make_rows(oracle.load_model(folder, FULL, torch.float64)), folder / "rows.pt")
    return folder


@pytest.fixture(scope="module")
def rows(folder) -> Rows:
    return torch.load(folder / "rows.pt")


@pytest.fixture(scope="module")
def found(folder) -> Found:
    """Results of the processes of each world size."""
    return Found(ranks.all_worlds, folder)


@pytest.fixture(scope="module", autouse=True)
def _precise():
    with pytest.MonkeyPatch.context() as patch:
        oracle.keep_precision(patch.setattr)
        yield


# ------------------------------ log-probs ------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_log_probs_are_those_of_a_plain_forward(found, folder, rows, world):
    models = {"values": FULL, "lora, without=True": FULL, "lora, without=False": LORA}
    for name, parameters in models.items():
        model = oracle.load_model(folder, parameters, torch.float64)
        with torch.no_grad():
            wanted = torch.cat([plain_log_probs(model, row) for row in rows])
        got = torch.tensor(found[world]["log-probs"][name], dtype=torch.float64)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("world", WORLDS)
def test_every_state_is_computed_on_one_rank_and_leaves_no_gradient(found, world):
    result = found[world]["log-probs"]
    assert sorted(index for rank in result["states"] for index in rank) == list(range(NUM_STATES))
    assert min(map(len, result["states"])) >= NUM_STATES // world - 1
    assert not result["requires grad"]


@pytest.mark.parametrize("world", WORLDS)
def test_hidden_norms_are_measured_only_if_asked_for(found, world):
    result = found[world]["log-probs"]
    assert [len(norms) for norms in result["hidden_norms"]] == [2] * world
    assert all(value > 0 for norms in result["hidden_norms"] for value in norms)
    assert result["without norms"] == [[]] * world


# ------------------------------ updates ------------------------------


class PlainTraining:
    """The same updates in this process: one state per forward pass, torch's AdamW, a cosine schedule over the calls."""

    def __init__(self, folder: Path, rows: Rows) -> None:
        model = oracle.load_model(folder, FULL, torch.float64)
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
        self.rates = [LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * call / TOTAL_STEPS)) for call in range(3)]
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        self.statistics: list[dict[str, dict[str, float]]] = []
        for rate in self.rates[:2]:
            optimizer.param_groups[0]["lr"] = rate
            for part in MINI_BATCHES:
                optimizer.zero_grad()
                loss = torch.stack([self._loss(model, rows[index]) for index in part]).sum()
                loss.backward()
                self.losses.append(loss.item())
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                self.norms.append(float(norm))
                before = {name: p.detach().clone() for name, p in model.named_parameters()}
                optimizer.step()
                self.statistics.append(
                    {name: self._statistics(before[name], p) for name, p in model.named_parameters()}
                )
            self.weights.append({name: p.detach().clone() for name, p in model.named_parameters()})

    @staticmethod
    def _loss(model: torch.nn.Module, row: dict[str, Any]) -> torch.Tensor:
        columns = zip(plain_log_probs(model, row), row["targets"], row["advantages"], row["weights"], strict=True)
        return torch.stack(
            [weight * torch.relu(sign * (target - value)) for value, target, sign, weight in columns if sign]
        ).sum()

    @staticmethod
    def _statistics(before: torch.Tensor, parameter: torch.nn.Parameter) -> dict[str, float]:
        assert parameter.grad is not None
        return {
            "grad_norm": float(parameter.grad.norm()),
            "update_to_weight": float((parameter.detach() - before).norm() / before.norm()),
            "changed_share": float((parameter.bfloat16() != before.bfloat16()).double().mean()),
        }


@pytest.fixture(scope="module")
def plain(folder, rows) -> PlainTraining:
    with pytest.MonkeyPatch.context() as patch:
        oracle.keep_precision(patch.setattr)
        return PlainTraining(folder, rows)


@pytest.mark.parametrize("world", WORLDS)
def test_updates_are_those_of_plain_adamw(found, plain, world):
    """With 2 ranks, one of them has no state of the second mini-batch, and fewer of the others."""
    result = found[world]["update"]
    updates = [[rank[number] for rank in call] for call in result["updates"] for number in range(len(MINI_BATCHES))]
    assert [sum(rank["loss"] for rank in ranks) for ranks in updates] == pytest.approx(plain.losses, rel=1e-9)
    # AdamW is nearly invariant to the scale of a gradient; its norm is not.
    for ranks_, norm in zip(updates, plain.norms, strict=True):
        assert [rank["grad_norm"] for rank in ranks_] == pytest.approx([norm] * world, rel=1e-6)
    # Otherwise clipping would not have been tested.
    assert max(plain.norms) > CLIP
    if world > 1:
        assert updates[1][1]["loss"] == 0.0 != updates[1][0]["loss"]
    for call, wanted in enumerate(plain.weights):
        assert result["weights"][call].keys() == wanted.keys()
        for name, weight in wanted.items():
            torch.testing.assert_close(result["weights"][call][name], weight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("world", WORLDS)
def test_a_mini_batch_is_one_step_and_a_call_one_step_of_the_schedule(found, plain, world):
    result = found[world]["update"]
    assert result["steps"] == {2 * len(MINI_BATCHES)}
    assert [rate for (rate,) in result["rates"]] == pytest.approx(plain.rates)
    assert result["cleared"]


@pytest.mark.parametrize("world", WORLDS)
def test_statistics_are_of_whole_tensors_and_only_if_asked_for(found, plain, world):
    without, measured = found[world]["update"]["updates"]
    assert all(update["statistics"] == {} for rank in without for update in rank)
    for rank in measured:
        for update, wanted in zip(rank, plain.statistics[len(MINI_BATCHES) :], strict=True):
            assert update["statistics"].keys() == wanted.keys()
            for name, values in wanted.items():
                assert update["statistics"][name] == pytest.approx(values, rel=1e-4), name


@pytest.mark.parametrize("world", WORLDS)
def test_tokens_past_their_targets_move_nothing(found, world):
    result = found[world]["past targets"]
    assert result["moved"] == []
    assert all((update["loss"], update["grad_norm"]) == (0.0, 0.0) for rank in result["updates"] for update in rank)


def movements(found: dict[str, Any]) -> list[tuple[str, float]]:
    """Kind of movement and share of the distance covered, of every labelled token that is not yet at its target."""
    after, moved = iter(found["after"]), []
    for row in found["rows"]:
        own = [next(after) for _ in row["tokens"]]
        what = movement(row["before"], own, row["targets"], row["advantages"])
        ways = zip(what.kinds, what.moved, what.asked, strict=True)
        moved += [(kind, way / asked) for kind, way, asked in ways if kind and asked > 0]
    return moved


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["far", "near"])
def test_several_steps_end_at_the_targets_and_no_further(found, rows, world, name):
    result = found[world]["approach"]
    moved = movements(result[name])
    assert {kind for kind, _ in moved} == {"intended"}
    assert all(0.6 < share < 1.0 for _, share in moved)
    # A single step of that length does not.
    assert sum(not 0.6 < share < 1.0 for _, share in movements(result[f"one {name}"])) > len(moved) / 2
    updates = [rank[0] for rank in result[name]["updates"]]
    assert len({update["num_steps"] for update in updates}) == 1
    assert 1 < updates[0]["num_steps"] <= 60
    assert all(update["statistics"] for update in updates)
    columns = zip(
        (value for row in result[name]["rows"] for value in row["before"]),
        (value for row in result[name]["rows"] for value in row["targets"]),
        (value for row in rows for value in row["advantages"]),
        (value for row in rows for value in row["weights"]),
        strict=True,
    )
    loss = sum(weight * max(0.0, sign * (target - value)) for value, target, sign, weight in columns if sign)
    assert sum(update["loss"] for update in updates) == pytest.approx(loss)


@pytest.mark.parametrize("world", WORLDS)
def test_the_targets_size_reaches_the_weights_with_several_steps_alone(found, world):
    result = found[world]["approach"]
    assert result["one far"]["after"] == result["one near"]["after"]
    far, near = (torch.tensor(result[name]["after"]) for name in ("far", "near"))
    assert (far - near).abs().max() > 0.1
    # Regardless of the number of ranks that share the states.
    torch.testing.assert_close(
        far, torch.tensor(found[1]["approach"]["far"]["after"]), rtol=0, atol=1e-6, check_dtype=False
    )


@pytest.mark.parametrize("world", WORLDS)
def test_the_learning_rate_follows_the_number_of_states_and_the_schedule_does_not_see_it(found, world):
    result = found[world]["scaled"]
    assert any(change.abs().max() > 1e-4 for change in result["False"].values())
    for name, change in result["False"].items():
        torch.testing.assert_close(result["True"][name], 2 * change, rtol=0, atol=1e-12)  # four states
    assert result["True, rates"] == result["False, rates"]
    assert max(result["True, rates"]) <= 0.01


@pytest.mark.parametrize("world", WORLDS)
def test_a_state_is_one_row_of_one_forward_within_the_limits_of_tokens(found, rows, world):
    def planned(parts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """[rank] sizes of its forward passes; a rank without its own state takes part with one."""
        lengths = [[len(rows[index]["ids"]) for index in part] for part in parts]
        plan = [micro for part in lengths for micro in plan_micro_batches(part, world, max_tokens)]
        return [[len(micro[rank]) or 1 for micro in plan] for rank in range(world)]

    assert found[world]["log-probs"]["forwards"] == planned([range(NUM_STATES)], INFER_MAX_TOKENS)
    assert found[world]["update"]["forwards"] == planned(MINI_BATCHES, MAX_TOKENS)
    assert planned([range(NUM_STATES)], INFER_MAX_TOKENS) != planned([range(NUM_STATES)], MAX_TOKENS)


# ------------------------------ precision ------------------------------


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("precision", PRECISIONS, ids=lambda precision: precision.label)
def test_log_probs_move_the_intended_way(found, rows, precision, world):
    result = found[world][precision.label]
    assert result["kept in"] == {f"torch.{'bfloat16' if precision.kept_in == 'bf16' else 'float32'}"}
    low = dict.fromkeys(("q_proj", "o_proj", "gate_proj"), "torch.bfloat16")
    if precision.computed_in == "fp32":
        low = dict.fromkeys(low, "torch.float32")
        if precision.attention:
            low |= {"q_proj": "torch.bfloat16", "o_proj": "torch.bfloat16"}
    assert result["computed in"] == low

    columns = [
        column
        for row in rows[:NUM_MOVED]
        for column in zip(row["targets"], row["advantages"], row["weights"], strict=True)
    ]
    moved, loss = [], 0.0
    for (target, sign, weight), before, after in zip(columns, result["before"], result["after"], strict=True):
        if sign:
            loss += weight * max(0.0, sign * (target - before))
            moved.append(sign * (after - before))
    assert result["loss"] == pytest.approx(loss, rel=1e-3)
    assert min(moved) > 0.01
    assert max(result["changed"]) > 0.01


@pytest.mark.parametrize("world", WORLDS)
def test_the_engine_serves_the_same_rounded_weights_from_any_number_of_ranks(found, folder, world):
    served = found[world]["served"]
    exact = oracle.load_model(folder, FULL, torch.float32).state_dict()
    assert served.keys() == exact.keys()
    for name, weight in exact.items():
        assert torch.equal(served[name], round_to_bfloat16(weight, name)), name
    assert any(not torch.equal(served[name], weight.bfloat16()) for name, weight in exact.items())


@pytest.mark.parametrize("world", WORLDS)
def test_attention_in_bf16_changes_log_probs_a_little(found, world):
    plain, low = (torch.tensor(found[world][name]["before"]) for name in ("fp32", "fp32 with bf16 attention"))
    difference = (plain - low).abs()
    assert 1e-4 < difference.max() < 0.5
    assert difference.median() < 0.1


def test_a_model_without_attention_is_refused(found):
    message = found[1]["refusal"]
    assert message.startswith("ConfigError: golden.attention_dtype: no module of the model is named self_attn or ")
