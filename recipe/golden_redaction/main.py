"""Golden redaction: reinforcement learning on single tokens of partly hidden ARC solutions.

python -m recipe.golden_redaction.main data.train_files=… actor_rollout_ref.model.path=…
python -m recipe.golden_redaction.main --config-name golden_redaction_cpu        # the demo, on a CPU
"""

import hydra
from omegaconf import DictConfig

from recipe.golden_redaction.recipe import RECIPE
from verl_ext.launch.train import start


@hydra.main(config_path="../../configs", config_name="golden_redaction", version_base=None)
def main(config: DictConfig) -> None:
    """Entry point of the command line."""
    start(config, RECIPE)


if __name__ == "__main__":
    main()
