"""Fast DAPO's part of the pages: the curriculum's view, where its rollouts went, and its warnings."""

from recipe.fast_dapo.pages.curriculum_view import conservation_of_run, curriculum_blocks
from recipe.fast_dapo.pages.warning_rules import RULES
from recipe.fast_dapo.run_files import PROMPT_TEXTS, PROMPTS
from verl_ext.report.page import own_scripts
from verl_ext.report.recipe_pages import RecipePages, View

PAGES = RecipePages(
    views=(
        View(
            "curriculum",
            own_scripts(__name__, "run_curriculum_charts.js", "run_curriculum.js"),
            files=(PROMPTS, PROMPT_TEXTS, "metrics.jsonl", "summary.json", "validation_before.json"),
            blocks=curriculum_blocks,
            overview=conservation_of_run,
        ),
    ),
    rules=RULES,
    headlines=("curriculum/qualified_share", "curriculum/total/generated_to_trained"),
)
