"""TracIn's part of the pages: the view of influence scores, and its warnings."""

from recipe.tracin.pages.influence_data import influence_data
from recipe.tracin.pages.warning_rules import RULES
from recipe.tracin.run_files import INFLUENCE
from verl_ext.report.blocks import pack
from verl_ext.report.page import own_scripts
from verl_ext.report.recipe_pages import RecipePages, View
from verl_ext.report.run_records import RunRecords, read_objects


def influence_blocks(run: RunRecords) -> dict[str, str]:
    """The `influence` block; empty for a run without scores."""
    scores = influence_data(read_objects(run.path / INFLUENCE)[0])
    return {} if scores is None else {"influence": pack(scores)}


PAGES = RecipePages(
    views=(
        View(
            "influence",
            own_scripts(__name__, "run_influence.js"),
            files=(INFLUENCE,),
            blocks=influence_blocks,
        ),
    ),
    rules=RULES,
    headlines=("tracin/selection_ratio", "tracin/score/q95"),
)
