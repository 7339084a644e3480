"""Fast DAPO: two-phase curriculum sampling on verl's v1 trainer.

python -m recipe.fast_dapo.main data.train_files=… data.val_files=… actor_rollout_ref.model.path=…
python -m recipe.fast_dapo.main +backend=cpu +experiment=arithmetic_demo
"""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from recipe.fast_dapo.checks import check_data
from recipe.fast_dapo.settings import read_settings, resolve_group_size
from recipe.fast_dapo.summary import print_summary
from verl_ext import launch
from verl_ext.compat import check_versions
from verl_ext.raw_prompt import apply_prompt_format
from verl_ext.run_folder import RunFolder


def run(config: DictConfig) -> None:
    """Check the configuration and the data, train to the end, print the summary.

    Raises:
        SignalError: what is wrong, before Ray starts where it can be known by then.
    """
    launch.adopt_environment(config)
    check_versions()
    resolve_group_size(config)
    read_settings(config)
    launch.resolve_paths(config, "run_dir", "data.train_files", "data.val_files", "actor_rollout_ref.model.path")
    apply_prompt_format(config)
    check_data(config)

    folder = RunFolder(Path(config.run_dir))
    finished = folder.read_summary()
    if finished is not None and finished["total_training_steps"] == config.trainer.total_training_steps:
        print(f"This run is complete: raise trainer.total_training_steps to go on, or remove {folder.path}.")
        print_summary(folder)
        return

    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    launch.run(config, run_ppo)
    print_summary(folder)


@hydra.main(config_path="../../configs", config_name="fast_dapo", version_base=None)
def main(config: DictConfig) -> None:
    """Entry point of the command line."""
    with launch.people_errors():
        run(config)


if __name__ == "__main__":
    main()
