"""What every metric of ours means: the one place that says so, for the docs, the tests and the recipes.

A glossary maps a name to (unit, meaning). A part of a name in braces stands for any text without a slash, so
`golden/sandbox/{status}` is `golden/sandbox/ok` and the others. Each recipe has its own in `metric_glossary.py`, beside
the code that logs it; `glossaries` has them all, and `undocumented` says what a step logged that is in none.
"""

import functools
import importlib
import re
from collections.abc import Iterable, Mapping

Glossary = Mapping[str, tuple[str, str]]

# Names that begin like this are ours; all others come from verl.
PREFIXES = ("curriculum/", "predictor/", "golden/", "tracin/", "engine_guard/", "training/total/", "timing_s/")

METRICS: Glossary = {
    "engine_guard/fresh_rollouts": ("rollouts", "trained rollouts that the current weights generated"),
    "engine_guard/probs_diff_mean": ("probability", "mean of |p_rollout - p_actor| over the tokens of fresh_rollouts"),
    "engine_guard/probs_diff_max": ("probability", "largest |p_rollout - p_actor| over the same tokens"),
    "engine_guard/pearson_corr": ("correlation", "of both probabilities over the same tokens"),
    "training/total/seconds": ("s", "training steps since the start of the run, validation excluded"),
    "training/total/rollouts_generated": ("rollouts", "generated since the start of the run"),
    "training/total/rollouts_trained": ("rollouts", "trained on since the start of the run"),
    "training/total/tokens_generated": ("tokens", "response tokens of rollouts_generated"),
    "training/total/tokens_trained": ("tokens", "response tokens of rollouts_trained"),
    "timing_s/step": ("s", "the whole step"),
    "timing_s/collect": ("s", "everything while the engines are awake: gen, and what else a recipe generates"),
    "timing_s/gen": ("s", "waiting for rollouts"),
    "timing_s/reward": ("s", "rewards, where the reward model shares the actor's devices"),
    "timing_s/old_log_prob": ("s", "log-probs under the actor before its update"),
    "timing_s/engine_guard": ("s", "comparing the engine's probabilities with the actor's"),
    "timing_s/ref": ("s", "log-probs under the reference policy"),
    "timing_s/values": ("s", "the critic's values"),
    "timing_s/adv": ("s", "advantages"),
    "timing_s/update_critic": ("s", "the critic's update"),
    "timing_s/select": ("s", "choosing the samples that the update sees"),
    "timing_s/update_actor": ("s", "the policy's update"),
    "timing_s/after_update": ("s", "what a recipe looks at after the update"),
    "timing_s/update_weights": ("s", "sending the new weights to the engines"),
    "timing_s/save_checkpoint": ("s", "writing the checkpoint"),
    "timing_s/testing": ("s", "validation"),
}

RECIPES = ("fast_dapo", "golden_redaction", "tracin")


@functools.cache
def glossaries() -> dict[str, Glossary]:
    """The glossary of every recipe by its name, and under "all recipes" what they share."""
    modules = {recipe: importlib.import_module(f"recipe.{recipe}.metric_glossary") for recipe in RECIPES}
    return {"all recipes": METRICS} | {recipe: module.METRICS for recipe, module in modules.items()}


def undocumented(names: Iterable[str]) -> list[str]:
    """The names of ours (see `PREFIXES`) that no glossary has, sorted."""
    ours = sorted(name for name in names if name.startswith(PREFIXES))
    return [name for name in ours if not any(find_entry(name, glossary) for glossary in glossaries().values())]


def find_entry(name: str, glossary: Glossary) -> str | None:
    """The glossary's name for a metric: itself, or the pattern that stands for it; None without one."""
    if name in glossary:
        return name
    return next((entry for entry in glossary if "{" in entry and _pattern(entry).fullmatch(name)), None)


@functools.cache
def _pattern(entry: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", entry)
    return re.compile(r"[^/]+".join(map(re.escape, parts)))
