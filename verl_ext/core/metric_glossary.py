"""What a glossary of metrics is, and what the metrics mean that all recipes share.

A glossary maps a name to (unit, meaning). A part of a name in braces stands for any text without a slash, so
`sandbox/{status}` is `sandbox/ok` and the others. Each recipe has its own in `metric_glossary.py`, beside the code that
logs it; `verl_ext.launch.recipe` has them all.
"""

import functools
import re
from collections.abc import Mapping

Glossary = Mapping[str, tuple[str, str]]

# Names that begin like this are ours, whatever the recipe.
PREFIXES = ("engine_guard/", "training/total/", "timing_s/")

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
    "timing_s/collect": ("s", "everything while the engines are awake (verl's gen): gen, and what else is generated"),
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
    "timing_s/after_update": ("s", "undoing what only the update was to see, and looking at the new weights"),
    "timing_s/update_weights": ("s", "sending the new weights to the engines"),
    "timing_s/save_checkpoint": ("s", "writing the checkpoint"),
    "timing_s/testing": ("s", "validation"),
}


def find_entry(name: str, glossary: Glossary) -> str | None:
    """The glossary's name for a metric: itself, or the pattern that stands for it; None without one."""
    if name in glossary:
        return name
    return next((entry for entry in glossary if "{" in entry and _pattern(entry).fullmatch(name)), None)


@functools.cache
def _pattern(entry: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", entry)
    return re.compile(r"[^/]+".join(map(re.escape, parts)))
