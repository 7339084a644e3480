"""The arithmetic of one Linear layer in a ghost pass: its gradient, or inner products with a given gradient.

Shapes: N tokens, I input features, O output features, S samples of a micro-batch. Per sample i the weight's gradient is
g_i^T x_i, and its product with G is the sum over i's tokens t of g_t . (G x_t) = (g_t G) . x_t, without that matrix.

Activations travel through `save_for_backward` only, so that non-reentrant checkpointing drops and recomputes them.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from verl_ext.influence.method.ghost_parameters import (
    GhostParameter,
    InfluenceError,
    accumulation_dtype,
    weight_gradient,
)

# A Linear counts as thin when one side is this many times narrower: LoRA's factors are, a model's own layers are not.
THIN = 4
# Products of bfloat16 activations are summed in float32, in blocks of this many numbers, without copying a whole layer.
BLOCK = 1 << 24

# Largest rounding error of a sum of products, by the precision of the layers. Measured errors are at most a tenth of
# it; a lost or misplaced token gives 0.06 or more. Float32 matrix products may be TF32 on a GPU.
LIMITS = {torch.float64: 1e-8, torch.float32: 1e-2, torch.bfloat16: 5e-2}


def row_dot(left_NF: torch.Tensor, right_NF: torch.Tensor) -> torch.Tensor:
    """Inner product of each row, summed in at least float32; returns float64, (N,)."""
    wide = accumulation_dtype(left_NF.dtype)
    rows = max(1, BLOCK // max(1, left_NF.shape[1]))
    blocks = zip(left_NF.split(rows), right_NF.split(rows), strict=True)
    return torch.cat([(left.to(wide) * right).sum(-1) for left, right in blocks]).double()


@dataclass(eq=False)
class GhostPass:
    """One context, with the sums that its backward adds to.

    Attributes:
        sample_index: Flattened; None in a validation pass.
        grid: Its original shape.
        expected: <gradient of all tokens, G>, for the identity check.
        dtypes: Dtypes in which the layers ran.
    """

    sample_index: torch.Tensor | None = None
    grid: tuple[int, ...] = ()
    keep_gradients: bool = False
    check_identity: bool = False
    sum_gradients: bool = False
    samples: list[int] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    token_scores: torch.Tensor | None = None
    expected: torch.Tensor | None = None
    called: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)
    dtypes: set[torch.dtype] = field(default_factory=set)
    active: bool = True

    def add_scores(self, scores_N: torch.Tensor) -> None:
        """Adds one layer's share to the tokens' scores."""
        self.token_scores = scores_N if self.token_scores is None else self.token_scores.add_(scores_N)

    def expect(self, gradient: torch.Tensor, parameter: GhostParameter) -> None:
        """Adds a parameter's share to `expected`, from the gradient of all tokens at once."""
        wide = gradient.to(parameter.dtype)
        product = (wide * parameter.direction(wide)).sum(dtype=torch.float64)
        self.expected = product if self.expected is None else self.expected + product


def read_sample_index(sample_index: torch.Tensor, keep_gradients: bool) -> GhostPass:
    """Checks the index, and finds the runs of tokens that belong together."""
    if not isinstance(sample_index, torch.Tensor) or sample_index.dtype not in (torch.int64, torch.int32, torch.int16):
        got = sample_index.dtype if isinstance(sample_index, torch.Tensor) else type(sample_index).__name__
        raise InfluenceError(f"sample_index must be a tensor of int64, int32 or int16, got {got}")
    flat = sample_index.detach().flatten().long()
    owners, lengths = (part.tolist() for part in torch.unique_consecutive(flat, return_counts=True))
    if min(owners, default=0) < -1:
        raise InfluenceError(f"sample_index must be -1 (padding) or a sample's number, got {min(owners)}")
    samples = sorted({owner for owner in owners if owner >= 0})
    place, runs, start = {sample: i for i, sample in enumerate(samples)}, [], 0
    for owner, length in zip(owners, lengths, strict=True):
        if owner >= 0:
            runs.append((place[owner], start, start + length))
        start += length
    return GhostPass(flat, tuple(sample_index.shape), keep_gradients, samples=samples, runs=runs)


def kept_products(parameters: list[GhostParameter], samples: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and squared norms from the kept gradients, float64 vectors indexed by sample."""
    products, norms = [], []
    for parameter in parameters:
        kept = parameter.per_sample
        assert kept is not None
        with torch.autocast(kept.device.type, enabled=False):
            wide = kept.flatten(1).to(accumulation_dtype(kept.dtype))
            products.append((wide @ parameter.direction(wide).flatten()).double())
            squares = wide.square()
            if parameter.metric is not None:
                squares *= parameter.storage.whole(parameter.metric).to(squares).flatten()
            norms.append(squares.sum(1).double())
    both = products[0].new_zeros(2, max(samples, default=-1) + 1)
    both[:, samples] = torch.stack([torch.stack(products).sum(0), torch.stack(norms).sum(0)])
    return both[0], both[1]


def add_vectors(total: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The sum of two vectors, the shorter one padded with zeros, on the second one's device."""
    out = part.new_zeros(max(len(total), len(part)))
    out[: len(total)] += total.to(part.device)
    out[: len(part)] += part
    return out


def fit_vector(vector: torch.Tensor, num_samples: int) -> torch.Tensor:
    """A vector indexed by sample, padded with zeros; InfluenceError if it has more samples."""
    if len(vector) > num_samples:
        raise InfluenceError(f"sample_index named sample {len(vector) - 1}, but num_samples is {num_samples}")
    return add_vectors(vector, vector.new_zeros(num_samples))


@dataclass(eq=False)
class GhostLinear:
    """A hooked module: its trainable weight and bias, None where frozen or absent."""

    name: str
    module: nn.Linear
    weight: GhostParameter | None
    bias: GhostParameter | None

    @property
    def narrow_output(self) -> bool:
        return self.module.out_features * THIN <= self.module.in_features

    @property
    def narrow_input(self) -> bool:
        return self.module.in_features * THIN <= self.module.out_features

    def enter_backward(self, ghost_pass: GhostPass) -> None:
        """Every backward starts here: a late one would add to sums that were already read."""
        if not ghost_pass.active:
            raise InfluenceError(
                f"the backward pass reached {self.name} after its ghost context was left: "
                "call loss.backward() inside the context in which the forward ran"
            )
        ghost_pass.reached.add(self.name)

    def score_bias(self, ghost_pass: GhostPass, grad_NO: torch.Tensor) -> None:
        """A bias's gradient is the sum of g, so its part of a token's score is g . G."""
        if self.bias is not None:
            ghost_pass.add_scores(row_dot(grad_NO, self.bias.direction(grad_NO).expand_as(grad_NO)))

    def parts(self, x_NI: torch.Tensor | None) -> list[tuple[GhostParameter, torch.Tensor | None]]:
        """Its trainable parameters, each with the input of its gradient."""
        return [(p, x) for p, x in ((self.weight, x_NI), (self.bias, None)) if p is not None]

    def accumulate(self, ghost_pass: GhostPass, grad_NO: torch.Tensor, x_NI: torch.Tensor | None) -> None:
        """Process the gradient itself in every backward: nothing in a plain scoring pass."""
        for parameter, x in self.parts(x_NI):
            if ghost_pass.sample_index is None:
                parameter.add("validation", weight_gradient(grad_NO, x))
            if ghost_pass.check_identity:
                ghost_pass.expect(weight_gradient(grad_NO, x), parameter)
            if ghost_pass.sum_gradients:
                parameter.add("total", weight_gradient(grad_NO, x))
            if ghost_pass.keep_gradients:
                parameter.keep(grad_NO, x, ghost_pass.runs, len(ghost_pass.samples))


class GradientLinear(torch.autograd.Function):
    """`F.linear` whose backward hands (g, x) to the accumulators: validation, and scoring that keeps gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x_NI: torch.Tensor,
        _anchor: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layer: GhostLinear,
        ghost_pass: GhostPass,
    ) -> torch.Tensor:
        ctx.layer, ctx.ghost_pass = layer, ghost_pass
        with torch.autocast(x_NI.device.type, enabled=False):
            # The bias needs no input.
            ctx.save_for_backward(weight, x_NI if layer.weight is not None else None)
            return F.linear(x_NI, weight.to(x_NI.dtype), None if bias is None else bias.to(x_NI.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor):
        (grad_NO,), (weight, x_NI) = grads, ctx.saved_tensors
        ctx.layer.enter_backward(ctx.ghost_pass)
        with torch.autocast(grad_NO.device.type, enabled=False):
            ctx.layer.accumulate(ctx.ghost_pass, grad_NO, x_NI)
            grad_x = grad_NO @ weight.to(grad_NO.dtype) if ctx.needs_input_grad[0] else None
        return grad_x, None, None, None, None, None


class ScoreFromOutput(torch.autograd.Function):
    """Narrow output (LoRA A): one GEMM in the forward gives y and h = G x; h is saved instead of x."""

    @staticmethod
    def forward(
        ctx: Any,
        x_NI: torch.Tensor,
        _anchor: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layer: GhostLinear,
        ghost_pass: GhostPass,
    ) -> torch.Tensor:
        ctx.layer, ctx.ghost_pass = layer, ghost_pass
        assert layer.weight is not None
        with torch.autocast(x_NI.device.type, enabled=False):
            both = x_NI @ torch.cat([weight.to(x_NI.dtype), layer.weight.direction(x_NI)]).t()
            # Copies, or y's users would keep h, and h's saving y, alive.
            y_NO, h_NO = (part.contiguous() for part in both.chunk(2, dim=1))
            ctx.save_for_backward(weight, h_NO, x_NI if ghost_pass.check_identity or ghost_pass.sum_gradients else None)
            return y_NO if bias is None else y_NO + bias.to(y_NO.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor):
        (grad_NO,), (weight, h_NO, x_NI), layer = grads, ctx.saved_tensors, ctx.layer
        layer.enter_backward(ctx.ghost_pass)
        with torch.autocast(grad_NO.device.type, enabled=False):
            ctx.ghost_pass.add_scores(row_dot(grad_NO, h_NO))
            layer.score_bias(ctx.ghost_pass, grad_NO)
            layer.accumulate(ctx.ghost_pass, grad_NO, x_NI)
            grad_x = grad_NO @ weight.to(grad_NO.dtype) if ctx.needs_input_grad[0] else None
        return grad_x, None, None, None, None, None


class ScoreFromInput(torch.autograd.Function):
    """Everything else: the backward gives g W and z = g G, in one GEMM where the input is narrow (LoRA B)."""

    @staticmethod
    def forward(
        ctx: Any,
        x_NI: torch.Tensor,
        _anchor: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layer: GhostLinear,
        ghost_pass: GhostPass,
    ) -> torch.Tensor:
        ctx.layer, ctx.ghost_pass = layer, ghost_pass
        with torch.autocast(x_NI.device.type, enabled=False):
            ctx.save_for_backward(weight, x_NI if layer.weight is not None else None)
            return F.linear(x_NI, weight.to(x_NI.dtype), None if bias is None else bias.to(x_NI.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor):
        (grad_NO,), (weight, x_NI), layer = grads, ctx.saved_tensors, ctx.layer
        layer.enter_backward(ctx.ghost_pass)
        grad_x, needs_grad_x = None, ctx.needs_input_grad[0]
        with torch.autocast(grad_NO.device.type, enabled=False):
            weight = weight.to(grad_NO.dtype)
            if layer.weight is not None:
                direction = layer.weight.direction(grad_NO)
                if layer.narrow_input and needs_grad_x:
                    grad_x, z_NI = (grad_NO @ torch.cat([weight, direction], dim=1)).chunk(2, dim=1)
                else:
                    z_NI = grad_NO @ direction
                ctx.ghost_pass.add_scores(row_dot(z_NI, x_NI))
            layer.score_bias(ctx.ghost_pass, grad_NO)
            layer.accumulate(ctx.ghost_pass, grad_NO, x_NI)
            if grad_x is None and needs_grad_x:
                grad_x = grad_NO @ weight
        return grad_x, None, None, None, None, None
