"""Log-probs without flash-attn: verl's values and gradients, whatever the blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.utils import torch_functional

from verl_ext import log_probs, plugin
from verl_ext.cluster.engine_resources import RUN_VARIABLE
from verl_ext.log_probs import log_probs_of_labels

OF_VERL = torch_functional.logprobs_from_logits_v2


def both(logits: torch.Tensor, labels: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Log-probs and the gradient of a weighted sum of them, by our function and by verl's."""
    weights = torch.linspace(-1, 2, labels.numel()).view(labels.shape)
    found = []
    for function in (log_probs_of_labels, OF_VERL):
        leaf = logits.clone().requires_grad_()
        values = function(leaf, labels)
        (values.float() * weights).sum().backward()
        assert leaf.grad is not None
        found.append((values.detach(), leaf.grad))
    return found


@given(
    tokens=st.integers(1, 40),
    vocabulary=st.integers(1, 60),
    block=st.integers(1, 500),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_they_are_verls(tokens: int, vocabulary: int, block: int, dtype: torch.dtype, seed: int):
    generator = torch.Generator().manual_seed(seed)
    logits = (8 * torch.randn(tokens, vocabulary, generator=generator)).to(dtype)
    labels = torch.randint(vocabulary, (tokens,), generator=generator)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(log_probs.BLOCK_ELEMENTS, "cpu", block)
        (ours, our_gradient), (verls, its_gradient) = both(logits, labels)
    assert ours.dtype == dtype
    # In bfloat16 to the last bit. Otherwise verl subtracts two large numbers.
    error = 0.0 if dtype == torch.bfloat16 else 64 * torch.finfo(dtype).eps
    torch.testing.assert_close(ours, verls, rtol=0, atol=error)
    torch.testing.assert_close(our_gradient, its_gradient, rtol=0, atol=error)


def test_rows_of_several_dimensions():
    logits, labels = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    (ours, _), (verls, _) = both(logits, labels)
    assert ours.shape == (2, 3)
    torch.testing.assert_close(ours, verls)


def test_verls_engines_compute_them_in_the_processes_of_a_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_functional, "logprobs_from_logits_v2", OF_VERL)
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    plugin.register()
    assert torch_functional.logprobs_from_logits_v2 is OF_VERL
    monkeypatch.setenv(RUN_VARIABLE, "run")
    calls = []
    monkeypatch.setattr(log_probs, "log_probs_of_labels", lambda *given: calls.append(given) or given[1])
    plugin.register()
    logits, labels = torch.randn(4, 5), torch.arange(4)
    assert torch_functional.logprobs_from_logits(logits, labels) is labels
    assert calls == [(logits, labels)]
