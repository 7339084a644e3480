"""What TracIn is to the code that recipes share."""

from recipe.tracin.checks import check_config
from recipe.tracin.metric_glossary import METRICS
from recipe.tracin.run_files import FILES
from verl_ext.launch.recipe import Recipe

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
    pages="recipe.tracin.pages",
)
