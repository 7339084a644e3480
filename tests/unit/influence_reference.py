"""References for streaming influence scores: autograd sample by sample, and the original, buffering method."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

Gradients = dict[str, torch.Tensor]


def gradients_of(model: nn.Module, names: list[str], loss: torch.Tensor) -> Gradients:
    """Gradient of one loss by parameter name."""
    parameters = dict(model.named_parameters())
    return dict(zip(names, torch.autograd.grad(loss, [parameters[name] for name in names]), strict=True))


def per_sample_gradients(
    model: nn.Module, names: list[str], loss_of_sample: Callable[[int], torch.Tensor], num_samples: int
) -> list[Gradients]:
    """One backward pass per sample, as in the definition."""
    return [gradients_of(model, names, loss_of_sample(sample)) for sample in range(num_samples)]


def inner(left: Gradients, right: Gradients) -> float:
    """Inner product over all parameters, in float64."""
    return float(sum((left[name].double() * right[name].double()).sum() for name in left))


def scores_of(gradients: list[Gradients], validation: Gradients) -> torch.Tensor:
    """Float64 inner products of each sample's gradient with the validation gradient."""
    return torch.tensor([inner(gradient, validation) for gradient in gradients], dtype=torch.float64)


class BufferedInfluence:
    """The original method, for LoRA and padded [B, T] rows: buffer every activation, reconstruct gradients at the end.

    Keeps x and h, the inputs of lora_A and lora_B, and the gradients of both outputs, for all samples and layers.
    """

    def __init__(self, model: nn.Module):
        self.buffers: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self.handles: list[RemovableHandle] = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and {"lora_A", "lora_B"} & set(name.split(".")):
                self.handles.append(module.register_forward_hook(self._recorder(name)))

    def _recorder(self, name: str) -> Callable:
        buffer = self.buffers.setdefault(name, [])

        def record(_module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
            x = inputs[0].detach()
            # The output that checkpointing recomputes never gets a gradient, so each call is recorded once.
            if output.requires_grad:
                output.register_hook(lambda gradient: buffer.append((x, gradient.detach())))

        return record

    def take_gradients(self) -> Gradients:
        """Per-sample gradients, (samples, out, in), of everything since the last call; empties the buffers."""
        gradients = {}
        for name, buffer in self.buffers.items():
            parts = [torch.einsum("bto,bti->boi", gradient, x.to(gradient.dtype)) for x, gradient in buffer]
            gradients[f"{name}.weight"] = torch.cat(parts)
            buffer.clear()
        return gradients

    def take_scores(self, validation: Gradients) -> torch.Tensor:
        """Float64 scores of the samples in the order in which they were seen."""
        gradients = self.take_gradients()
        return sum(
            torch.einsum("boi,oi->b", g.float(), validation[name].float()).double() for name, g in gradients.items()
        )

    def close(self) -> None:
        """Removes the hooks."""
        for handle in self.handles:
            handle.remove()
