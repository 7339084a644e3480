"""The loss: no gradient goes past a target, and descent reaches it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.golden_redaction.loss.loss import distance_loss, target_loss, token_log_probs
from recipe.golden_redaction.method.movement import movement
from recipe.golden_redaction.method.targets import REDUCTIONS, TargetSettings, target_log_probs, token_weights


def test_token_log_probs_are_those_of_a_log_softmax():
    torch.manual_seed(0)
    logits = torch.randn(3, 11, requires_grad=True)
    rows, tokens = torch.tensor([0, 2, 2, 1]), torch.tensor([4, 0, 10, 4])
    ours = token_log_probs(logits, rows, tokens)
    theirs = torch.log_softmax(logits, dim=-1)[rows, tokens]
    torch.testing.assert_close(ours, theirs)
    for ours_grad, theirs_grad in zip(
        torch.autograd.grad(ours.square().sum(), logits),
        torch.autograd.grad(theirs.square().sum(), logits),
        strict=True,
    ):
        torch.testing.assert_close(ours_grad, theirs_grad)
    assert token_log_probs(logits.bfloat16(), rows, tokens).dtype == torch.float32


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.sampled_from([-1, 0, 1]), st.floats(0, 2)), max_size=9)
)
def test_the_loss_and_its_gradient_by_brute_force(tokens):
    log_probs = torch.tensor([t[0] for t in tokens], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([t[1] if t[2] else math.nan for t in tokens], dtype=torch.float64)
    advantages = torch.tensor([t[2] for t in tokens])
    weights = torch.tensor([t[3] for t in tokens], dtype=torch.float64)
    loss = target_loss(log_probs, targets, advantages, weights)
    loss.backward()
    expected, gradient = 0.0, []
    for log_prob, target, advantage, weight in tokens:
        is_short = advantage * (target - log_prob) > 0
        expected += weight * abs(target - log_prob) if is_short else 0.0
        gradient.append(-weight * advantage if is_short else 0.0)
    assert loss.item() == pytest.approx(expected)
    assert log_probs.grad.tolist() == pytest.approx(gradient)


@pytest.mark.parametrize("advantage", [1, -1])
def test_there_is_no_gradient_at_the_target_and_past_it(advantage):
    target = torch.tensor([-2.0])
    for past in (0.0, 1e-6, 1.0):
        log_prob = (target + advantage * past).requires_grad_()
        target_loss(log_prob, target, torch.tensor([advantage]), torch.ones(1)).backward()
        assert log_prob.grad.tolist() == [0.0]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_loss_does_not_depend_on_how_states_are_cut_into_micro_batches(reduction):
    torch.manual_seed(1)
    logits = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([0, 0, 1, 1, 1, 2, 3])
    tokens = torch.tensor([0, 1, 0, 2, 3, 6, 5])
    advantages = torch.tensor([1, -1, 1, 1, 0, 0, -1])
    weights = torch.tensor(token_weights(rows.numpy(), advantages.numpy(), reduction))
    before = token_log_probs(logits, rows, tokens).detach()
    targets = before + advantages * 0.5
    gradients = []
    for cut in ([[0, 1, 2, 3]], [[0], [1, 2], [3]], [[3, 1], [0, 2]]):
        total = torch.zeros_like(logits)
        for part in cut:
            mine = torch.isin(rows, torch.tensor(part))
            loss = target_loss(
                token_log_probs(logits, rows[mine], tokens[mine]), targets[mine], advantages[mine], weights[mine]
            )
            total += torch.autograd.grad(loss, logits)[0]
        gradients.append(total)
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])
    assert (gradients[0][2] == 0).all()  # a state without a label


def test_gradient_descent_reaches_the_targets_and_stays_there():
    torch.manual_seed(2)
    logits = torch.randn(1, 9, dtype=torch.float64, requires_grad=True)
    rows, tokens, advantages = torch.zeros(4, dtype=torch.long), torch.arange(4), torch.tensor([1, 1, -1, 0])
    before = token_log_probs(logits, rows, tokens).detach().numpy()
    targets = target_log_probs(before, advantages.numpy(), TargetSettings()).log_probs
    weights = torch.tensor(token_weights(rows.numpy(), advantages.numpy(), "state_mean"))
    for step in range(3000):
        loss = target_loss(token_log_probs(logits, rows, tokens), torch.tensor(targets), advantages, weights)
        if loss == 0:
            break
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - 0.1 / (1 + step / 50) * gradient).detach().requires_grad_()
    after = token_log_probs(logits, rows, tokens).detach().numpy()
    assert (np.abs(after - targets)[:3] < 0.05).all()
    report = movement(before, after, targets, advantages.numpy(), tolerance=0.05)
    assert report.kinds == ("intended", "intended", "intended", "")


def test_the_loss_refuses_misuse():
    one = torch.ones(1)
    with pytest.raises(ValueError, match="of one shape"):
        target_loss(one, torch.ones(2), one, one)
    with pytest.raises(ValueError, match="needs a finite target"):
        target_loss(one, one * math.nan, one, one)


def test_the_distance_pulls_each_token_by_what_it_has_left_from_either_side():
    log_probs = torch.tensor([-1.0, -2.0, -3.0, -4.0], dtype=torch.float64, requires_grad=True)
    goals, weights = torch.tensor([-0.5, -2.5, math.nan, -4.0]), torch.tensor([1.0, 0.5, 7.0, 1.0])
    loss = distance_loss(log_probs, goals, weights)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (1.0 * 0.5**2 + 0.5 * 0.5**2))
    assert log_probs.grad.tolist() == pytest.approx([-0.5, 0.25, 0.0, 0.0])
    with pytest.raises(ValueError, match="of one shape"):
        distance_loss(log_probs, goals[:2], weights)
