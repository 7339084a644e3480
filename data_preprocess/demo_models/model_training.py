"""Shared code of the scripts that train a small model: the training loop, and a cached model folder."""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from transformers.utils import logging

SETTINGS_FILE = "settings.json"


class Saveable(Protocol):
    """A model or a tokenizer of transformers."""

    def save_pretrained(self, save_directory: Path) -> Any:
        """Write its files into a folder."""
        ...


@dataclass(frozen=True)
class Optimization:
    """AdamW with gradients clipped to norm 1.

    Attributes:
        steps: Optimizer steps.
        learning_rate: Peak; 5 % linear warm-up, then a cosine to a tenth.
        beta2: Second-moment decay; beta1 is .9.
        weight_decay: Weight decay of all parameters.
    """

    steps: int
    learning_rate: float
    beta2: float
    weight_decay: float


def fit(
    model: torch.nn.Module,
    loss_of_next_batch: Callable[[], torch.Tensor],
    optimization: Optimization,
    *,
    name: str,
    report_every: int = 100,
) -> None:
    """Train a model in place.

    Args:
        model: In training mode.
        loss_of_next_batch: Draws a batch and returns its loss, a scalar.
        optimization: Optimizer settings.
        name: Name of the model in the lines of progress.
        report_every: Steps between two lines of progress; 0: no progress.
    """
    steps = optimization.steps
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=optimization.learning_rate,
        betas=(0.9, optimization.beta2),
        weight_decay=optimization.weight_decay,
    )
    warmup = max(1, steps // 20)

    def rate(step: int) -> float:
        cosine = 0.5 * (1 + np.cos(np.pi * step / steps))
        return min((step + 1) / warmup, 0.1 + 0.9 * cosine)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    start = time.monotonic()
    for step in range(1, steps + 1):
        loss = loss_of_next_batch()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if report_every and (step % report_every == 0 or step == steps):
            seconds = time.monotonic() - start
            print(f"{name}: step {step}/{steps}  loss {loss.item():.3f}  {seconds:.0f} s", flush=True)


def settings_hash(settings: Mapping[str, Any]) -> str:
    """A hash of the settings, equal for equal settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def is_cached(settings: Mapping[str, Any], folder: Path) -> bool:
    """Whether `folder` has a model of exactly these settings."""
    try:
        return json.loads((folder / SETTINGS_FILE).read_text())["hash"] == settings_hash(settings)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _changed(settings: Mapping[str, Any], folder: Path) -> list[str]:
    """Names of the settings in which the model of a folder differs; empty if it has no model."""
    try:
        old = json.loads((folder / SETTINGS_FILE).read_text())["settings"]
        return [name for name in {**old, **settings} if old.get(name) != json.loads(json.dumps(settings.get(name)))]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def train_cached(
    settings: Mapping[str, Any], folder: Path, train: Callable[[], Sequence[Saveable]], *, force: bool = False
) -> Path:
    """Train into `folder` unless it already has a model of these settings.

    The folder never has an incomplete model: the new one is saved next to it and then renamed.

    Args:
        settings: All settings that determine the weights, as JSON values.
        folder: Folder of the model; created if missing.
        train: Returns the objects to save in the folder.
        force: Always train.

    Raises:
        FileExistsError: If `folder` contains something that this function did not write.
    """
    folder = folder.resolve()
    if is_cached(settings, folder) and not force:
        return folder
    if folder.exists() and not (folder / SETTINGS_FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} exists and is not a model of this program (it has no {SETTINGS_FILE}); expected a new or empty "
            "folder. Give another --local_save_dir."
        )
    if changed := _changed(settings, folder):
        print(f"{folder} has a model of other settings ({', '.join(changed)}): it is replaced", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _no_progress_bars():
        parts = train()
        _replace(folder, parts, settings)
    return folder


@contextlib.contextmanager
def _no_progress_bars() -> Generator[None]:
    """Hide transformers' bars for reading and writing weights: of a small model they are only noise."""
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()


def _replace(folder: Path, parts: Sequence[Saveable], settings: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        for part in parts:
            part.save_pretrained(new)
        record = {"hash": settings_hash(settings), "settings": settings}
        (new / SETTINGS_FILE).write_text(json.dumps(record, indent=2) + "\n")
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except OSError:
            if old.exists():
                os.rename(old, folder)
            raise
