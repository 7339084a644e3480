"""Atomic checkpoints: written under a temporary name, renamed, and verified before they are loaded.

    checkpoints/
        latest_checkpointed_iteration.txt     verl's tracker: the step to resume from
        global_step_40/                       a whole checkpoint, with manifest.json
        global_step_50.damaged/               set aside by a resume that fell back to step 40
        .saving/global_step_60/               being written, or left by a run that was killed while writing

The manifest is that of `manifest.py`.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from verl_ext.core.errors import CheckpointError
from verl_ext.run.manifest import Describe, FindChanged, find_damage, sync, write_manifest

# The file that verl's Megatron engine writes last into a model's folder: its ranks, and the places of its contents.
MEGATRON_CONTENTS = "ckpt_contents.json"
TRACKER = "latest_checkpointed_iteration.txt"
RETENTION_KEYS = ("remove_previous_ckpt_in_save", "max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep")
_STEP = re.compile(r"global_step_(\d+)")


@dataclass(frozen=True)
class FoundCheckpoint:
    """The checkpoint to resume from.

    Args:
        folder: The checkpoint.
        skipped: Newer damaged checkpoints, newest first, each with the problem.
    """

    folder: Path
    skipped: tuple[tuple[Path, str], ...] = ()


class CheckpointFolder:
    """Where a run keeps its checkpoints.

    Args:
        path: `trainer.default_local_dir`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def saving(self) -> Path:
        """Where a checkpoint is written; laid out like the folder itself."""
        return self.path / ".saving"

    def at(self, step: int) -> Path:
        return self.path / f"global_step_{step}"

    def steps(self) -> list[int]:
        """Steps of the existing checkpoints, complete or not, ascending."""
        if not self.path.is_dir():
            return []
        matches = (_STEP.fullmatch(entry.name) for entry in self.path.iterdir() if entry.is_dir())
        return sorted(int(match[1]) for match in matches if match)

    def clear_unfinished(self) -> None:
        """Remove the files of an unfinished save."""
        shutil.rmtree(self.saving, ignore_errors=True)

    def publish(self, step: int, keep: int | None = None, describe: Describe | None = None) -> Path:
        """Make the checkpoint in `saving` the run's newest one, atomically.

        Args:
            step: Step of the checkpoint; one of the same step is replaced.
            keep: Number of checkpoints to keep, newest by step and including this one; None: all.
            describe: see `write_manifest`.

        Returns:
            Its folder.
        """
        written, folder = self.saving / f"global_step_{step}", self.at(step)
        write_manifest(written, describe)
        replaced = folder.with_name(f".{folder.name}.replaced")
        shutil.rmtree(replaced, ignore_errors=True)
        if folder.exists():
            folder.rename(replaced)
        written.rename(folder)
        sync(self.path)
        self._track(step)
        shutil.rmtree(replaced, ignore_errors=True)
        self.clear_unfinished()
        if keep:
            others = [other for other in self.steps() if other != step]
            for old in others[: max(0, len(others) - (keep - 1))]:
                shutil.rmtree(self.at(old), ignore_errors=True)
        return folder

    def find(self, find_changed: FindChanged | None = None) -> FoundCheckpoint | None:
        """The newest complete checkpoint that is not beyond the tracker's step; None if there are no checkpoints.

        Args:
            find_changed: See `find_damage`.

        Raises:
            CheckpointError: There are checkpoints, and all of them are damaged.
        """
        for replaced in self.path.glob(".global_step_*.replaced"):  # the process ended between two renames
            if not (folder := replaced.with_name(replaced.name[1:].removesuffix(".replaced"))).exists():
                replaced.rename(folder)
        tracked = self._tracked_step()
        steps = [step for step in self.steps() if tracked is not None and step <= tracked]
        skipped: list[tuple[Path, str]] = []
        for step in reversed(steps):
            problem = find_damage(self.at(step), find_changed)
            if problem is None:
                return FoundCheckpoint(self.at(step), tuple(skipped))
            skipped.append((self.at(step), problem))
        if skipped:
            listed = "".join(f"\n  {folder.name}: {problem}" for folder, problem in skipped)
            raise CheckpointError(
                f"expected a whole checkpoint in {self.path}, got none:{listed}\nRestore one, or start a new run with "
                "another run_dir (trainer.resume_mode=disable would write over this one)."
            )
        return None

    def fall_back(self, found: FoundCheckpoint) -> list[str]:
        """Rename damaged checkpoints and make verl's tracker name the complete one; returns a warning for each."""
        warnings = []
        for damaged, problem in found.skipped:
            aside = damaged.with_name(f"{damaged.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            damaged.rename(aside)
            warnings.append(f"{damaged.name} is damaged ({problem}), renamed to {aside.name}")
        self._track(_step_of(found.folder))
        return warnings

    def explain_failed_save(self, step: int, error: Exception) -> CheckpointError:
        """The error to show; also frees the space of the unfinished checkpoint."""
        there = next(folder for folder in (self.path, *self.path.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        self.clear_unfinished()
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        return CheckpointError(
            f"the checkpoint of step {step} could not be written to {self.path} ({free / 2**30:,.2f} GiB free): "
            f"{lines[-1].strip()}\nEarlier checkpoints are untouched. Make room, or name another folder with "
            "trainer.default_local_dir; the same command resumes from the newest checkpoint."
        )

    def _tracked_step(self) -> int | None:
        tracker = self.path / TRACKER
        if not tracker.exists():
            return None
        text = tracker.read_text(encoding="utf-8", errors="replace").strip()
        # An empty or torn tracker: any complete checkpoint may be resumed from.
        return int(text) if text.isdecimal() else max(self.steps(), default=None)

    def _track(self, step: int) -> None:
        temporary = self.path / f"{TRACKER}.tmp"
        temporary.write_text(str(step), encoding="utf-8")
        sync(temporary)
        os.replace(temporary, self.path / TRACKER)
        sync(self.path)


def prepare_resume(trainer: DictConfig, num_ranks: int, find_changed: FindChanged | None = None) -> list[str]:
    """Check, before anything is started, that the checkpoint to resume from is complete and matches.

    Args:
        trainer: The configuration's `trainer`.
        num_ranks: Ranks of the actor.
        find_changed: See `find_damage`.

    Returns:
        Warnings: damaged checkpoints that were skipped, and where the run resumes instead.

    Raises:
        CheckpointError: No checkpoint is complete, the named one is not, or it has another number of ranks.
    """
    warnings: list[str] = []
    if trainer.resume_mode == "disable":
        return warnings
    if trainer.resume_mode == "resume_path":
        folder = Path(trainer.resume_from_path)
        problem = find_damage(folder, find_changed) if folder.is_dir() else "no such folder"
        if problem is not None:
            raise CheckpointError(f"cannot resume from {folder}: {problem}. Name another in trainer.resume_from_path.")
    else:
        checkpoints = CheckpointFolder(Path(trainer.default_local_dir))
        checkpoints.clear_unfinished()
        found = checkpoints.find(find_changed)
        if found is None:
            return warnings
        folder = found.folder
        if found.skipped:
            warnings = [*checkpoints.fall_back(found), f"resuming from {folder.name}"]
    _check_num_ranks(folder, num_ranks)
    return warnings


def num_to_keep(trainer: DictConfig) -> int | None:
    """verl's limits on old checkpoints as a number of complete checkpoints; None: all are kept."""
    if trainer.get("remove_previous_ckpt_in_save"):
        return 1
    limits = [trainer.get(key) for key in ("max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep")]
    return max((limit for limit in limits if limit), default=None)


def _check_num_ranks(folder: Path, num_ranks: int) -> None:
    shards = list((folder / "actor").glob("model_world_size_*_rank_*.pt"))
    sizes = {int(shard.name.split("_")[3]) for shard in shards}
    if (contents := folder / "actor" / MEGATRON_CONTENTS).is_file():
        sizes = {json.loads(contents.read_text(encoding="utf-8"))["world_size"]}
    if sizes and sizes != {num_ranks}:
        raise CheckpointError(
            f"expected {folder} to have the weights of {num_ranks} actor ranks (trainer.nnodes x n_gpus_per_node), got "
            f"{sorted(sizes)}: resume on the same number, or start a new run from its weights, FSDP's merged with "
            "verl.model_merger."
        )
    if shards and len(shards) < num_ranks:
        raise CheckpointError(
            f"expected {num_ranks} shards of the actor's weights in {folder}, got {len(shards)}: "
            "trainer.default_local_dir must be on a file system that all nodes share."
        )


def _step_of(folder: Path) -> int:
    match = _STEP.fullmatch(folder.name)
    assert match is not None
    return int(match[1])
