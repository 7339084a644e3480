"""What every recipe's command does: check, train to the end or from the newest checkpoint, print the summary."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_ext import dry_run, launch
from verl_ext.checkpoints import prepare_resume
from verl_ext.compat import check_versions
from verl_ext.data_checks import check_data
from verl_ext.raw_prompt import apply_prompt_format
from verl_ext.run_folder import RunFolder
from verl_ext.summary import print_summary

PATHS = ("run_dir", "data.train_files", "data.val_files", "tracin.validation_files", "actor_rollout_ref.model.path")


def train(
    config: DictConfig, check_settings: Callable[[DictConfig], Any], title: str, check_lengths: bool = True
) -> None:
    """Check the configuration and the data, train to the end, print the summary; with `dry_run`, only check.

    Args:
        config: Composed by Hydra; changed.
        check_settings: Checks the recipe's own settings, and may resolve them into verl's.
        title: Above the summary.
        check_lengths: See `check_data`.

    Raises:
        SignalError: what is wrong, before Ray starts where it can be known by then.
    """
    launch.adopt_environment(config)
    versions = check_versions()
    check_settings(config)
    launch.resolve_paths(config, *PATHS)
    apply_prompt_format(config)
    check_data(config, check_lengths)

    folder = RunFolder(Path(config.run_dir))
    finished = folder.read_summary()
    is_complete = finished is not None and finished["total_training_steps"] == config.trainer.total_training_steps
    if is_complete and not config.dry_run:
        print(f"This run is complete: raise trainer.total_training_steps to go on, or remove {folder.path}.")
        print_summary(folder, title)
        return

    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    if config.dry_run:
        print(f"\n{title}\n{dry_run.report(config, versions)}")
        return
    with folder.locked():
        for warning in prepare_resume(config.trainer, config.trainer.nnodes * config.trainer.n_gpus_per_node):
            print(f"warning: {warning}", file=sys.stderr)
        folder.write_versions(versions)
        launch.run(config, run_ppo)
    print_summary(folder, title)
