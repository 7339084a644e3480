"""Streaming influence scores against the definition: one backward pass per sample, and an inner product."""

import contextlib
import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_models import MixingNet, lora_model, make_batch, micro_batches, sample_index, sample_losses
from influence_reference import BufferedInfluence, gradients_of, inner, per_sample_gradients, scores_of
from torch import nn

from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError

NUM_SAMPLES, NUM_VALIDATION = 16, 5
TRAIN, VALIDATION = make_batch(NUM_SAMPLES), make_batch(NUM_VALIDATION, seed=9)
ALL, ALL_VALIDATION = list(range(NUM_SAMPLES)), list(range(NUM_VALIDATION))


def relative_error(value: torch.Tensor, reference: torch.Tensor) -> float:
    """Largest difference divided by the largest number."""
    return float((value.double() - reference.double()).abs().max() / reference.double().abs().max())


def validate(ghost: GhostInfluence, model: nn.Module) -> None:
    with ghost.validation():
        sample_losses(model, VALIDATION, ALL_VALIDATION).sum().backward()


def score(ghost: GhostInfluence, model: nn.Module, size: int = 4, layout: str = "padded", **options) -> torch.Tensor:
    """Scores of the training batch in micro-batches of `size` samples."""
    for samples in micro_batches(NUM_SAMPLES, size):
        with ghost.scoring(sample_index(TRAIN, samples, layout), **options):
            sample_losses(model, TRAIN, samples, layout).sum().backward()
        if options.get("keep_gradients"):
            ghost.drop_kept_gradients()
    return ghost.scores(NUM_SAMPLES)


def oracle(model: nn.Module, names: list[str]):
    """Per-sample gradients of the training batch, and the validation gradient, by autograd."""
    validation = gradients_of(model, names, sample_losses(model, VALIDATION, ALL_VALIDATION).sum())
    gradients = per_sample_gradients(model, names, lambda i: sample_losses(model, TRAIN, [i])[0], NUM_SAMPLES)
    return gradients, validation


@pytest.fixture(scope="module")
def exact():
    """A float64 LoRA model, its per-sample gradients and validation gradient, and the scores that follow."""
    model = lora_model(torch.float64)
    gradients, validation = oracle(model, GhostInfluence(model).names)
    return model, gradients, validation, scores_of(gradients, validation)


# ---- exactness


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("keep_gradients", [False, True])
def test_scores_are_the_inner_products_whatever_the_micro_batches(exact, layout, size, keep_gradients):
    model, _, validation, expected = exact
    ghost = GhostInfluence(model)
    validate(ghost, model)
    for name, gradient in ghost.validation_gradients().items():
        assert relative_error(gradient, validation[name]) < 1e-12
    scores = score(ghost, model, size, layout, keep_gradients=keep_gradients)
    assert scores.dtype == torch.float64
    assert relative_error(scores, expected) < 1e-10


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_float32_scores(layout):
    model = lora_model(torch.float32)
    ghost = GhostInfluence(model)
    gradients, validation = oracle(model, ghost.names)
    validate(ghost, model)
    assert relative_error(score(ghost, model, 4, layout), scores_of(gradients, validation)) < 1e-5


@pytest.mark.parametrize("inside", [True, False], ids=["backward under autocast", "backward outside"])
def test_bfloat16_autocast_agrees_with_bfloat16_autograd_and_ranks_as_float32(inside):
    from scipy.stats import spearmanr

    num_samples = 64
    train = make_batch(num_samples, seed=3)
    model = lora_model(torch.float32)
    ghost = GhostInfluence(model)
    samples, autocast = list(range(num_samples)), torch.autocast("cpu", torch.bfloat16)
    with autocast:
        loss = sample_losses(model, VALIDATION, ALL_VALIDATION).sum()
        losses = sample_losses(model, train, samples)
    parameters = dict(model.named_parameters())
    trainable = [parameters[name] for name in ghost.names]
    validation = dict(zip(ghost.names, torch.autograd.grad(loss, trainable), strict=True))
    # One forward for all samples: bfloat16's rounding of the forward itself depends on the batch.
    gradients = [
        dict(zip(ghost.names, torch.autograd.grad(loss, trainable, retain_graph=True), strict=True)) for loss in losses
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(ghost.validation())
        with autocast:
            loss = sample_losses(model, VALIDATION, ALL_VALIDATION).sum()
        stack.enter_context(autocast if inside else contextlib.nullcontext())
        loss.backward()
    for name, gradient in ghost.validation_gradients().items():
        assert gradient.dtype == torch.float32
        assert relative_error(gradient, validation[name]) < 1e-6
    with ghost.scoring(sample_index(train, samples)):
        with autocast:
            loss = sample_losses(model, train, samples).sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
    scores = ghost.scores(num_samples)
    assert relative_error(scores, scores_of(gradients, validation)) < 5e-3

    validation = gradients_of(model, ghost.names, sample_losses(model, VALIDATION, ALL_VALIDATION).sum())
    full = scores_of(
        per_sample_gradients(model, ghost.names, lambda i: sample_losses(model, train, [i])[0], num_samples), validation
    )
    assert spearmanr(scores, full).statistic >= 0.99
    clear = full.abs() > 0.1 * full.abs().median()  # closer to 0, bfloat16's own forward decides
    assert (scores.sign() == full.sign())[clear].float().mean() >= 0.99


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("options", [{}, {"keep_gradients": True}, {"check_identity": True}, {"sum_gradients": True}])
def test_gradient_checkpointing_changes_nothing(use_reentrant, options):
    model = lora_model(torch.float64)
    ghost = GhostInfluence(model)
    validate(ghost, model)
    plain = score(ghost, model, **options)
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    model.train()
    ghost.reset_validation()
    ghost.reset_scores()
    validate(ghost, model)
    assert relative_error(score(ghost, model, **options), plain) < 1e-12


def test_the_buffered_original_gives_the_same(exact):
    model, gradients, validation, expected = exact
    buffered = BufferedInfluence(model)
    try:
        for samples in micro_batches(NUM_SAMPLES, 4):
            torch.autograd.grad(
                sample_losses(model, TRAIN, samples).sum(), [p for p in model.parameters() if p.requires_grad]
            )
        rebuilt = {name: gradient.clone() for name, gradient in buffered.take_gradients().items()}
    finally:
        buffered.close()
    for name, gradient in rebuilt.items():
        assert relative_error(gradient, torch.stack([g[name] for g in gradients])) < 1e-10
    assert relative_error(scores_of(gradients, validation), expected) == 0


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    seed=st.integers(0, 2**31),
    keep_gradients=st.booleans(),
)
def test_full_linear_layers_with_biases_of_any_shape(sizes, shape, seed, keep_gradients):
    torch.manual_seed(seed)
    # Factors of 8 make some of the layers narrow on one side, which takes other code paths.
    model = MixingNet((*sizes, 8 * sizes[0]))
    ghost = GhostInfluence(model, r"layers\.\d+")
    assert len(ghost.names) == 2 * len(model.layers)
    ids, held_out = torch.randint(0, 64, shape), torch.randint(0, 64, (2, 3))
    validation = gradients_of(model, ghost.names, model(held_out).sum())
    gradients = per_sample_gradients(model, ghost.names, lambda i: model(ids[i : i + 1])[0], len(ids))
    with ghost.validation():
        model(held_out).sum().backward()
    index = torch.arange(len(ids))[:, None].expand(shape)
    with ghost.scoring(index, keep_gradients=keep_gradients, sum_gradients=True):
        model(ids).sum().backward()
    expected = scores_of(gradients, validation)
    assert torch.allclose(ghost.scores(len(ids)), expected, rtol=1e-9, atol=1e-12)
    if keep_gradients:
        ghost.accumulate_selected(torch.ones(len(ids)))
        for name, gradient in ghost.take_selected_gradients().items():
            assert torch.allclose(gradient, ghost.total_gradients()[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("frozen", "left"), [("weight", "bias"), ("bias", "weight")])
def test_only_parameters_that_were_trainable_count(frozen, left):
    model = MixingNet()
    for layer in model.layers:
        getattr(layer, frozen).requires_grad_(False)
    ghost = GhostInfluence(model, "layers")
    assert ghost.names == [f"layers.{i}.{left}" for i in range(4)]
    ids = torch.arange(12).view(3, 4)
    gradients = per_sample_gradients(model, ghost.names, lambda i: model(ids[i : i + 1])[0], 3)
    with ghost.validation():
        model(ids).sum().backward()
    with ghost.scoring(torch.arange(3)[:, None].expand(3, 4)):
        model(ids).sum().backward()
    total = {name: torch.stack([g[name] for g in gradients]).sum(0) for name in ghost.names}
    assert relative_error(ghost.scores(3), scores_of(gradients, total)) < 1e-10


@pytest.mark.parametrize("keep_gradients", [False, True])
def test_calls_of_a_shared_module_and_of_tied_weights_add_up(keep_gradients):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.one, self.two = nn.Embedding(64, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.two.weight = self.one.weight

        def forward(self, ids):
            x = torch.tanh(self.one(self.embedding(ids)))
            return torch.tanh(self.two(self.one(x))).square().sum((1, 2))

    model = Shared().double()
    ghost = GhostInfluence(model, "one|two")
    assert ghost.names == ["one.weight", "one.bias", "two.bias"]
    ids, index = torch.arange(8).view(2, 4), torch.arange(2)[:, None].expand(2, 4)
    gradients = per_sample_gradients(model, ghost.names, lambda i: model(ids[i : i + 1])[0], 2)
    with ghost.validation():
        model(ids).sum().backward()
    with ghost.scoring(index, keep_gradients=keep_gradients):
        model(ids).sum().backward()
    total = {name: gradients[0][name] + gradients[1][name] for name in ghost.names}
    assert relative_error(ghost.scores(2), scores_of(gradients, total)) < 1e-10


def test_validation_accumulates_over_micro_batches_and_can_be_set(exact):
    model, _, validation, expected = exact
    ghost = GhostInfluence(model)
    for sample in ALL_VALIDATION:
        with ghost.validation():
            sample_losses(model, VALIDATION, [sample]).sum().backward()
    for name, gradient in ghost.validation_gradients().items():
        assert relative_error(gradient, validation[name]) < 1e-10
    other = GhostInfluence(model)
    other.set_validation_gradients({name: 2 * gradient for name, gradient in validation.items()})
    assert relative_error(score(other, model), 2 * expected) < 1e-10
    # In place, as after an all-reduce.
    for gradient in other.validation_gradients().values():
        gradient.mul_(0.5)
    other.reset_scores()
    assert relative_error(score(other, model), expected) < 1e-10


def test_samples_without_tokens_score_zero_and_padding_none(exact):
    model, _, _, expected = exact
    ghost = GhostInfluence(model)
    validate(ghost, model)
    index = sample_index(TRAIN, [2, 5])
    with ghost.scoring(torch.where(index == 5, -1, index)):
        sample_losses(model, TRAIN, [2, 5]).sum().backward()
    scores = ghost.scores(8)
    assert relative_error(scores[2], expected[2]) < 1e-10
    assert scores[[0, 1, 3, 4, 5, 6, 7]].count_nonzero() == 0


# ---- nothing changes


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list:
    """What must be the same afterwards, bit for bit."""
    state = [value.clone() for entry in optimizer.state.values() for value in entry.values()]
    tensors = [p.detach().clone() for p in model.parameters()] + [b.clone() for b in model.buffers()]
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()] + [m.training for m in model.modules()]
    attributes = [sorted(m.__dict__) for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()]
    return [torch.get_rng_state(), *state, *tensors, *gradients, flags, attributes, hooks]


def same(left: list, right: list) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("where", ["nowhere", "before the forward", "in the forward", "in the backward"])
@pytest.mark.parametrize("mode", ["validation", "scoring", "keep_gradients", "check_identity"])
def test_nothing_is_changed_not_even_by_an_exception(mode, where, training):
    model = lora_model(torch.float32).train(training)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    sample_losses(model, TRAIN, [0, 1]).sum().backward()
    optimizer.step()
    gradients = [p.grad for p in model.parameters()]
    before = everything(model, optimizer)
    ghost = GhostInfluence(model)
    validate(ghost, model)
    reference = score(ghost, model)

    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    handle = None
    index = sample_index(TRAIN, ALL)
    options = {} if mode == "scoring" else {mode: True}
    expectation = contextlib.nullcontext() if where == "nowhere" else pytest.raises(Interrupted)
    with expectation, ghost.validation() if mode == "validation" else ghost.scoring(index, **options):
        torch.rand(3)
        if where == "before the forward":
            interrupt()
        if where == "in the forward":
            handle = model.base_model.model.model.layers[1].register_forward_pre_hook(interrupt)
        try:
            loss = sample_losses(model, TRAIN, ALL).sum()
        finally:
            if handle is not None:
                handle.remove()
        if where == "in the backward":
            # In the middle: the upper layer has already been reached.
            half = model.base_model.model.model.layers[1].register_forward_pre_hook(
                lambda _, args: args[0].register_hook(interrupt) and None
            )
            try:
                loss = sample_losses(model, TRAIN, ALL).sum()
            finally:
                half.remove()
        loss.backward()
    assert same(everything(model, optimizer), before)
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    if where == "nowhere":
        return
    if mode == "validation":
        with pytest.raises(InfluenceError, match=r"failed half-way.*reset_validation"):
            ghost.scoring(index).__enter__()
        ghost.reset_validation()
        validate(ghost, model)
    # A failed pass added nothing, and the next one works.
    assert torch.equal(ghost.scores(NUM_SAMPLES), reference)
    ghost.reset_scores()
    assert torch.equal(score(ghost, model), reference)


def test_close_frees_and_ends(exact):
    model = exact[0]
    ghost = GhostInfluence(model)
    validate(ghost, model)
    alive = [weakref.ref(gradient) for gradient in ghost.validation_gradients().values()]
    ghost.close()
    assert not any(reference() is not None for reference in alive)
    with pytest.raises(InfluenceError, match="closed"), ghost.validation():
        pass


# ---- one pass


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("size", [1, 5, 16])
def test_one_pass_gives_the_gradient_of_the_selected_subset(layout, size):
    model = lora_model(torch.float32)
    ghost = GhostInfluence(model)
    validate(ghost, model)
    for samples in micro_batches(NUM_SAMPLES, size):
        with ghost.scoring(sample_index(TRAIN, samples, layout), keep_gradients=True):
            sample_losses(model, TRAIN, samples, layout).sum().backward()
        ghost.accumulate_selected((ghost.scores(NUM_SAMPLES) > 0).float())
    selected = (ghost.scores(NUM_SAMPLES) > 0).nonzero().flatten().tolist()
    assert 0 < len(selected) < NUM_SAMPLES
    expected = {name: torch.zeros(()) for name in ghost.names}
    for samples in micro_batches(NUM_SAMPLES, size):
        if kept := [sample for sample in samples if sample in selected]:
            # The same layout for the subset: what is compared is the sum, not the forward's rounding.
            for name, gradient in gradients_of(
                model, ghost.names, sample_losses(model, TRAIN, samples, layout)[[samples.index(i) for i in kept]].sum()
            ).items():
                expected[name] = expected[name] + gradient
    for name, gradient in ghost.take_selected_gradients().items():
        assert relative_error(gradient, expected[name]) < 1e-6


def test_weights_may_be_fractions_and_tokens_of_a_sample_apart():
    model = MixingNet()
    ghost = GhostInfluence(model, "layers")
    ids = torch.arange(12).view(2, 6)
    # Both samples' tokens are scattered: sample 0 has three runs.
    index = torch.tensor([[0, 0, 1, -1, 0, 1], [1, 1, 1, 0, -1, 1]])
    ghost.set_validation_gradients({n: torch.ones_like(p) for n, p in model.named_parameters() if n in ghost.names})
    with ghost.scoring(index):
        model(ids).sum().backward()
    streamed = ghost.scores(2)
    ghost.reset_scores()
    with ghost.scoring(index, keep_gradients=True):
        model(ids).sum().backward()
    assert relative_error(ghost.scores(2), streamed) < 1e-10
    ghost.accumulate_selected(torch.tensor([0.25, 2.0]))
    total = sum(float(gradient.sum()) for gradient in ghost.take_selected_gradients().values())
    assert total == pytest.approx(float(0.25 * streamed[0] + 2 * streamed[1]), rel=1e-9)


def test_self_influence_makes_leave_one_out(exact):
    model, gradients, _, _ = exact
    ghost = GhostInfluence(model)
    for samples in micro_batches(NUM_SAMPLES, 4):
        with ghost.validation():
            sample_losses(model, TRAIN, samples).sum().backward()
    left_out = score(ghost, model, 8, keep_gradients=True) - ghost.self_influence(NUM_SAMPLES)
    total = {name: torch.stack([g[name] for g in gradients]).sum(0) for name in ghost.names}
    expected = [inner(g, {name: total[name] - g[name] for name in g}) for g in gradients]
    assert relative_error(left_out, torch.tensor(expected, dtype=torch.float64)) < 1e-10


# ---- identity


def test_the_identity_holds_and_breaks_when_something_is_off(exact):
    model, gradients, _, _ = exact
    ghost = GhostInfluence(model)
    validate(ghost, model)
    score(ghost, model, check_identity=True, sum_gradients=True)
    assert ghost.identity_error() < 1e-12
    for name, total in ghost.total_gradients().items():
        assert relative_error(total, torch.stack([g[name] for g in gradients]).sum(0)) < 1e-10

    ghost.reset_scores()
    index = sample_index(TRAIN, ALL)
    index[:, 1] = -1  # real tokens treated as padding
    with ghost.scoring(index, check_identity=True):
        sample_losses(model, TRAIN, ALL).sum().backward()
    assert ghost.identity_error() > 1e-3


# ---- memory


class SavedBytes(contextlib.AbstractContextManager):
    """Bytes of the distinct storages that autograd holds between forward and backward, except parameters."""

    def __init__(self, model: nn.Module):
        self.own = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.storages: dict[int, int] = {}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.own:
            self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    def __enter__(self) -> "SavedBytes":
        self.hooks.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self.hooks.__exit__(*exception)

    @property
    def total(self) -> int:
        return sum(self.storages.values())


def live_tensor_bytes() -> int:
    """Bytes of all tensors that Python knows of, each storage once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, nn.Parameter):
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    return sum(storages.values())


def test_scoring_keeps_no_more_for_backward_than_training_does():
    model = lora_model(torch.float32)
    ghost = GhostInfluence(model)
    validate(ghost, model)
    with SavedBytes(model) as plain:
        loss = sample_losses(model, TRAIN, ALL).sum()
        del loss
    with SavedBytes(model) as scoring, ghost.scoring(sample_index(TRAIN, ALL)):
        sample_losses(model, TRAIN, ALL).sum().backward()
    assert scoring.total < plain.total


@pytest.mark.parametrize("keep_gradients", [False, True])
def test_what_stays_alive_does_not_grow_with_the_number_of_samples(keep_gradients):
    model = lora_model(torch.float32)
    ghost = GhostInfluence(model)
    validate(ghost, model)

    def score_many(num_samples: int) -> int:
        for _ in range(num_samples // NUM_SAMPLES):
            with ghost.scoring(sample_index(TRAIN, ALL), keep_gradients=keep_gradients):
                sample_losses(model, TRAIN, ALL).sum().backward()
            if keep_gradients:
                ghost.accumulate_selected(torch.ones(NUM_SAMPLES))
        return live_tensor_bytes()

    first = score_many(16)
    assert score_many(128) == first


def test_the_ghost_holds_nothing_of_a_layer_while_the_next_one_runs():
    """In the middle of the backward pass, its own tensors are G, the index, and one score per token."""
    model, seen = MixingNet((16, 16, 16, 16), torch.float32), []

    def middle_of_backward(length: int) -> int:
        first = model.layers[0](model.embedding(torch.zeros(1, length, dtype=torch.long)))
        # Between the backward of layer 1 and that of layer 0.
        first.register_hook(lambda _: seen.append(live_tensor_bytes()) and None)
        model.layers[2](model.layers[1](first)).square().sum().backward()
        return seen.pop()

    def growth(in_context) -> float:
        """Bytes per further token."""
        held = {}
        for length in (1024, 4096):
            with in_context(length):
                held[length] = middle_of_backward(length)
        return (held[4096] - held[1024]) / (4096 - 1024)

    @contextlib.contextmanager
    def only_activations(_length: int):
        # Layer 0 holds its input for its own backward, as in any training.
        model.requires_grad_(False)
        model.layers[0].requires_grad_(True)
        yield
        model.requires_grad_(True)

    ghost = GhostInfluence(model, "layers")
    ghost.set_validation_gradients({n: torch.ones_like(p) for n, p in model.named_parameters() if n in ghost.names})
    plain = growth(only_activations)
    scoring = growth(lambda length: ghost.scoring(torch.zeros(1, length, dtype=torch.long)))
    score_and_indices = 3 * 8
    assert scoring - plain <= score_and_indices
