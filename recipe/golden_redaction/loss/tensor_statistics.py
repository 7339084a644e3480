"""The change of each weight tensor in one update. Torch; a sharded tensor's own operations do the communication.

In low precision an update can be lost: a weight of 1 in bfloat16 does not see a change below 1/256. So for every
trainable tensor

    grad_norm          norm of its gradient, after clipping
    update_to_weight   norm of its change / norm of its values before
    changed_share      share of its values that changed in the serving dtype
"""

from collections.abc import Iterable, Mapping

import torch

NAMES = ("grad_norm", "update_to_weight", "changed_share")


class UpdateStatistics:
    """Copies the weights; `after_update` compares with them. Until then this takes the memory of the trainable weights.

    Args:
        parameters: Names and tensors (plain or DTensor); those without a gradient are left out.
        serving_dtype: The rollout engine's dtype.
    """

    def __init__(self, parameters: Iterable[tuple[str, torch.nn.Parameter]], serving_dtype: torch.dtype) -> None:
        self._parameters = {name: parameter for name, parameter in parameters if parameter.grad is not None}
        self._before = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._dtype = serving_dtype

    def after_update(self) -> dict[str, dict[str, float]]:
        """The statistics by tensor; call it before the gradients are cleared, on all ranks."""
        statistics = {}
        for name, parameter in self._parameters.items():
            before, after = self._before[name], parameter.detach()
            weight = _norm(before)
            change = _norm(after.float() - before.float())
            changed = (after.to(self._dtype) != before.to(self._dtype)).float().mean()
            values = (_norm(parameter.grad), change / weight if weight else 0.0, _number(changed))
            statistics[name] = dict(zip(NAMES, values, strict=True))
        return statistics


class StepStart:
    """Copies the trainable weights before an optimizer step, to shorten the step afterwards.

    Until then this takes their memory. The optimizer's state stays as after the whole step.

    Args:
        parameters: Plain tensors or DTensors; those without a gradient are left out.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._before = [(p, p.detach().clone()) for p in parameters if p.grad is not None]

    @torch.no_grad()
    def shorten(self, factor: float) -> None:
        """Scale the change from there to the current weights; 0 undoes it."""
        for parameter, before in self._before:
            parameter.copy_(before + factor * (parameter - before) if factor else before)


def statistics_metrics(statistics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Over the tensors of one update: `golden/tensors/{statistic}/mean|min|max`; nothing without tensors."""
    metrics = {}
    for name in NAMES if statistics else ():
        values = [tensor[name] for tensor in statistics.values()]
        for kind, value in (("mean", sum(values) / len(values)), ("min", min(values)), ("max", max(values))):
            metrics[f"golden/tensors/{name}/{kind}"] = value
    return metrics


def _norm(tensor: torch.Tensor | None) -> float:
    assert tensor is not None
    return _number(torch.linalg.vector_norm(tensor.float()))


def _number(tensor: torch.Tensor) -> float:
    whole = getattr(tensor, "full_tensor", None)
    return float(whole() if whole is not None else tensor)
