"""What a rank keeps of each scored parameter: G and other sums of gradients, whole or in shards."""

from dataclasses import dataclass, field

import torch

from verl_ext.core.errors import SignalError


class InfluenceError(SignalError):
    """The requested influence scores would be wrong or are impossible."""


class Storage:
    """How a rank stores a parameter's sums of gradients: here whole, summed over the tokens of the rank.

    A storage in shards (`verl_ext.influence.fsdp.ShardedStorage`) communicates: `store` and `whole` are called on all
    ranks in the same order.
    """

    def store(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """The part of a gradient, of the parameter's unsharded shape, that this rank keeps."""
        return gradient

    def whole(self, stored: torch.Tensor) -> torch.Tensor:
        """The gradient of the unsharded shape."""
        return stored

    def local(self, stored: torch.Tensor) -> torch.Tensor:
        """This rank's own part, without communication."""
        return stored

    def like(self, tensor: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
        """A tensor with the layout of the parameter, in that of what is stored of its gradient."""
        return tensor.to(stored)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Float32 for the half precisions, otherwise the dtype itself."""
    return torch.promote_types(dtype, torch.float32)


def weight_gradient(grad_NO: torch.Tensor, x_NI: torch.Tensor | None) -> torch.Tensor:
    """Gradient of a weight, (O, I), or of a bias, (O,), when there is no input."""
    return grad_NO.sum(0) if x_NI is None else grad_NO.t() @ x_NI


@dataclass(eq=False)
class GhostParameter:
    """The state kept per parameter: tensors of its unsharded shape, `validation`, `total` and `metric` as stored.

    Attributes:
        name: Its name in the model.
        shape: (O, I) of a weight, (O,) of a bias.
        dtype: Dtype of the accumulators: float32, or float64 for a float64 parameter.
        storage: Of G, and of the gradient of all tokens.
        validation: G, summed over the validation passes.
        total: Gradient of all scored tokens, to compare with that of a plain backward.
        selected: Weighted sum of the kept per-sample gradients.
        per_sample: Gradients of this micro-batch's samples, (S, *shape).
        metric: Diagonal that G was multiplied by, for the norms of samples; None: 1.
    """

    name: str
    shape: torch.Size
    dtype: torch.dtype
    storage: Storage = field(default_factory=Storage)
    validation: torch.Tensor | None = None
    total: torch.Tensor | None = None
    selected: torch.Tensor | None = None
    per_sample: torch.Tensor | None = None
    metric: torch.Tensor | None = None

    def add(self, buffer: str, gradient: torch.Tensor) -> None:
        """Adds a gradient to one of the accumulators, which is created at the first call."""
        gradient = gradient.to(self.dtype)
        if buffer != "selected":
            gradient = self.storage.store(self.name, gradient)
        if getattr(self, buffer) is None:
            setattr(self, buffer, gradient)
        else:
            getattr(self, buffer).add_(gradient)

    def direction(self, like: torch.Tensor) -> torch.Tensor:
        """G on the device and in the dtype of an activation; gathered in this dtype if it is stored in shards."""
        assert self.validation is not None
        self.validation = self.validation.to(like.device)
        return self.storage.whole(self.validation.to(like.dtype))

    def keep(self, grad_NO: torch.Tensor, x_NI: torch.Tensor | None, runs: list[tuple[int, int, int]], num: int):
        """Adds the gradient of its tokens to each sample's; runs are (position among samples, start, end)."""
        if self.per_sample is None:
            self.per_sample = grad_NO.new_zeros(num, *self.shape)
        for place, start, end in runs:
            self.per_sample[place] += weight_gradient(grad_NO[start:end], None if x_NI is None else x_NI[start:end])
