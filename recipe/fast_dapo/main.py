"""Fast DAPO: two-phase curriculum sampling on verl's v1 trainer.

python -m recipe.fast_dapo.main data.train_files=… data.val_files=… actor_rollout_ref.model.path=…
python -m recipe.fast_dapo.main +backend=cpu +experiment=arithmetic_demo
"""

import hydra
from omegaconf import DictConfig

from recipe.fast_dapo.settings import read_settings, resolve_group_size
from recipe.tracin.checks import check_config
from verl_ext import launch
from verl_ext.train import train


def check_settings(config: DictConfig) -> None:
    """Give verl the size of a group; refuse what is wrong with the curriculum or with TracIn.

    Raises:
        ConfigError: names every problem, with what to change.
    """
    resolve_group_size(config)
    read_settings(config)
    check_config(config)


@hydra.main(config_path="../../configs", config_name="fast_dapo", version_base=None)
def main(config: DictConfig) -> None:
    """Entry point of the command line."""
    with launch.people_errors():
        train(config, check_settings, "Fast DAPO")


if __name__ == "__main__":
    main()
