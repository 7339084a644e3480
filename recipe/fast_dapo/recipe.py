"""What Fast DAPO is to the code that recipes share."""

from collections.abc import Iterator

from omegaconf import DictConfig

from recipe.fast_dapo.metric_glossary import METRICS
from recipe.fast_dapo.run_files import FILES
from verl_ext.launch.dry_run import step_rows
from verl_ext.launch.recipe import Recipe


def check_settings(config: DictConfig) -> None:
    """Give verl the size of a group; refuse what is wrong with the curriculum.

    Raises:
        ConfigError: names every problem, with what to change.
    """
    # Not above: what pages and docs read of a recipe would load SciPy.
    from recipe.fast_dapo.settings import read_settings, resolve_group_size

    resolve_group_size(config)
    read_settings(config)


def dry_run_rows(config: DictConfig) -> Iterator[tuple[str, str]]:
    """A round of screening, then the step."""
    curriculum, data = config.curriculum, config.data
    if curriculum.enable:
        screened = data.gen_batch_size or data.train_batch_size
        yield "a round", f"{screened:,} prompts x {curriculum.n} = {screened * curriculum.n:,} screening rollouts"
    yield from step_rows(config)


RECIPE = Recipe(
    name="fast_dapo",
    title="Fast DAPO",
    node="curriculum",
    check_settings=check_settings,
    dry_run_rows=dry_run_rows,
    figures={"qualified": ("curriculum/qualified_share", ".0%")},
    glossary=METRICS,
    files=FILES,
    pages="recipe.fast_dapo.pages",
)
