"""A preconditioner with the structure of LoRA's factors, to compare with AdamW's diagonal. Pure torch.

AdamW scales each number of lora_A (r, in) and lora_B (out, r) by itself, so its direction depends on the basis of the
r inner dimensions, which is arbitrary: B R and R^T A are the same weights for every rotation R. This one does not:

    G_A <- M_A^(-1/2) G_A        M_A: (r, r), the running mean of g g^T / in
    G_B <- G_B M_B^(-1/2)        M_B: (r, r), the running mean of g^T g / out

of the gradients g of the updates, with AdamW's decay and bias correction. It is Shampoo (Gupta et al. 2018,
arXiv:1802.09568) with the small side only. AdamW, which makes the steps, does not move in this direction.
"""

from collections.abc import Mapping

import torch

DECAY, SMALL = 0.999, 1e-8


class LoraPreconditioner:
    """Running (r, r) moments of each factor's gradient."""

    def __init__(self) -> None:
        self._moments: dict[str, torch.Tensor] = {}
        self._steps = 0

    def observe(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Take the gradients of one update, by parameter name."""
        self._steps += 1
        for name, gradient in gradients.items():
            thin = _thin(gradient).double()
            moment = thin @ thin.T / thin.shape[1]
            self._moments[name] = DECAY * self._moments.get(name, torch.zeros_like(moment)) + (1 - DECAY) * moment

    def apply(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Change G in place; nothing before the first update."""
        if not self._steps:
            return
        for name, gradient in gradients.items():
            values, vectors = torch.linalg.eigh(self._moments[name] / (1 - DECAY**self._steps))
            roots = values.clamp_min(0).sqrt()
            inverse = torch.where(roots > SMALL, 1 / (roots + SMALL), torch.zeros_like(roots))
            scaled = vectors @ (inverse[:, None] * (vectors.T @ _thin(gradient).double()))
            _thin(gradient).copy_(scaled.to(gradient.dtype))


def _thin(matrix: torch.Tensor) -> torch.Tensor:
    """A view with the shorter side, LoRA's rank, first."""
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
