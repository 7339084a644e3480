"""Which Linear layers a ghost pass hooks, and which models it refuses because a score would be wrong."""

import re

from torch import nn

from verl_ext.influence.method.ghost_functions import GhostLinear
from verl_ext.influence.method.ghost_parameters import GhostParameter, InfluenceError, accumulation_dtype

LORA = "lora"
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def find_layers(model: nn.Module, parameters: str) -> list[GhostLinear]:
    """The trainable Linear layers that `parameters` selects: "lora", or a regular expression over module names.

    Parameters that several of them share get one set of accumulators, so their contributions add up.

    Raises:
        InfluenceError: No layer matches, none that matches is trainable, or one's score would not be its gradient's.
    """
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if parameters == LORA:
        matching = {n: m for n, m in linears.items() if {"lora_A", "lora_B"} & set(n.split("."))}
    else:
        matching = {n: m for n, m in linears.items() if re.search(parameters, n)}
    if not matching:
        what = "is a LoRA factor (lora_A, lora_B)" if parameters == LORA else f"matches {parameters!r}"
        names = ", ".join(list(linears)[:5]) or "none"
        raise InfluenceError(
            f"none of the model's {len(linears)} Linear modules {what}; their names are like: {names}. "
            'Set `parameters` to "lora" for a PEFT model or to a regular expression over these names'
        )
    known: dict[int, GhostParameter] = {}
    layers = []
    for name, module in matching.items():
        weight, bias = (_parameter(module, name, attribute, known) for attribute in ("weight", "bias"))
        if weight is not None or bias is not None:
            layers.append(GhostLinear(name, module, weight, bias))
    if not layers:
        raise InfluenceError(
            f"{len(matching)} Linear modules match {parameters!r}, but all are frozen: only parameters with "
            "requires_grad=True have a gradient (is the adapter active?)"
        )
    _check_layers(model, layers, known)
    _check_experts(model, layers)
    return layers


def check_dropout(model: nn.Module) -> None:
    """Raises InfluenceError if dropout is active, in a module or as a number of an attention module."""
    for name, module in model.named_modules():
        if not module.training:
            continue
        rates = {"p": module.p} if isinstance(module, DROPOUTS) else {}
        rates |= {attribute: value for attribute, value in vars(module).items() if "drop" in attribute}
        for attribute, rate in rates.items():
            if isinstance(rate, float) and rate > 0:
                raise InfluenceError(
                    f"{name}.{attribute} drops {rate:.0%} at random, so the gradient that is scored is not the one "
                    f"that would be trained on: set {_setting(name, attribute)} to 0, or call model.eval()"
                )


def _setting(name: str, attribute: str) -> str:
    if "lora_dropout" in name.split("."):
        return "lora_dropout"
    what = "the model's dropout" if attribute == "p" else attribute
    return f"{what} (actor_rollout_ref.model.override_config)"


def _parameter(
    module: nn.Linear, module_name: str, attribute: str, known: dict[int, GhostParameter]
) -> GhostParameter | None:
    parameter = getattr(module, attribute)
    if parameter is None or not parameter.requires_grad:
        return None
    if dict(module.named_parameters(recurse=False)).get(attribute) is not parameter:
        raise InfluenceError(
            f"{module_name}.{attribute} is computed from other parameters, as weight_norm does, whose gradient "
            "is not scored: choose `parameters` without it"
        )
    if getattr(parameter, "_backward_hooks", None):
        raise InfluenceError(
            f"a hook on {module_name}.{attribute} may change its gradient, which is not the one that is scored: remove "
            "the hook, or choose `parameters` without it"
        )
    if id(parameter) not in known:
        name, shape = f"{module_name}.{attribute}", parameter.shape
        known[id(parameter)] = GhostParameter(name, shape, accumulation_dtype(parameter.dtype))
    return known[id(parameter)]


def _check_experts(model: nn.Module, layers: list[GhostLinear]) -> None:
    """Experts see some tokens, in their own order; PEFT's factors of whole parameters are never called."""
    wrapped = [f"{name}." for name, module in model.named_modules() if type(module).__name__ == "ParamWrapper"]
    for layer in layers:
        if "experts" in layer.name.split(".") or layer.name.startswith(tuple(wrapped)):
            raise InfluenceError(
                f"{layer.name} belongs to the experts or the router of a mixture, which have no exact scores: score "
                "the rest, as `parameters` 'self_attn\\..*lora_' does for LoRA and 'self_attn' for whole layers. LoRA "
                "on attention alone (actor_rollout_ref.model.target_modules=[q_proj,k_proj,v_proj,o_proj]) has no rest"
            )


def _check_layers(model: nn.Module, layers: list[GhostLinear], known: dict[int, GhostParameter]) -> None:
    hooked = {id(layer.module) for layer in layers}
    for layer in layers:
        kind, expected = type(layer.module), (layer.module.out_features, layer.module.in_features)
        if kind.forward is not nn.Linear.forward:
            raise InfluenceError(
                f"{layer.name} is a {kind.__name__} with its own forward: only nn.Linear's is x W^T + b"
            )
        if layer.weight is not None and layer.weight.shape != expected:
            raise InfluenceError(
                f"the weight of {layer.name} has shape {tuple(layer.weight.shape)} instead of {expected}: "
                "FSDP1 flattens parameters. Use FSDP2 (actor_rollout_ref.actor.strategy=fsdp2)"
            )
    for name, module in model.named_modules():
        if id(module) in hooked:
            continue
        for attribute, parameter in module.named_parameters(recurse=False):
            if id(parameter) in known:
                raise InfluenceError(
                    f"{known[id(parameter)].name} is shared with {name}.{attribute}, which is not hooked, so part of "
                    "its gradient would be missed: untie them, or choose `parameters` without it"
                )
            if attribute.startswith("lora_magnitude") or "lora_magnitude_vector" in name.split("."):
                raise InfluenceError(f"{name} belongs to DoRA, whose factors do not only act as Linear: use plain LoRA")
