"""Makes a model's Linear layers, and nothing else, compute scores or gradients in backward."""

import functools
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

from verl_ext.influence.method.ghost_functions import (
    GhostLinear,
    GhostPass,
    GradientLinear,
    ScoreFromInput,
    ScoreFromOutput,
)
from verl_ext.influence.method.ghost_layers import check_dropout
from verl_ext.influence.method.ghost_parameters import InfluenceError


@contextmanager
def hooked(
    model: nn.Module, layers: Sequence[GhostLinear], ghost_pass: GhostPass, anchor: torch.Tensor
) -> Generator[None]:
    """Replaces the layers' forward and freezes every parameter; everything is restored at the end, also after an
    exception.

    Args:
        model: The model of the layers.
        layers: The layers to score.
        ghost_pass: Sums of this pass.
        anchor: A leaf that requires a gradient, without which autograd would skip a frozen model.

    Raises:
        InfluenceError: The model has dropout, or a forward is replaced already.
    """
    check_dropout(model)
    for layer in layers:
        if "forward" in layer.module.__dict__:
            raise InfluenceError(
                f"the forward of {layer.name} is already replaced on the instance, by another GhostInfluence's "
                "context or another library: ghost passes cannot be nested or combined with it"
            )
    parameters = list(model.parameters())
    required = [parameter.requires_grad for parameter in parameters]
    devices = sorted({p.device.index for p in parameters if p.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices):
            for parameter in parameters:
                parameter.requires_grad_(False)
            for layer in layers:
                layer.module.__dict__["forward"] = functools.partial(_forward, layer, ghost_pass, anchor)
            yield
    finally:
        ghost_pass.active = False
        for layer in layers:
            layer.module.__dict__.pop("forward", None)
        for parameter, requires_grad in zip(parameters, required, strict=True):
            parameter.requires_grad_(requires_grad)


def check_reached(layers: Sequence[GhostLinear], ghost_pass: GhostPass) -> None:
    """Raises InfluenceError if a layer had no forward or no backward in a pass."""
    for seen, trouble in (
        (ghost_pass.called, "never called with gradients enabled: run the forward inside the context"),
        (ghost_pass.reached, "called, but no gradient came back to it: call loss.backward() inside the context"),
    ):
        if missing := [layer.name for layer in layers if layer.name not in seen]:
            raise InfluenceError(
                f"{len(missing)} of {len(layers)} hooked modules ({', '.join(missing[:3])}) were {trouble}, "
                "and choose `parameters` so that only layers match that the loss depends on"
            )


def _forward(layer: GhostLinear, ghost_pass: GhostPass, anchor: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    # Read here and not at installation: under FSDP2 this is the full weight only during the forward.
    weight, bias, device = layer.module.weight, layer.module.bias, input.device.type
    if not torch.is_grad_enabled():
        return F.linear(input, weight, bias)
    # float64 is exempt from autocast, as in F.linear.
    if torch.is_autocast_enabled(device) and input.dtype != torch.float64:
        input = input.to(torch.get_autocast_dtype(device))
    if input.dtype == torch.float16:
        raise InfluenceError(f"{layer.name} runs in float16, whose range G does not fit: use bfloat16")
    tokens = input.reshape(-1, input.shape[-1])
    index = ghost_pass.sample_index
    if index is not None and len(tokens) != len(index):
        raise InfluenceError(
            f"{layer.name} sees {len(tokens)} tokens, input {tuple(input.shape)}, but sample_index has "
            f"{len(index)}: it must have the shape of the grid that the layers see ([1, total] without padding)"
        )
    # Flattened by the model itself, or with the index's own axes; axes of length 1 do not affect the order.
    axes = [size for size in input.shape[:-1] if size != 1]
    if index is not None and len(axes) > 1 and axes != [size for size in ghost_pass.grid if size != 1]:
        raise InfluenceError(
            f"{layer.name} sees its tokens as {tuple(input.shape[:-1])}, but sample_index has the shape "
            f"{ghost_pass.grid}, so tokens would be credited to other samples: choose `parameters` without "
            "this layer, or give sample_index the layout that the layers see"
        )
    ghost_pass.called.add(layer.name)
    ghost_pass.dtypes.add(input.dtype)
    if index is None or ghost_pass.keep_gradients:
        function = GradientLinear
    else:
        function = ScoreFromOutput if layer.weight is not None and layer.narrow_output else ScoreFromInput
    output = function.apply(tokens, anchor, weight, bias, layer, ghost_pass)
    return output.view(*input.shape[:-1], output.shape[-1])
