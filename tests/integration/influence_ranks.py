"""What each process of `test_influence_worker.py` checks; results go back as plain data."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from influence_cases import (
    IN_BF16,
    MINI_BATCHES,
    NOTHING_POSITIVE,
    ONE_PASS,
    PRECONDITIONED,
    SCORED,
    UNTOUCHED,
    Case,
    Engine,
    OnePass,
)
from influence_oracle import FULL, LORA, Rows, as_batch, keep_precision, num_tokens
from influence_workers import (
    DTYPES,
    all_scores,
    build_worker,
    counted_update_of,
    differences,
    restored,
    set_loss,
    set_micro_batches,
    state_of,
    take_validation_gradient,
    training_batch,
    update_of,
    with_masks,
)
from worlds import be_rank, fork_worlds

from verl_ext.influence.batches import replaced, whole
from verl_ext.influence.method.denominators import mini_batches, row_factors, rows_to_mask
from verl_ext.influence.method.ghost import InfluenceError


def score(worker: Any, case: Case, train: Rows, validation: Rows) -> dict[str, Any]:
    set_loss(worker, case.mode, case.terms)
    set_micro_batches(worker, case.micro_batch)
    result: dict[str, Any] = {}
    if not case.in_batch:
        result |= take_validation_gradient(worker, validation, case.engine, case.terms)
        result["gradient"] = {n: whole(g).clone() for n, g in worker._ghost.validation_gradients().items()}
    data = training_batch(
        train,
        case.engine,
        case.terms,
        case.mini_batch,
        dataloader_kwargs={"shuffle": case.shuffle},
        in_batch=case.in_batch,
        check_identity=True,
    )
    result |= worker.compute_influence(data)
    result["scores"], result["identity"] = all_scores(worker)
    return result


def score_preconditioned(worker: Any, case: Case, train: Rows, validation: Rows) -> dict[str, Any]:
    """Scores before the first update and after two, with the unsharded weights and every update's gradients."""
    set_loss(worker, case.mode, case.terms)
    set_micro_batches(worker, case.micro_batch)
    step, gradients = worker.engine.optimizer.step, []
    trained = {name: p for name, p in worker.engine.module.named_parameters() if p.requires_grad}

    def observed_step() -> None:
        gradients.append({name: parameter.grad.full_tensor() for name, parameter in trained.items()})
        step()

    with restored(worker):
        worker._preconditioner = "adam"
        assert not worker.engine.optimizer.state
        before = score(worker, case, train, validation)
        worker.engine.optimizer.step = observed_step
        try:
            for _ in range(2):
                worker.train_mini_batch(training_batch(train, case.engine, case.terms))
            after = score(worker, case, train, validation)
        finally:
            worker.engine.optimizer.step = step
            worker._preconditioner = "none"
        weights = {name: parameter.full_tensor().detach().clone() for name, parameter in trained.items()}
    return {"before": before, "after": after, "weights": weights, "gradients": gradients}


def compare_one_pass(worker: Any, case: OnePass, train: Rows, validation: Rows) -> dict[str, Any]:
    """Compare the one-pass update with the update on masked rows, and that with verl's own."""
    from verl.workers.engine_workers import TrainingWorker

    set_loss(worker, case.mode, case.terms)
    set_micro_batches(worker, 2)
    if case.only_first_rank:
        first = torch.arange(len(train)) < len(train) // dist.get_world_size()
        train = with_masks(train, ~first, torch.ones(len(train)))
    if case.engine.optimizer == "AdamW":
        # So that momentum and second moment are not those of the update itself.
        worker.train_mini_batch(training_batch(train, case.engine, case.terms))
    take_validation_gradient(worker, validation, case.engine, case.terms)
    options = {"rule": case.rule, "denominator": case.denominator, "check_identity": True}
    one_pass = update_of(
        worker, lambda: worker.train_one_pass(training_batch(train, case.engine, case.terms), **options)
    )
    scores, identity = all_scores(worker)
    kept = np.ones(len(train), dtype=bool) if case.rule == "none" else scores.numpy() > 0
    places = mini_batches(len(train), len(train), dist.get_world_size())
    factors = row_factors(
        case.denominator,
        case.mode,
        np.array([int(row["response_mask"].sum()) for row in train]),
        kept.astype(float),
        scored_in=places,
        updated_in=places,
        global_batch_size=len(train),
    )
    masked_rows = with_masks(train, torch.from_numpy(rows_to_mask(kept, places)), torch.from_numpy(factors))
    if case.rule == "none":
        masked_rows = train

    def update() -> None:
        worker.train_mini_batch(training_batch(masked_rows, case.engine, case.terms))

    masked, computed = counted_update_of(worker, update)
    with replaced(worker, "train_batch", partial(TrainingWorker.train_batch, worker)):
        plain, all_rows = counted_update_of(worker, update)
    set_micro_batches(worker, None)
    dynamic, computed_dynamically = counted_update_of(worker, update)
    return {
        "scores": scores,
        "identity": identity,
        "difference": float((one_pass - masked).norm() / masked.norm()),
        "differences from verl": [float((update - plain).norm() / plain.norm()) for update in (masked, dynamic)],
        "rows computed": (computed, computed_dynamically, all_rows),
        "size": float(masked.norm()),
    }


def compare_mini_batches(worker: Any, case: OnePass, train: Rows, validation: Rows) -> dict[str, Any]:
    """Compare one step of two mini-batches with two steps of one."""
    set_loss(worker, case.mode, case.terms)
    set_micro_batches(worker, 2)
    worker.train_mini_batch(training_batch(train, case.engine, case.terms))
    take_validation_gradient(worker, validation, case.engine, case.terms)
    options = {"rule": case.rule, "denominator": case.denominator, "check_identity": True}
    size = len(train) // 2
    place = mini_batches(len(train), size, dist.get_world_size())
    parts = [[row for row, its in zip(train, place, strict=True) if its == part] for part in (0, 1)]
    one_by_one = torch.zeros(len(train), dtype=torch.float64)

    def step(rows: Rows) -> None:
        worker.train_one_pass(training_batch(rows, case.engine, case.terms, size), **options)

    def steps() -> None:
        for part, rows in enumerate(parts):
            step(rows)
            one_by_one[torch.from_numpy(place == part)] = all_scores(worker)[0]

    expected = update_of(worker, steps)
    # Like a first check that finds no gradient, and so is repeated: each call clears the scores.
    checked, worker._first_check = worker._first_check, lambda _, ghost, *rest: ghost.reset_scores()
    found = update_of(worker, lambda: step(train))
    worker._first_check = checked
    scores, identity = all_scores(worker)
    worker.compute_influence(training_batch(train, case.engine, case.terms, size))
    return {
        "scores": scores,
        "one by one": one_by_one,
        "before": all_scores(worker)[0],
        "identity": identity,
        "difference": float((found - expected).norm() / expected.norm()),
    }


def update_with_nothing_positive(worker: Any, engine: Engine, train: Rows, validation: Rows) -> list[str]:
    """What a one-pass update on rows without a positive score changes; the optimizer state is not empty."""
    set_loss(worker, "token-mean", False)
    set_micro_batches(worker, 2)
    worker.train_mini_batch(training_batch(train, engine, False))
    take_validation_gradient(worker, validation, engine, False)
    worker.compute_influence(training_batch(train, engine, False))
    positive = all_scores(worker)[0] > 0
    assert positive.any()
    rest = with_masks(train, positive, torch.ones(len(train)))
    before = state_of(worker)
    options = {"rule": "positive", "denominator": "kept", "check_identity": False}
    worker.train_one_pass(training_batch(rest, engine, False), **options)
    assert (all_scores(worker)[0] <= 0).all()
    return differences(before, state_of(worker))


def score_between_updates(worker: Any, engine: Engine, train: Rows, validation: Rows) -> dict[str, list[str]]:
    """What scoring changes in the state and in the next update."""
    set_loss(worker, "token-mean", True)
    set_micro_batches(worker, 2)
    found: dict[str, list[str]] = {}
    # For momentum, and for FSDP2 after its first forward pass.
    worker.train_mini_batch(training_batch(train, engine, True))
    with restored(worker):
        worker.train_mini_batch(training_batch(train, engine, True))
        plain = state_of(worker)
    for training in (True, False):
        worker.engine.module.train(training)
        for parameter in worker.engine.module.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.full_like(parameter, 3.0).detach()
        before = state_of(worker)
        take_validation_gradient(worker, validation, engine, True)
        found[f"validation, training={training}"] = differences(before, state_of(worker))
        for in_batch in (False, True):
            data = training_batch(train, engine, True, 8, in_batch=in_batch, check_identity=True)
            worker.compute_influence(data)
            all_scores(worker)
            found[f"scoring, in_batch={in_batch}, training={training}"] = differences(before, state_of(worker))
    worker.train_mini_batch(training_batch(train, engine, True))
    after = state_of(worker)
    ignored = ("training ", "torch", "python", "numpy")
    changed = [name for name in differences(plain, after) if not name.startswith(ignored)]
    found["the next update"] = changed
    return found


# ------------------------------ other checks ------------------------------


def misplace_a_row(worker: Any, train: Rows, validation: Rows) -> dict[str, Any]:
    """Identity errors, with correct rows and with a row's tokens assigned to another; the error if they are lost."""
    from verl_ext.influence import worker as module

    original, found = module.sample_index, {}
    for name, place in (("right", 2), ("given away", 1), ("lost", -1)):
        module.sample_index = lambda *args, place=place: original(*args).where(original(*args) != 2, place)
        try:
            found[name] = score(worker, Case(), train, validation)["identity"]
        except InfluenceError as error:
            found[name] = str(error)
        finally:
            module.sample_index = original
    return found


def first_check(worker: Any, train: Rows, validation: Rows) -> dict[str, str]:
    """What a worker says in its first step with a model that breaks its assumptions, with two passes and with one."""
    from torch import nn
    from torch.nn import functional

    from verl_ext.influence import first_check as module

    layer = next(
        m for n, m in worker.engine.module.named_modules() if n.endswith("layers.1.mlp.down_proj.lora_A.default")
    )
    set_loss(worker, "token-mean", True)
    set_micro_batches(worker, 4)
    found: dict[str, str] = {}

    def also_outside(_: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output + functional.linear(args[0].tanh(), layer.weight)

    def of_another_row(_: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output + 0.1 * args[0].flip(0) @ layer.weight.detach().t()

    hooks = {"outside": also_outside, "another row": of_another_row, "nothing": lambda *_: None}
    for name, hook in hooks.items():
        for passes in ("two passes", "one pass"):
            take_validation_gradient(worker, validation, Engine(), True)
            worker._first_check = module.FirstCheck()
            handle = layer.register_forward_hook(hook)
            before = state_of(worker)
            try:
                data = training_batch(train, Engine(), True)
                if passes == "two passes":
                    worker.compute_influence(data)
                else:
                    options = {"rule": "none", "denominator": "kept", "check_identity": False}
                    with restored(worker):
                        worker.train_one_pass(data, **options)
                found[f"{name}, {passes}"] = "accepted"
            except InfluenceError as error:
                found[f"{name}, {passes}"] = str(error)
                found[f"{name}, {passes}, changed"] = ", ".join(
                    change for change in differences(before, state_of(worker)) if not change.startswith("gradient ")
                )
            finally:
                handle.remove()
    return found


def autograd_scores(worker: Any, case: Case, train: Rows, validation: Rows) -> torch.Tensor:
    """Scores from the gradients in `.grad` after verl's engine, one row of a micro-batch at a time; one process."""
    from verl.utils import tensordict_utils as tu

    from verl_ext.influence.batches import validation_loss

    module, engine = worker.engine.module, worker.engine
    set_loss(worker, case.mode, case.terms)

    def gradient(rows: Rows, whole: Rows, loss: Callable[..., Any]) -> torch.Tensor:
        engine.optimizer_zero_grad()
        data = as_batch(rows, case.terms, DTYPES[case.engine.precision], use_remove_padding=case.engine.packed)
        tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=num_tokens(whole), global_batch_size=len(whole))
        with engine.train_mode(zero_grad_on_exit=False):
            engine.forward_step(data, loss_function=loss, forward_only=False)[0].backward()
        parts = [p.grad.full_tensor() for p in module.parameters() if p.requires_grad]
        engine.optimizer_zero_grad()
        return torch.cat([part.double().flatten() for part in parts])

    loss = partial(validation_loss, config=worker._actor_config)
    # In two halves, as in the worker.
    direction = gradient(validation[0::2], validation, loss) + gradient(validation[1::2], validation, loss)
    scores = []
    for place in range(len(train)):
        others = torch.arange(len(train)) != place
        rows = with_masks(train, others, torch.ones(len(train)))
        scores.append(torch.dot(gradient(rows, train, worker.loss_fn), direction))
    return torch.stack(scores)


def refusals(worker: Any, train: Rows, validation: Rows) -> dict[str, str]:
    """Error messages of what the worker refuses; it scores only part of the trainable parameters."""
    from verl.workers.config import FSDPEngineConfig

    from verl_ext.influence.worker import InfluenceTrainingWorker

    def message(call: Callable[[], Any]) -> str:
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "nothing was raised"

    engine = Engine(parameters=FULL)
    options = {"rule": "positive", "denominator": "kept", "check_identity": False}
    data = training_batch(train, engine, False)
    twice = training_batch(train, engine, False, epochs=2)
    found = {
        "one_pass of a part": message(lambda: worker.train_one_pass(data, **options)),
        "one_pass of epochs": message(lambda: worker.train_one_pass(twice, **options)),
    }
    fresh = object.__new__(InfluenceTrainingWorker)
    found["no set-up"] = message(lambda: fresh.compute_influence(data))
    fresh.engine_config = FSDPEngineConfig(strategy="fsdp")
    found["fsdp1"] = message(lambda: fresh.set_up_influence(LORA))
    return found


def in_process(rank: int, world: int, folder: Path) -> None:
    """Run all checks for one world size; rank 0 saves the results."""
    be_rank(rank, world, folder)
    train, validation = torch.load(folder / "rows.pt")
    found: dict[str, Any] = {"times": {}}
    workers: dict[Engine, Any] = {}

    def run(name: str, engine: Engine, check: Callable[..., Any], *args: Any) -> None:
        start = time.process_time()
        if engine not in workers:
            workers[engine] = build_worker(folder, engine)
        found[name] = check(workers[engine], *args, train, validation)
        found["times"][name] = time.process_time() - start

    for case in [*SCORED, IN_BF16]:
        if world in case.worlds:
            run(f"score {case.label}", case.engine, score, case)
    for case in PRECONDITIONED:
        if world in case.worlds:
            run(f"adam {case.label}", case.engine, score_preconditioned, case)
    for case in ONE_PASS:
        if world in case.worlds:
            run(f"one pass {case.label}", case.engine, compare_one_pass, case)
    for case in MINI_BATCHES:
        if world in case.worlds:
            run(f"mini-batches {case.label}", case.engine, compare_mini_batches, case)
    for engine, worlds in UNTOUCHED:
        if world in worlds:
            run(f"untouched {engine.label}", engine, score_between_updates, engine)
    if world in NOTHING_POSITIVE.worlds:
        run("nothing positive", NOTHING_POSITIVE.engine, update_with_nothing_positive, NOTHING_POSITIVE.engine)
    if world == 2:
        run("misplaced row", Engine(), misplace_a_row)
    if world < 4:
        run("first check", Engine(), first_check)
    if world == 1:
        run("bf16 autograd", IN_BF16.engine, autograd_scores, IN_BF16)
        run("refusals", Engine(parameters=FULL), refusals)
    if rank == 0:
        torch.save(found, folder / f"{world}.pt")
    dist.destroy_process_group()


def _set_up() -> None:
    from verl_ext.influence import fsdp

    # Also the small weights of the tests' model: G of full layers is sharded, that of LoRA whole.
    fsdp.SMALLEST_SHARDED = 1
    keep_precision()


def all_worlds(_rank: int, worlds: tuple[int, ...], folder: Path) -> None:
    """Run the worlds of these sizes."""
    fork_worlds(in_process, worlds, folder, "verl_ext.influence.worker", _set_up)
