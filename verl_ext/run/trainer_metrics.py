"""Figures computed from verl's metrics. Pure."""

from collections.abc import Mapping
from typing import Any


def validation_accuracy(metrics: Mapping[str, Any]) -> float | None:
    """Mean accuracy over the validation sets, from verl's `val-core/{set}/{acc|reward}/mean@n`; None without any."""
    values = [float(value) for name, value in metrics.items() if is_accuracy(name)]
    return sum(values) / len(values) if values else None


def is_accuracy(name: str) -> bool:
    """Whether a metric is the mean accuracy over a validation set."""
    return name.startswith("val-core/") and "/mean@" in name
