"""Which Linear layers a ghost pass hooks, and which models it refuses because a score would be wrong."""

import re

from torch import nn

from verl_ext.influence.method.ghost_functions import GhostLinear, GhostParameter, InfluenceError, accumulation_dtype

LORA = "lora"


def find_layers(model: nn.Module, parameters: str) -> list[GhostLinear]:
    """The trainable Linear layers that `parameters` asks for: "lora", or a regular expression over module names.

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
    return layers


def check_dropout(model: nn.Module) -> None:
    """Raises InfluenceError where LoRA's dropout is active."""
    for name, module in model.named_modules():
        active = isinstance(module, nn.Dropout) and module.p > 0 and module.training
        if active and "lora_dropout" in name.split("."):
            raise InfluenceError(
                f"{name} drops {module.p:.0%} of the activations at random, so the gradient that is scored is not the "
                "one that would be trained on: set lora_dropout to 0, or call model.eval()"
            )


def _parameter(
    module: nn.Linear, module_name: str, attribute: str, known: dict[int, GhostParameter]
) -> GhostParameter | None:
    parameter = getattr(module, attribute)
    if parameter is None or not parameter.requires_grad:
        return None
    if id(parameter) not in known:
        name, shape = f"{module_name}.{attribute}", parameter.shape
        known[id(parameter)] = GhostParameter(name, shape, accumulation_dtype(parameter.dtype))
    return known[id(parameter)]


def _check_layers(model: nn.Module, layers: list[GhostLinear], known: dict[int, GhostParameter]) -> None:
    hooked = {id(layer.module) for layer in layers}
    for layer in layers:
        kind, expected = type(layer.module), (layer.module.out_features, layer.module.in_features)
        if kind.forward is not nn.Linear.forward:
            raise InfluenceError(
                f"{layer.name} is a {kind.__name__} with a forward of its own: only nn.Linear's is x W^T + b"
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
                    f"{known[id(parameter)].name} is shared with {name}.{attribute}, which is not hooked, so a part of "
                    "its gradient would be missed: untie them, or choose `parameters` without it"
                )
            if attribute.startswith("lora_magnitude") or "lora_magnitude_vector" in name.split("."):
                raise InfluenceError(f"{name} belongs to DoRA, whose factors do not only act as Linear: use plain LoRA")
