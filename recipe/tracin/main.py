"""TracIn: GRPO or PPO on the samples whose gradient agrees with a validation set's.

python -m recipe.tracin.main data.train_files=… data.val_files=… tracin.validation_files=… \\
    actor_rollout_ref.model.path=… actor_rollout_ref.model.lora_rank=16
python -m recipe.tracin.main +backend=cpu +experiment=tracin_arithmetic
python -m recipe.tracin.main … algorithm.adv_estimator=gae critic.model.path=…           # PPO
"""

import hydra
from omegaconf import DictConfig

from recipe.tracin.recipe import RECIPE
from verl_ext.launch.train import start


@hydra.main(config_path="../../configs", config_name="tracin", version_base=None)
def main(config: DictConfig) -> None:
    """Entry point of the command line."""
    start(config, RECIPE)


if __name__ == "__main__":
    main()
