"""What models do with their layers: scores are exact, refused, or reported as partial. None is silently wrong."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from influence_models import VOCABULARY, Batch, lora_model, make_batch, sample_index, sample_losses
from influence_reference import scores_of
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.checkpoint import checkpoint

from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError
from verl_ext.influence.method.ghost_check import check_scores

NUM = 6
TRAIN, VALIDATION = make_batch(NUM, longest=9), make_batch(4, seed=9, longest=9)
SAME_LENGTH = Batch([torch.arange(i, i + NUM) for i in range(NUM)], TRAIN.advantages)
ORDER = torch.randperm(NUM * NUM, generator=torch.Generator().manual_seed(3))


@dataclass(frozen=True)
class Verdict:
    """What a user would get: a refusal, or scores with their error, and the share of parameters that is reported."""

    refusal: str = ""
    error: float = float("nan")
    share: float = float("nan")


def judge(model: nn.Module, parameters: str, layout: str = "padded", batch: Batch = TRAIN) -> Verdict:
    """Set up, check and score as the worker does; compare with `.grad` of each sample's loss in the same forward."""
    samples = list(range(len(batch)))
    index = sample_index(batch, samples, layout)

    def losses() -> torch.Tensor:
        return sample_losses(model, batch, samples, layout)

    def backward(muted: Sequence[int]) -> None:
        kept = torch.tensor([float(sample not in muted) for sample in samples])
        (losses() * kept).sum().backward()

    try:
        ghost = GhostInfluence(model, parameters)
        with ghost.validation():
            sample_losses(model, VALIDATION, list(range(4))).sum().backward()
        assert check_scores(ghost, index, backward, samples[1::2])
        with ghost.scoring(index):
            losses().sum().backward()
    except InfluenceError as error:
        return Verdict(refusal=str(error))
    named = dict(model.named_parameters())

    def gradient_of(loss: torch.Tensor) -> dict[str, torch.Tensor]:
        model.zero_grad()
        loss.backward(retain_graph=True)
        return {
            name: named[name].grad.clone() if named[name].grad is not None else torch.zeros_like(named[name])
            for name in ghost.names
        }

    validation = gradient_of(sample_losses(model, VALIDATION, list(range(4))).sum())
    wanted = scores_of([gradient_of(loss) for loss in losses()], validation)
    error = float((ghost.scores(len(batch)) - wanted).abs().max() / wanted.abs().max())
    return Verdict(error=error, share=ghost.share_scored)


# ------------------------------ models ------------------------------


class Net(nn.Module):
    """Embedding, two Linear layers with attention between samples' own tokens, logits; `inner` is what may go wrong."""

    def __init__(self, inner: Callable[["Net", torch.Tensor], torch.Tensor] | None = None, **attributes: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.one, self.two = nn.Embedding(VOCABULARY, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.head, self.dropout, self.inner = nn.Linear(12, VOCABULARY), nn.Dropout(0.0), inner
        for name, value in attributes.items():
            setattr(self, name, value)
        self.double()

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None, position_ids: Any = None) -> Any:
        x = torch.tanh(self.one(self.embedding(input_ids)))
        x = self.inner(self, x) if self.inner else self.two(x)
        return Output(self.head(torch.tanh(x)))


@dataclass
class Output:
    logits: torch.Tensor


def transposed(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.two(x.transpose(0, 1)).transpose(0, 1)


def permuted(net: Net, x: torch.Tensor) -> torch.Tensor:
    """As a mixture of experts orders its tokens: those of one expert next to each other."""
    flat = x.flatten(0, 1)
    order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(3))
    return torch.empty_like(flat).index_copy(0, order, net.two(flat[order])).view_as(x)


def twice(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.two(torch.tanh(net.two(x)))


def through_functional(net: Net, x: torch.Tensor) -> torch.Tensor:
    return F.linear(torch.tanh(net.two(x)), net.two.weight)


def in_heads(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.two(x[:, :, None].expand(-1, -1, 2, -1)).sum(2)


def pooled(net: Net, x: torch.Tensor) -> torch.Tensor:
    return x + net.two(x.mean(1))[:, None]


def mixing_samples(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = net.two(x)
    return x + x.mean(0, keepdim=True)


def some_tokens(net: Net, x: torch.Tensor) -> torch.Tensor:
    flat = x.flatten(0, 1)
    return flat.index_add(0, torch.arange(0, len(flat), 2), net.two(flat[::2])).view_as(x)


def functional_dropout(net: Net, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(net.two(x), 0.3, net.training)


def jitter(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.two(x * torch.empty_like(x).uniform_(0.8, 1.2)) if net.training else net.two(x)


def checkpointed(net: Net, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(net.two, x, use_reentrant=False)


def not_called(net: Net, x: torch.Tensor) -> torch.Tensor:
    return x


def net(inner: Callable[[Net, torch.Tensor], torch.Tensor] | None = None, **attributes: Any) -> nn.Module:
    return Net(inner, **attributes).train()


def with_gradient_hook() -> nn.Module:
    model = net()
    model.two.weight.register_hook(lambda gradient: 3 * gradient)
    return model


def with_late_gradient_hook() -> nn.Module:
    """A hook that is not on the parameter's list: it changes `.grad` after it was accumulated."""
    model = net()

    def triple(parameter: torch.Tensor) -> None:
        parameter.grad *= 3

    model.two.weight.register_post_accumulate_grad_hook(triple)
    return model


def with_forward_hooks() -> nn.Module:
    model = net()
    model.two.register_forward_pre_hook(lambda _, args: (2 * args[0],))
    model.two.register_forward_hook(lambda _, args, output: 3 * output)
    return model


def compiled(*, whole: bool) -> nn.Module:
    """By Dynamo, without a compiler backend."""
    model = net()
    (model if whole else model.two).compile(backend="eager")
    return model


def parametrized() -> nn.Module:
    model = net()
    nn.utils.parametrizations.weight_norm(model.two)
    return model


def adapters(*, both_active: bool) -> nn.Module:
    model = lora_model().train()
    model.add_adapter("second", LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    model.double()
    if both_active:
        model.base_model.set_adapter(["default", "second"])
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("lora_" in name)
    return model


def qwen_lora(**lora: Any) -> nn.Module:
    return lora_model(**lora).train()


def attention_dropout() -> nn.Module:
    model = lora_model().train()
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.2
    return model


@functools.cache
def mixture_config(kind: str) -> Any:
    from transformers import MixtralConfig, Qwen3MoeConfig

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "use_cache": False,
        "num_experts_per_tok": 1,
    }
    if kind == "qwen3":
        return Qwen3MoeConfig(**sizes, num_experts=4, moe_intermediate_size=8, head_dim=8)
    return MixtralConfig(**sizes, num_local_experts=4)


def mixture(kind: str, *, lora: bool) -> nn.Module:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(mixture_config(kind)).float()
    if lora:
        model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    return model.train()


# ------------------------------ cases ------------------------------

EXACT = {
    "a plain layer": (net, "two"),
    "an untied output layer": (net, "head"),
    "a compiled layer": (lambda: compiled(whole=False), "two"),
    "a compiled model": (lambda: compiled(whole=True), "two"),
    "called twice": (lambda: net(twice), "two"),
    "forward hooks that scale": (with_forward_hooks, "two"),
    "checkpointed": (lambda: net(checkpointed), "one|two"),
    "queries, keys and values with biases": (lambda: full("q_proj|k_proj|v_proj"), "(q|k|v)_proj"),
    "LoRA": (qwen_lora, "lora"),
    "rank-stabilised LoRA": (lambda: qwen_lora(use_rslora=True), "lora"),
    "LoRA with biases": (lambda: qwen_lora(lora_bias=True), "lora"),
    "two adapters, both active": (lambda: adapters(both_active=True), "lora"),
    "Qwen3-MoE, attention's LoRA": (lambda: mixture("qwen3", lora=True), r"self_attn\..*lora_"),
    "Mixtral, attention's LoRA": (lambda: mixture("mixtral", lora=True), r"self_attn\..*lora_"),
    "Qwen3-MoE, o_proj": (lambda: mixture("qwen3", lora=False), "o_proj"),
    "Mixtral, o_proj": (lambda: mixture("mixtral", lora=False), "o_proj"),
}
EXPERTS = r"experts or the router of a mixture.*self_attn\\\.\.\*lora_"
REFUSED = {
    "[T, B, H]": (lambda: net(transposed), "two", r"sees its tokens as \(9, 6\)|sees its tokens as"),
    "permuted tokens": (lambda: net(permuted), "two", "its loss was set to 0.*another order"),
    "samples that see each other": (lambda: net(mixing_samples), "two", "or samples see each other"),
    "the weight in F.linear": (lambda: net(through_functional), "two", "two.weight.*also used outside its module"),
    "a hook on the weight": (with_gradient_hook, "two", "a hook on two.weight may change its gradient"),
    "a hook after accumulation": (with_late_gradient_hook, "two", "off by 67%.*a hook changes its gradient"),
    "a parametrization": (parametrized, "two", "two.weight is computed from other parameters"),
    "heads": (lambda: net(in_heads), "two", "sample_index has"),
    "pooled": (lambda: net(pooled), "two", "sample_index has"),
    "some tokens": (lambda: net(some_tokens), "two", "sample_index has"),
    "not called": (lambda: net(not_called), "one|two", "never called"),
    "residual dropout": (lambda: net(dropout=nn.Dropout(0.1)), "two", "dropout.p drops 10%"),
    "dropout that no module shows": (lambda: net(functional_dropout), "two", "draws random numbers.*dropout and noise"),
    "noise": (lambda: net(jitter), "two", "draws random numbers"),
    "attention dropout": (attention_dropout, "lora", "self_attn.attention_dropout drops 20%"),
    "LoRA's dropout": (lambda: qwen_lora(lora_dropout=0.1), "lora", "set lora_dropout to 0"),
    "DoRA": (lambda: qwen_lora(use_dora=True), "lora", "DoRA"),
    "a trained adapter that is not active": (lambda: adapters(both_active=False), "lora", "never called"),
    "tied output layer": (lambda: tied(), "lm_head", "is shared with"),
    "Qwen3-MoE, LoRA on all": (lambda: mixture("qwen3", lora=True), "lora", EXPERTS),
    "Mixtral, LoRA on all": (lambda: mixture("mixtral", lora=True), "lora", EXPERTS),
    "Qwen3-MoE, LoRA on the router": (lambda: mixture("qwen3", lora=True), r"mlp\.gate\.", EXPERTS),
}
IN_PART = {
    "LoRA of the embedding": lambda: qwen_lora(target_modules=["q_proj", "embed_tokens"], init_lora_weights=False),
    "modules_to_save": lambda: qwen_lora(modules_to_save=["lm_head"]),
    "trainable token indices": lambda: qwen_lora(trainable_token_indices=[1, 2, 3]),
}


def full(trained: str) -> nn.Module:
    import re

    model = lora_model().unload().train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(bool(re.search(trained, name)))
    return model


def tied() -> nn.Module:
    model = full("lm_head|embed_tokens")
    model.lm_head.weight = model.model.embed_tokens.weight
    return model


@pytest.mark.parametrize("case", EXACT)
def test_scores_are_exact(case: str):
    make, parameters = EXACT[case]
    model = make()
    verdict = judge(model, parameters)
    assert not verdict.refusal
    is_double = next(model.parameters()).dtype == torch.float64
    assert verdict.error < (1e-10 if is_double else 1e-5)


@pytest.mark.parametrize("case", REFUSED)
def test_scores_that_would_be_wrong_are_refused(case: str):
    import re

    make, parameters, message = REFUSED[case]
    verdict = judge(make(), parameters)
    assert verdict.refusal, f"silently wrong by {verdict.error:.2g}"
    assert re.search(message, verdict.refusal, re.DOTALL), verdict.refusal


def test_permuted_tokens_of_packed_rows_are_refused():
    assert "its loss was set to 0" in judge(net(permuted), "two", layout="packed").refusal


def test_scores_of_a_model_in_bfloat16_are_those_of_its_own_gradients():
    assert judge(net().bfloat16(), "two").error < 5e-3


def test_a_square_grid_that_is_transposed_is_refused():
    """Here the shapes do not reveal it."""
    assert "its loss was set to 0" in judge(net(transposed), "two", batch=SAME_LENGTH).refusal


@pytest.mark.parametrize("case", IN_PART)
def test_what_is_trained_and_not_scored_is_reported(case: str):
    verdict = judge(IN_PART[case](), "lora")
    assert not verdict.refusal
    assert 0 < verdict.share < 1
    assert verdict.error < 1e-10


def test_all_of_it_is_all_of_it():
    assert judge(qwen_lora(), "lora").share == 1


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_the_check_leaves_gradients_generators_and_scores_as_they_were(layout: str):
    model = qwen_lora()
    model.requires_grad_(True)
    sample_losses(model, TRAIN, [0, 1]).sum().backward()
    before = {name: (parameter.grad, parameter.grad.clone()) for name, parameter in model.named_parameters()}
    generator, ghost = torch.get_rng_state(), GhostInfluence(model)
    with ghost.validation():
        sample_losses(model, VALIDATION, list(range(4))).sum().backward()

    def backward(muted: Sequence[int]) -> None:
        kept = torch.tensor([float(sample not in muted) for sample in range(NUM)])
        (sample_losses(model, TRAIN, list(range(NUM)), layout) * kept).sum().backward()

    assert check_scores(ghost, sample_index(TRAIN, list(range(NUM)), layout), backward, [1])
    for name, parameter in model.named_parameters():
        gradient, values = before[name]
        assert parameter.grad is gradient
        assert torch.equal(gradient, values)
    assert torch.equal(torch.get_rng_state(), generator)
    assert ghost.scores(NUM).count_nonzero() == 0


def test_without_a_gradient_nothing_is_said():
    model = net()
    ghost = GhostInfluence(model, "two")
    with ghost.validation():
        sample_losses(model, VALIDATION, list(range(4))).sum().backward()
    index = sample_index(TRAIN, list(range(NUM)))
    assert not check_scores(
        ghost, index, lambda muted: (0 * sample_losses(model, TRAIN, list(range(NUM)))).sum().backward(), [1]
    )
