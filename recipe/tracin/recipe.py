"""What TracIn is to the code that recipes share."""

from typing import Any

from omegaconf import DictConfig

from recipe.tracin.checks import check_config
from recipe.tracin.metric_glossary import METRICS
from recipe.tracin.run_files import FILES
from verl_ext.launch.compatibility import MANAGER, OWN_MANAGER, Unsupported, is_no_manager_of_ours
from verl_ext.launch.recipe import Recipe


def _asks_in_vain(value: Any, config: DictConfig) -> bool:
    tracin = config.tracin
    return bool(tracin.enable) and tracin.validation.strategy != "in_batch" and is_no_manager_of_ours(value, config)


UNSUPPORTED = (
    Unsupported(
        MANAGER,
        _asks_in_vain,
        f"validation rollouts come with reports. Extend {OWN_MANAGER}, or set tracin.validation.strategy=in_batch",
    ),
)


RECIPE = Recipe(
    name="tracin",
    title="TracIn",
    node="tracin",
    check_settings=check_config,
    paths=("tracin.validation_files",),
    phases={
        "generation": ("tracin_rollouts",),
        "influence": ("tracin_validation", "tracin_scoring"),
    },
    glossary=METRICS,
    files=FILES,
    unsupported=UNSUPPORTED,
    pages="recipe.tracin.pages",
)
