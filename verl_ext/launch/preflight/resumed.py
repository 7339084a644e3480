"""Compares a resumed run's settings with the old ones: some come from the checkpoint, so a new value would be
ignored."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.launch.model_backend import layout_keys

FILE = "settings.json"

# Settings stored in a checkpoint: weights, the trained part, the optimizer with its schedule, the position in the data.
_MODEL = ("path", "lora_rank", "lora_alpha", "target_modules", "lora_adapter_path")
_OF_THE_DATA = ("data.seed", "data.shuffle")

# Settings of a run's length, its records and the machine: these may change without a warning.
_FREE = (
    "_",
    "dry_run",
    "hydra",
    "ray_kwargs",
    "run_dir",
    "strategies",
    "trainer.default_local_dir",
    "trainer.logger",
    "trainer.max_",
    "trainer.resume_",
    "trainer.save_freq",
    "trainer.test_freq",
    "trainer.total_",
    "trainer.val_",
    "transfer_queue",
    "watchdog",
)


def flat_settings(config: DictConfig) -> dict[str, Any]:
    """Settings by their dotted names, a list being one value; without `_FREE`, whose environment may contain
    secrets."""
    settings = _flat(OmegaConf.to_container(config, resolve=True), "")
    return {name: value for name, value in settings if not name.startswith(_FREE)}


def _flat(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{where}.{name}".removeprefix("."))
    else:
        yield where, value


def write_settings(folder: Path, config: DictConfig) -> None:
    """Save the settings under which the run's checkpoints are written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(flat_settings(config), indent=1, default=str) + "\n", encoding="utf-8")


def changes(folder: Path, config: DictConfig) -> tuple[list[str], list[str]]:
    """How a resumed run's settings differ from before.

    Args:
        folder: Folder of the run.
        config: Configuration of the command that resumes it.

    Returns:
        Problems: settings that the checkpoint decides. Warnings: other settings that apply from here on.
    """
    problems, warnings = [], []
    for name, difference in _changed(folder, config).items():
        if _is_in_the_checkpoint(name, config):
            problems.append(
                f"{difference}, but the run resumes from its checkpoint, which stores the former: set it back, or "
                f"start a new run with another run_dir{_way_out(name)}"
            )
        else:
            warnings.append(f"{difference} from here on")
    return problems, warnings


def differences(folder: Path, config: DictConfig) -> list[str]:
    """The old value of each changed setting."""
    return list(_changed(folder, config).values())


def _changed(folder: Path, config: DictConfig) -> dict[str, str]:
    """Old and new value by the name of a setting."""
    try:
        before = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a run from before this file existed, or no run
        return {}
    now = json.loads(json.dumps(flat_settings(config), default=str))
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return {name: f"{name} was {_shown(before, name)} and is {_shown(now, name)}" for name in changed}


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return "not set" if name not in settings else json.dumps(settings[name])


def _is_in_the_checkpoint(name: str, config: DictConfig) -> bool:
    for node, model in (("actor_rollout_ref.actor", "actor_rollout_ref.model"), ("critic", "critic.model")):
        if name in [f"{model}.{option}" for option in _MODEL]:
            return True
        contents = OmegaConf.select(config, f"{node}.checkpoint.load_contents") or ()
        if name.startswith(f"{node}.optim.") and "optimizer" in contents:
            return True
    return name in _OF_THE_DATA or name in layout_keys(config)


def _way_out(name: str) -> str:
    if ".optim." not in name:
        return ""
    node = name.partition(".optim.")[0]
    return f" or without the optimizer's state ({node}.checkpoint.load_contents=[model,extra])"
