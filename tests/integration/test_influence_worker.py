"""`InfluenceTrainingWorker` on verl's real training worker, FSDP2 engine and `ppo_loss`, against plain autograd.

1, 2 and 4 CPU processes (more than one: `make test-release`), no Ray. verl runs in float64 here, so that 1e-10
separates an exact score from a nearly right one; float32 and bf16 have their own bounds.
"""

import copy
import re
from pathlib import Path
from typing import Any

import influence_oracle as oracle
import pytest
import torch
from influence_cases import (
    IN_BF16,
    MINI_BATCHES,
    NOTHING_POSITIVE,
    ONE_PASS,
    PRECONDITIONED,
    SCORED,
    UNTOUCHED,
    Case,
    OnePass,
)
from influence_oracle import FULL, LORA, NUM_ROWS, NUM_VALIDATION, Gradients
from influence_ranks import all_worlds
from torch.utils.data import DataLoader
from verl.utils import tensordict_utils as tu
from worlds import ONLY_RELEASE, Found, each_world, marks_of

from verl_ext.influence.batches import SAMPLE_POSITION, sample_index
from verl_ext.influence.method.denominators import mini_batches

TOLERANCE = {"fp64": 1e-10, "fp32": 1e-5}


def in_worlds(cases: list[Any]) -> list[Any]:
    return [
        pytest.param(case, world, id=f"{case.label or 'default'}-{world}", marks=marks_of(world))
        for case in cases
        for world in case.worlds
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The model, the adapter and the rows."""
    folder = tmp_path_factory.mktemp("influence")
    with pytest.MonkeyPatch.context() as patch:
        oracle.keep_precision(patch.setattr)
        oracle.save_models(folder)
        rows = oracle.make_rows(folder), oracle.make_rows(folder, NUM_VALIDATION, seed=2)
        torch.save(rows, folder / "rows.pt")
    return folder


@pytest.fixture(scope="module")
def found(folder) -> Found:
    """Results of the processes of each world size."""
    return Found(all_worlds, folder)


class Expected:
    """Per-row gradients by autograd, computed once for each loss."""

    def __init__(self, folder: Path) -> None:
        self.train, self.validation = torch.load(folder / "rows.pt")
        self.models = {p: oracle.load_model(folder, p, torch.float64) for p in (LORA, FULL)}
        self.names = {p: oracle.scored_names(model, p) for p, model in self.models.items()}
        self._known: dict[tuple, list[Gradients]] = {}

    def rows(self, case: Case | OnePass, mini_batch_of: tuple[int, ...] = ()) -> list[Gradients]:
        parameters = case.engine.parameters
        key = (parameters, case.mode, case.terms, mini_batch_of)
        if key not in self._known:
            self._known[key] = oracle.row_gradients(
                self.models[parameters],
                self.names[parameters],
                self.train,
                case.mode,
                case.terms,
                list(mini_batch_of) or None,
            )
        return self._known[key]

    def validation_rows(self, case: Case | OnePass) -> list[Gradients]:
        parameters = case.engine.parameters
        key = (parameters, case.mode, case.terms)
        if key not in self._known:
            self._known[key] = oracle.validation_gradients(
                self.models[parameters], self.names[parameters], self.validation, case.mode, case.terms
            )
        return self._known[key]


@pytest.fixture(scope="module")
def expected(folder):
    with pytest.MonkeyPatch.context() as patch:
        oracle.keep_precision(patch.setattr)
        yield Expected(folder)


def mini_batch_of_rows(case: Case, world: int) -> tuple[int, ...]:
    """Which mini-batch each row is in, by the order in which verl's loader gives a rank its rows."""
    if not case.shuffle:
        return tuple(mini_batches(NUM_ROWS, case.mini_batch, world).tolist())
    numbers: list[int] = []
    rows, size = NUM_ROWS // world, case.mini_batch // world
    for rank in range(world):
        generator = torch.Generator().manual_seed(7 + rank)
        order = [int(row) for row in DataLoader(torch.arange(rows), batch_size=1, shuffle=True, generator=generator)]
        numbers += [order.index(row) // size for row in range(rows)]
    return tuple(numbers)


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got - wanted).abs().max() / wanted.abs().max())


def flat(gradients: Gradients) -> torch.Tensor:
    return torch.cat([gradient.double().flatten() for gradient in gradients.values()])


# ------------------------------ gradients and scores ------------------------------


@pytest.mark.parametrize(("case", "world"), in_worlds([case for case in SCORED if not case.in_batch]))
def test_the_validation_gradient_is_that_of_autograd(found, expected, case, world):
    result, rows = found[world][f"score {case.label}"], expected.validation_rows(case)
    wanted = oracle.total(rows)
    assert result["gradient"].keys() == wanted.keys()
    tolerance = TOLERANCE[case.engine.precision]
    got = flat({name: result["gradient"][name] for name in wanted})
    assert relative(got, flat(wanted)) < tolerance
    assert result["validation_gradient_norm"] == pytest.approx(float(flat(wanted).norm()), rel=tolerance)
    # Every other row of each rank's part.
    halves = [
        flat(oracle.total(g for i, g in enumerate(rows) if i % (NUM_VALIDATION // world) % 2 == h)) for h in (0, 1)
    ]
    agreement = float(torch.cosine_similarity(*halves, dim=0))
    assert result["validation_half_agreement"] == pytest.approx(agreement, abs=10 * tolerance)


@pytest.mark.parametrize(("case", "world"), in_worlds(SCORED))
def test_scores_are_those_of_autograd(found, expected, case, world):
    gradients = expected.rows(case, mini_batch_of_rows(case, world))
    if case.in_batch:
        norms = torch.tensor([oracle.inner(gradient, gradient) for gradient in gradients], dtype=torch.float64)
        wanted = oracle.products(gradients, oracle.total(gradients)) - norms
    else:
        wanted = oracle.products(gradients, oracle.total(expected.validation_rows(case)))
    result = found[world][f"score {case.label}"]
    assert relative(result["scores"], wanted) < TOLERANCE[case.engine.precision]
    assert result["identity"] < TOLERANCE[case.engine.precision]
    if case.in_batch:
        norm = float(flat(oracle.total(gradients)).norm())
        assert result["validation_gradient_norm"] == pytest.approx(norm, rel=TOLERANCE[case.engine.precision])


@pytest.mark.parametrize(("case", "world"), in_worlds(PRECONDITIONED))
def test_preconditioned_scores_are_those_of_autograd_and_adams_second_moments(found, expected, case, world):
    result = found[world][f"adam {case.label}"]
    before, after = result["before"], result["after"]
    assert before["preconditioned"] == 0
    assert after["preconditioned"] == 1
    # By hand, from the gradients of both updates.
    first, second = result["gradients"]
    factors = {}
    for name in first:
        moment = 0.999 * 0.001 * first[name] ** 2 + 0.001 * second[name] ** 2
        factors[name] = 1 / ((moment / (1 - 0.999**2)).sqrt() + 1e-8)
        assert (moment > 0).any()
        factors[name][moment == 0] = 0
    parameters = case.engine.parameters
    model, names = copy.deepcopy(expected.models[parameters]), expected.names[parameters]
    plain = oracle.row_gradients(model, names, expected.train, case.mode, case.terms)
    with torch.no_grad():
        named = dict(model.named_parameters())
        for name, weight in result["weights"].items():
            named[name].copy_(weight)
    rows = oracle.row_gradients(model, names, expected.train, case.mode, case.terms)
    validation = oracle.validation_gradients(model, names, expected.validation, case.mode, case.terms)
    direction = oracle.total(rows if case.in_batch else validation)
    wanted = oracle.products(rows, {name: factors[name] * direction[name] for name in names})
    if case.in_batch:
        own = [oracle.inner(row, {name: factors[name] * row[name] for name in names}) for row in rows]
        wanted = wanted - torch.tensor(own, dtype=torch.float64)
    assert relative(after["scores"], wanted) < TOLERANCE[case.engine.precision]
    assert after["identity"] < TOLERANCE[case.engine.precision]
    # Without optimizer state, scores are those of the plain gradient.
    assert relative(before["scores"], after["scores"]) > 0.1
    if not case.in_batch:
        exact = oracle.products(plain, oracle.total(expected.validation_rows(case)))
        assert relative(before["scores"], exact) < TOLERANCE[case.engine.precision]


def test_the_oracle_tells_mini_batches_and_terms_apart(expected):
    """Otherwise the cases above would all test the same."""
    plain = expected.rows(Case())
    for other in (Case(terms=False), *(Case(mode=mode) for mode in oracle.MODES[1:])):
        assert relative(flat(oracle.total(expected.rows(other))), flat(oracle.total(plain))) > 0.05
    halves = expected.rows(Case(), mini_batch_of_rows(Case(mini_batch=8), 2))
    assert relative(flat(halves[0]), flat(plain[0])) > 0.5


@pytest.mark.parametrize("world", each_world(IN_BF16.worlds))
def test_bf16_scores_rank_samples_as_exact_ones_do(found, expected, world):
    wanted = oracle.products(expected.rows(IN_BF16), oracle.total(expected.validation_rows(IN_BF16)))
    got = found[world][f"score {IN_BF16.label}"]["scores"]
    ranks = torch.stack([got.argsort().argsort(), wanted.argsort().argsort()]).double()
    assert float(torch.corrcoef(ranks)[0, 1]) >= 0.99
    clear = wanted.abs() > 0.02 * wanted.abs().max()
    assert torch.equal(got[clear].sign(), wanted[clear].sign())


def test_bf16_scores_are_those_of_bf16_autograd(found):
    assert relative(found[1][f"score {IN_BF16.label}"]["scores"], found[1]["bf16 autograd"]) < 5e-3


# ------------------------------ updates ------------------------------


@pytest.mark.parametrize(("case", "world"), in_worlds(ONE_PASS))
def test_one_pass_updates_as_masking_rows_does(found, expected, case, world):
    result = found[world][f"one pass {case.label}"]
    tolerance = TOLERANCE[case.engine.precision]
    assert result["size"] > 1e-3
    assert result["difference"] < tolerance
    assert result["identity"] < tolerance
    assert max(result["differences from verl"]) < tolerance
    selects = result["scores"] > 0
    assert selects.any()
    # As many on every rank as on the one that has most; in micro-batches of two, and in dynamic ones.
    trained = torch.tensor([bool(row["loss_mask"].any()) for row in expected.train])
    if case.rule != "none":
        trained &= selects
    most = max(int(part.sum()) for part in trained.chunk(world))
    assert result["rows computed"] == (world * (most + most % 2), world * most, NUM_ROWS)
    if case.only_first_rank:
        assert not selects[NUM_ROWS // world :].any()
    elif case.engine.optimizer == "SGD":
        assert not selects.all()
        # The same scores as with two passes.
        wanted = oracle.products(expected.rows(case), oracle.total(expected.validation_rows(case)))
        assert relative(result["scores"], wanted) < tolerance


@pytest.mark.parametrize(("case", "world"), in_worlds(MINI_BATCHES))
def test_one_pass_of_two_mini_batches_is_two_updates(found, case, world):
    result = found[world][f"mini-batches {case.label}"]
    tolerance = TOLERANCE[case.engine.precision]
    assert result["difference"] < tolerance
    assert result["identity"] < tolerance
    assert relative(result["scores"], result["one by one"]) < tolerance
    # The second mini-batch is scored after the first one's update.
    assert relative(result["scores"], result["before"]) > 1e-3


@pytest.mark.parametrize("world", each_world(NOTHING_POSITIVE.worlds))
def test_an_update_in_which_nothing_is_positive_changes_nothing(found, world):
    assert found[world]["nothing positive"] == []


@pytest.mark.parametrize(
    ("engine", "world"),
    [pytest.param(engine, world, marks=marks_of(world)) for engine, worlds in UNTOUCHED for world in worlds],
)
def test_scoring_leaves_no_trace(found, engine, world):
    result = found[world][f"untouched {engine.label}"]
    assert len(result) == 7
    assert all(changed == [] for changed in result.values()), result


# ------------------------------ the rest ------------------------------


@ONLY_RELEASE
def test_a_lost_row_ends_the_run(found):
    result = found[2]["misplaced row"]
    assert result["right"] < TOLERANCE["fp64"]
    assert "add up to something else" in result["lost"]
    # A sum does not show whose its parts are; the comparison with autograd does.
    assert result["given away"] < TOLERANCE["fp64"]


@pytest.mark.parametrize("passes", ["two passes", "one pass"])
@pytest.mark.parametrize("world", each_world((1, 2)))
def test_the_first_step_finds_what_the_hooks_cannot_see(found, world, passes):
    result = found[world]["first check"]
    assert result[f"nothing, {passes}"] == "accepted"
    assert re.search("lora_A.*also used outside its module", result[f"outside, {passes}"])
    assert re.search(r"loss was set to 0.*another\s+order", result[f"another row, {passes}"])
    assert all(change == "" for name, change in result.items() if name.endswith("changed"))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("fsdp1", "InfluenceError: influence scores need actor_rollout_ref.actor.strategy=fsdp2, got 'fsdp'"),
        ("one_pass of a part", "InfluenceError: one_pass needs scores over all 26 trainable parameters, got 20: "),
        (
            "one_pass of epochs",
            "InfluenceError: one_pass scores each row once: expected one epoch per step, got 2",
        ),
        ("no set-up", "InfluenceError: call set_up_influence first"),
    ],
)
def test_what_cannot_be_scored_is_refused(found, what, message):
    assert found[1]["refusals"][what].startswith(message)


@pytest.mark.parametrize("packed", [True, False])
def test_the_sample_index_names_the_rows_of_a_micro_batch(packed):
    nested = torch.nested.as_nested_tensor([torch.arange(length) for length in (2, 3, 1)], layout=torch.jagged)
    data = tu.get_tensordict({"input_ids": nested, SAMPLE_POSITION: torch.tensor([5, 0, 7])})
    tu.assign_non_tensor(data, use_remove_padding=packed)
    if packed:
        assert sample_index(data, 2).tolist() == [[5, 5, 0, 0, 0, 7, -1, -1]]
        assert sample_index(data).tolist() == [[5, 5, 0, 0, 0, 7]]
    else:
        assert sample_index(data, 2).tolist() == [[5, 5, -1], [0, 0, 0], [7, -1, -1]]
