"""Golden redaction's part of the pages: its trace, golden solutions, texts, and warnings."""

from recipe.golden_redaction.pages import golden, trace
from recipe.golden_redaction.pages.samples import read_samples
from recipe.golden_redaction.pages.warning_rules import RULES
from recipe.golden_redaction.run_files import ENTRIES
from verl_ext.report.recipe_pages import OwnPage, RecipePages

PAGES = RecipePages(
    commands=(golden, trace),
    own_pages=(OwnPage("Its states, token by token", "trace.html", "trace RUN_DIR --tasks ARC_FILE", needs=ENTRIES),),
    samples=read_samples,
    rules=RULES,
    headlines=("golden/state_reward/mean", "golden/k/mean", "golden/movement/engine/intended_way"),
)
