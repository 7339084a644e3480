"""Figures read out of verl's metrics. Pure."""

from collections.abc import Mapping
from typing import Any


def validation_accuracy(metrics: Mapping[str, Any]) -> float | None:
    """Mean accuracy over the validation sets, from verl's `val-core/{set}/{acc|reward}/mean@n`; None without any."""
    values = [float(value) for name, value in metrics.items() if name.startswith("val-core/") and "/mean@" in name]
    return sum(values) / len(values) if values else None
