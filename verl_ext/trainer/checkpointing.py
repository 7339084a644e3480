"""Atomic checkpoints: verl's own files, the data plane, and the state of the control plane."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ray
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1 import PPOTrainer

from verl_ext.cluster import nodes
from verl_ext.cluster.worker_death import find_death
from verl_ext.core.errors import CheckpointError
from verl_ext.run.checkpoints import RETENTION_KEYS, CheckpointFolder, num_to_keep
from verl_ext.run.manifest import Entry, changed_file, describe_files, in_shares
from verl_ext.serving import data_plane

STATE_FILE = "signal.json"
QUEUE_FOLDER = "transfer_queue"

T = TypeVar("T")


def save(trainer: PPOTrainer, state: dict[str, Any], save_verls: Callable[[], None], go_on: Callable[[], None]) -> None:
    """Write everything under a temporary name, then rename once and update verl's tracker.

    Args:
        trainer: Trainer whose step is saved.
        state: State of the control plane.
        save_verls: verl's own `_save_checkpoint`.
        go_on: Called when everything that generation changes is saved, before the files are read again for their
            checksums.

    Raises:
        CheckpointError: it could not be written; the previous one is untouched.
    """
    settings = trainer.config.trainer
    checkpoints = CheckpointFolder(Path(settings.default_local_dir))
    checkpoints.clear_unfinished()
    folder = checkpoints.saving / f"global_step_{trainer.global_steps}"
    callback, text = trainer.checkpoint_callback, json.dumps(state)
    try:
        folder.mkdir(parents=True)
        if trainer.trainer_mode == "sync":  # verl's other trainers save it themselves, under the same name
            data_plane.save(folder / QUEUE_FOLDER)
        (folder / STATE_FILE).write_text(text, encoding="utf-8")
        # verl's retention identifies folders by their original name, and removes only the weights.
        own = {"default_local_dir": str(checkpoints.saving)} | dict.fromkeys(RETENTION_KEYS)
        trainer.checkpoint_callback = CheckpointCallback()
        with _changed(settings, own):
            save_verls()
        go_on()
        published = checkpoints.publish(trainer.global_steps, num_to_keep(settings), describe_by_nodes)
    # torch reports a full disk as RuntimeError, and Ray wraps any worker error in its own class.
    except (OSError, RuntimeError, ray.exceptions.RayTaskError) as error:
        if find_death(error) is not None:  # not a disk error: the runner names the worker
            raise
        raise checkpoints.explain_failed_save(trainer.global_steps, error) from error
    finally:
        trainer.checkpoint_callback = callback
    callback.on_save(trainer=trainer, global_step=trainer.global_steps, checkpoint_dir=str(published), async_save=False)


def load(trainer: PPOTrainer) -> dict[str, Any] | None:
    """Restore the data plane of the checkpoint that verl has just loaded.

    Returns:
        The state of the control plane; None if the run starts from scratch or the checkpoint has none.

    Raises:
        CheckpointError: an older version of this plugin wrote it.
    """
    if trainer.global_steps == 0 and trainer.config.trainer.resume_mode == "disable":
        return None
    folder = _resumed_folder(trainer)
    if folder is None or not (folder / STATE_FILE).exists():
        return None
    if (folder / QUEUE_FOLDER).exists() and trainer.trainer_mode == "sync":
        data_plane.load(folder / QUEUE_FOLDER)
    state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    if "parts" not in state:
        raise CheckpointError(
            f"expected the state of the trainer's parts in {folder / STATE_FILE}, got {', '.join(sorted(state))}: an "
            "older version of this plugin wrote it. Resume with that version, or start a new run in another run_dir"
        )
    return state


def describe_by_nodes(folder: Path, names: Sequence[str]) -> dict[str, Entry]:
    """`describe_files` by all nodes, each a share of the files."""
    return {name: entry for share in by_nodes(describe_files, folder, names) for name, entry in share.items()}


def changed_by_nodes(folder: Path, names: Sequence[str]) -> str | None:
    """`changed_file` by all nodes, each a share of the files."""
    return next(filter(None, by_nodes(changed_file, folder, names)), None)


def by_nodes(read: Callable[[Path, Sequence[str]], T], folder: Path, names: Sequence[str]) -> list[T]:
    """Results of `read` by all nodes, each on a share of the files.

    A single node needs no task, which would start another process.

    Raises:
        CheckpointError: a node does not see the files.
    """
    shares = in_shares(folder, names, sum(node["Alive"] for node in ray.nodes()))
    if len(shares) == 1:
        return [read(folder, names)]
    try:
        return nodes.spread(read, [(folder, share) for share in shares])
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, FileNotFoundError):
            raise
        raise CheckpointError(
            f"expected every node to see the checkpoint's files, got: {error.cause}. trainer.default_local_dir must be "
            "on a file system that all nodes share."
        ) from None


def _resumed_folder(trainer: PPOTrainer) -> Path | None:
    settings = trainer.config.trainer
    if settings.resume_mode == "resume_path":
        return Path(settings.resume_from_path)
    folder = Path(settings.default_local_dir) / f"global_step_{trainer.global_steps}"
    return folder if folder.exists() else None


@contextlib.contextmanager
def _changed(config: DictConfig, values: dict[str, Any]) -> Iterator[None]:
    before = {name: config.get(name) for name in values}
    with open_dict(config):
        config.update(values)
        try:
            yield
        finally:
            config.update(before)
