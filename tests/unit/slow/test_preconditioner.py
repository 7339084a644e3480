"""Scores against AdamW's direction: second moments by hand from every gradient, per-sample gradients by autograd."""

import pytest
import torch
from influence_models import MixingNet, lora_model, make_batch, sample_index, sample_losses
from influence_reference import Gradients, gradients_of, inner, per_sample_gradients
from torch import nn

from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError
from verl_ext.influence.method.preconditioner import adam_factors

NUM = 6
TRAIN, VALIDATION, ALL = make_batch(NUM), make_batch(4, seed=9), list(range(NUM))
BETA, EPS = 0.95, 1e-3  # large, so that eps in the wrong place shows


def train(model: nn.Module, optimizer: torch.optim.Optimizer, names: list[str], steps: int) -> list[Gradients]:
    """Update on the training batch; returns the gradients of each step."""
    parameters, seen = dict(model.named_parameters()), []
    for _ in range(steps):
        optimizer.zero_grad()
        sample_losses(model, TRAIN, ALL).sum().backward()
        seen.append({name: parameters[name].grad.clone() for name in names})
        optimizer.step()
    return seen


def factors_by_hand(seen: list[Gradients], amsgrad: bool = False) -> Gradients:
    factors = {}
    for name in seen[0]:
        moment = largest = torch.zeros_like(seen[0][name])
        for gradients in seen:
            moment = BETA * moment + (1 - BETA) * gradients[name] ** 2
            largest = torch.maximum(largest, moment)
        root = ((largest if amsgrad else moment) / (1 - BETA ** len(seen))).sqrt()
        factors[name] = torch.where(moment > 0, 1 / (root + EPS), 0)
    return factors


def named(model: nn.Module, ghost: GhostInfluence) -> dict[str, nn.Parameter]:
    parameters = dict(model.named_parameters())
    return {name: parameters[name] for name in ghost.names}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kind", ["AdamW", "Adam", "amsgrad"])
@pytest.mark.parametrize("keep_gradients", [False, True])
def test_scores_are_inner_products_with_the_direction_of_the_optimizer(steps: int, kind: str, keep_gradients: bool):
    model = lora_model()
    ghost = GhostInfluence(model)
    optimizer = (torch.optim.Adam if kind == "Adam" else torch.optim.AdamW)(
        named(model, ghost).values(), lr=1e-2, betas=(0.8, BETA), eps=EPS, amsgrad=kind == "amsgrad"
    )
    by_hand = factors_by_hand(train(model, optimizer, ghost.names, steps), amsgrad=kind == "amsgrad")
    factors = adam_factors(optimizer, named(model, ghost))
    assert factors is not None
    for name, factor in factors.items():
        assert torch.allclose(factor, by_hand[name], rtol=1e-12), name

    with ghost.validation():
        sample_losses(model, VALIDATION, list(range(4))).sum().backward()
    ghost.precondition(factors, keep=keep_gradients)
    with ghost.scoring(sample_index(TRAIN, ALL), keep_gradients=keep_gradients, check_identity=True):
        sample_losses(model, TRAIN, ALL).sum().backward()
    gradients = per_sample_gradients(model, ghost.names, lambda i: sample_losses(model, TRAIN, [i])[0], NUM)
    plain = gradients_of(model, ghost.names, sample_losses(model, VALIDATION, list(range(4))).sum())
    direction = {name: by_hand[name] * plain[name] for name in plain}
    wanted = torch.tensor([inner(gradient, direction) for gradient in gradients], dtype=torch.float64)
    assert float((ghost.scores(NUM) - wanted).abs().max() / wanted.abs().max()) < 1e-10
    assert ghost.identity_error() < 1e-10
    if keep_gradients:
        norms = [inner(gradient, {name: by_hand[name] * gradient[name] for name in gradient}) for gradient in gradients]
        assert ghost.self_influence(NUM).tolist() == pytest.approx(norms, rel=1e-10)


def test_the_direction_is_adams_step():
    """If the gradient is always the same, m_hat is the gradient, and the step is -lr g / (sqrt(v_hat) + eps)."""
    model = MixingNet()
    optimizer = torch.optim.AdamW(model.layers.parameters(), lr=1e-3, betas=(0.9, BETA), eps=EPS, weight_decay=0.0)
    gradients = {f"layers.{name}": torch.randn_like(p) for name, p in model.layers.named_parameters()}
    parameters = {f"layers.{name}": p for name, p in model.layers.named_parameters()}
    for _ in range(3):
        before = {name: p.detach().clone() for name, p in parameters.items()}
        for name, parameter in parameters.items():
            parameter.grad = gradients[name].clone()
        optimizer.step()
    factors = adam_factors(optimizer, parameters)
    assert factors is not None
    for name, parameter in parameters.items():
        step = parameter.detach() - before[name]
        assert torch.allclose(step, -1e-3 * factors[name] * gradients[name], rtol=1e-9)


def test_before_the_first_step_there_is_none():
    model = MixingNet()
    optimizer = torch.optim.AdamW(model.parameters())
    assert adam_factors(optimizer, dict(model.named_parameters())) is None


def test_weights_that_never_had_a_gradient_are_left_out():
    """lora_A in the first update, when lora_B is 0: 1 / eps would drown out all others."""
    model = lora_model()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.zeros_(parameter)
    ghost = GhostInfluence(model)
    optimizer = torch.optim.AdamW(named(model, ghost).values())
    train(model, optimizer, ghost.names, 1)
    factors = adam_factors(optimizer, named(model, ghost))
    assert factors is not None
    for name, factor in factors.items():
        assert (factor == 0).all() if "lora_A" in name else (factor > 0).all()
    # And a parameter that is not trained yet has no state at all.
    del optimizer.state[named(model, ghost)[ghost.names[1]]]
    factors = adam_factors(optimizer, named(model, ghost))
    assert factors is not None
    assert (factors[ghost.names[1]] == 0).all()


def test_other_optimizers_are_refused():
    model = MixingNet()
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.arange(8).view(2, 4)).sum().backward()
    optimizer.step()
    with pytest.raises(InfluenceError, match=r"SGD keeps no second moment .* or preconditioner=none"):
        adam_factors(optimizer, parameters)
    other = torch.optim.AdamW(model.layers[:2].parameters())
    with pytest.raises(InfluenceError, match=r"the optimizer does not train embedding\.weight"):
        adam_factors(other, parameters)


def test_norms_of_a_preconditioned_direction_need_it():
    model = MixingNet()
    ghost = GhostInfluence(model, "layers")
    ids, index = torch.arange(12).view(3, 4), torch.arange(3)[:, None].expand(3, 4)
    with ghost.validation():
        model(ids).sum().backward()
    plain = {name: gradient.clone() for name, gradient in ghost.validation_gradients().items()}
    ghost.precondition({name: torch.full_like(g, 2.0) for name, g in plain.items()})
    with ghost.scoring(index, keep_gradients=True):
        model(ids).sum().backward()
    with pytest.raises(InfluenceError, match="needs P"):
        ghost.self_influence(3)
    # A new G is not preconditioned.
    ghost.set_validation_gradients(plain)
    assert ghost.self_influence(3).shape == (3,)
