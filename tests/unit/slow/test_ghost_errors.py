"""What ghost passes refuse, and what they say."""

import ast
import re
import sys
from pathlib import Path

import pytest
import torch
from influence_models import MixingNet, lora_model, make_batch, sample_losses
from torch import nn
from torch.utils.checkpoint import checkpoint

from verl_ext.core.errors import SignalError
from verl_ext.influence.method import ghost as ghost_module
from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError


def test_the_algorithm_imports_torch_and_nothing_heavier():
    folder = Path(ghost_module.__file__).parent
    for file in folder.glob("ghost*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in {"torch", "verl_ext", *sys.stdlib_module_names}, (file.name, name)
                assert not name.startswith("torch.distributed"), file.name


@pytest.fixture(scope="module")
def small():
    model = MixingNet()
    return model, torch.arange(12).view(3, 4), torch.arange(3)[:, None].expand(3, 4)


def ready(model: nn.Module) -> GhostInfluence:
    ghost = GhostInfluence(model, "layers")
    with ghost.validation():
        model(torch.arange(4)[None]).sum().backward()
    return ghost


def test_the_error_is_one_for_people():
    assert issubclass(InfluenceError, SignalError)


def test_layers_that_do_not_exist_are_refused_with_names_that_do(small):
    with pytest.raises(InfluenceError, match=r"none of the model's 4 Linear modules is a LoRA factor.*layers\.0"):
        GhostInfluence(small[0])
    with pytest.raises(InfluenceError, match=r"matches 'q_proj'.*layers\.0.*regular expression"):
        GhostInfluence(small[0], "q_proj")
    with pytest.raises(InfluenceError, match="all are frozen"):
        GhostInfluence(MixingNet().requires_grad_(False), "layers")


def test_layers_whose_score_would_be_wrong_are_refused():
    class Own(nn.Linear):
        def forward(self, input):
            return super().forward(input) * 2

    with pytest.raises(InfluenceError, match="Own with its own forward"):
        GhostInfluence(nn.Sequential(Own(2, 2)), "0")
    flat = nn.Sequential(nn.Linear(2, 2))
    flat[0].weight = nn.Parameter(torch.zeros(4))
    with pytest.raises(InfluenceError, match="FSDP1 flattens"):
        GhostInfluence(flat, "0")
    tied = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    tied[1].weight = tied[0].weight
    with pytest.raises(InfluenceError, match=r"1.weight is shared with 0.weight.*untie"):
        GhostInfluence(tied, "1")
    with pytest.raises(InfluenceError, match="DoRA"):
        GhostInfluence(lora_model(use_dora=True))


def test_active_lora_dropout_is_refused():
    model = lora_model(lora_dropout=0.1).train()
    ghost = GhostInfluence(model)
    with pytest.raises(InfluenceError, match=r"lora_dropout.*drops 10%.*set lora_dropout to 0"), ghost.validation():
        pass
    model.eval()
    with ghost.validation():
        sample_losses(model, make_batch(2), [0, 1]).sum().backward()


def test_a_layer_that_is_not_reached_is_named(small):
    model, ids, index = small
    ghost = GhostInfluence(model, "layers")
    with pytest.raises(InfluenceError, match=r"4 of 4 hooked modules \(layers\.0.*never called"), ghost.validation():
        pass
    ghost.reset_validation()
    with pytest.raises(InfluenceError, match="called, but no gradient came back"), ghost.validation():
        model(ids)
    ghost.reset_validation()
    with pytest.raises(InfluenceError, match=r"3 of 4 hooked modules \(layers\.1"), ghost.validation():
        model.layers[0](model.embedding(ids)).sum().backward()
    ghost = ready(model)
    with pytest.raises(InfluenceError, match="3 of 4 hooked"), ghost.scoring(index):
        model.layers[0](model.embedding(ids)).sum().backward()
    assert ghost.scores(3).count_nonzero() == 0


def test_a_late_backward_is_refused(small):
    model, ids, index = small
    ghost = ready(model)
    with ghost.scoring(index):
        late = model(ids).sum()
        model(ids).sum().backward()
    with pytest.raises(InfluenceError, match=r"after its ghost context was left"):
        late.backward()


def test_another_number_of_tokens_is_refused(small):
    model, ids, index = small
    ghost = ready(model)
    with (
        pytest.raises(InfluenceError, match=r"layers\.0 sees 12 tokens, input \(3, 4, 8\).*sample_index has 8"),
        ghost.scoring(index[:2]),
    ):
        model(ids)


def test_scoring_needs_a_validation_gradient(small):
    model, _, index = small
    ghost = GhostInfluence(model, "layers")
    for call in (lambda: ghost.scoring(index).__enter__(), ghost.validation_gradients):
        with pytest.raises(InfluenceError, match="there is no validation gradient"):
            call()


def test_contexts_are_not_nested(small):
    model, ids, index = small
    ghost, other = ready(model), ready(model)
    with ghost.scoring(index):
        for inner_context in (ghost.validation(), ghost.scoring(index)):
            with pytest.raises(InfluenceError, match="a ghost context is open"):
                inner_context.__enter__()
        with pytest.raises(InfluenceError, match="a ghost context is open"):
            ghost.close()
        with pytest.raises(InfluenceError, match=r"layers\.0 is already replaced"):
            other.scoring(index).__enter__()
        model(ids).sum().backward()
    assert ghost.scores(3).count_nonzero() == 3


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.zeros(3, 4), "must be a tensor of int64, int32 or int16, got torch.float32"),
        (torch.zeros(3, 4, dtype=torch.bool), "got torch.bool"),
        ([[0, 1]], "got list"),
        (torch.full((3, 4), -2), "must be -1 (padding) or a sample's number, got -2"),
    ],
)
def test_a_wrong_sample_index_is_refused(small, index, message):
    with pytest.raises(InfluenceError, match=re.escape(message)):
        ready(small[0]).scoring(index).__enter__()


def test_more_samples_than_expected_are_refused(small):
    model, ids, index = small
    ghost = ready(model)
    with ghost.scoring(index, keep_gradients=True):
        model(ids).sum().backward()
    for read in (ghost.scores, ghost.self_influence):
        with pytest.raises(InfluenceError, match="named sample 2, but num_samples is 2"):
            read(2)
    with pytest.raises(InfluenceError, match=r"a vector of at least 3, got shape \(2,\)"):
        ghost.accumulate_selected(torch.ones(2))
    with pytest.raises(InfluenceError, match="weights must be finite"):
        ghost.accumulate_selected(torch.tensor([1, torch.nan, 1]))
    ghost.accumulate_selected(torch.ones(3))


def test_scores_that_are_not_finite_are_refused_and_traced(small):
    model, ids, index = small
    ghost = ready(model)
    with pytest.raises(InfluenceError, match=r"samples \[1\] are not finite; the validation gradient is finite"):  # noqa: SIM117
        with ghost.scoring(index):
            (model(ids) * torch.tensor([1, torch.inf, 1])).sum().backward()
    assert ghost.scores(3).count_nonzero() == 0
    ghost.validation_gradients()["layers.0.weight"][0, 0] = torch.nan
    with pytest.raises(InfluenceError, match="the validation gradient is not finite"), ghost.scoring(index):
        model(ids).sum().backward()


def test_float16_is_refused(small):
    model, ids, _ = small
    model = MixingNet(dtype=torch.float32)
    ghost = GhostInfluence(model, "layers")
    with pytest.raises(InfluenceError, match="use bfloat16"), ghost.validation(), torch.autocast("cpu", torch.float16):
        model(ids)


def test_kept_gradients_are_used_or_dropped_on_purpose(small):
    model, ids, index = small
    ghost = ready(model)
    for call in (lambda: ghost.accumulate_selected(torch.ones(3)), ghost.take_selected_gradients):
        with pytest.raises(InfluenceError, match=r"keep_gradients=True|nothing was selected"):
            call()
    with ghost.scoring(index, keep_gradients=True):
        model(ids).sum().backward()
    with pytest.raises(InfluenceError, match=r"still kept: call accumulate_selected\(weights\)"):
        ghost.scoring(index).__enter__()
    ghost.drop_kept_gradients()
    with ghost.scoring(index):
        model(ids).sum().backward()
    with pytest.raises(InfluenceError, match=r"keep_gradients=True in every scoring pass"):
        ghost.self_influence(3)
    with pytest.raises(InfluenceError, match=r"check_identity=True in every scoring pass"):
        ghost.identity_error()
    with pytest.raises(InfluenceError, match=r"sum_gradients=True in every scoring pass"):
        ghost.total_gradients()


def test_validation_gradients_that_do_not_fit_are_refused(small):
    model = small[0]
    ghost = ready(model)
    gradients = dict(ghost.validation_gradients())
    with pytest.raises(InfluenceError, match=r"gradient of layers\.0\.weight must be \(2, 8\), got \(8, 2\)"):
        ghost.set_validation_gradients(gradients | {"layers.0.weight": torch.zeros(8, 2)})
    with pytest.raises(InfluenceError, match=r"missing or unknown: layers\.0\.bias"):
        ghost.set_validation_gradients({n: g for n, g in gradients.items() if n != "layers.0.bias"})


def test_plain_checkpointing_of_full_layers(small):
    model, ids, index = small

    def checkpointed(ids):
        x = model.embedding(ids)
        for layer in model.layers:
            x = checkpoint(
                lambda x, layer=layer: torch.tanh(layer(x + x.mean(1, keepdim=True))), x, use_reentrant=False
            )
        return x.square().sum((1, 2))

    ghost = ready(model)
    with ghost.scoring(index, check_identity=True):
        model(ids).sum().backward()
    plain = ghost.scores(3)
    ghost.reset_scores()
    with ghost.scoring(index, check_identity=True):
        checkpointed(ids).sum().backward()
    assert torch.equal(ghost.scores(3), plain)
    assert ghost.identity_error() < 1e-12
