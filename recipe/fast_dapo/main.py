"""Fast DAPO: two-phase curriculum sampling on verl's v1 trainer.

python -m recipe.fast_dapo.main data.train_files=… data.val_files=… actor_rollout_ref.model.path=…
python -m recipe.fast_dapo.main +backend=cpu +experiment=arithmetic_demo
"""

import hydra
from omegaconf import DictConfig

from recipe.fast_dapo.recipe import RECIPE
from verl_ext.launch.train import start


@hydra.main(config_path="../../configs", config_name="fast_dapo", version_base=None)
def main(config: DictConfig) -> None:
    """Entry point of the command line."""
    start(config, RECIPE)


if __name__ == "__main__":
    main()
