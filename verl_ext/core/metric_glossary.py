"""Metric glossaries, and the glossary of the metrics that all recipes share.

A glossary maps a name to (unit, meaning). A part of a name in braces stands for any text without a slash, so
`sandbox/{status}` is `sandbox/ok` and the others. Each recipe has its own in `metric_glossary.py`, next to the code
that logs it; `verl_ext.launch.recipe` collects them.
"""

import functools
import re
from collections.abc import Mapping

Glossary = Mapping[str, tuple[str, str]]

# Prefixes of this plugin's metrics, in every recipe.
PREFIXES = ("engine_guard/", "training/total/", "timing_s/")

METRICS: Glossary = {
    "engine_guard/fresh_rollouts": ("rollouts", "trained rollouts that the current weights generated"),
    "engine_guard/probs_diff_mean": ("probability", "mean of |p_rollout - p_actor| over the tokens of fresh_rollouts"),
    "engine_guard/probs_diff_max": ("probability", "largest |p_rollout - p_actor| over the same tokens"),
    "engine_guard/pearson_corr": ("correlation", "correlation of both probabilities over the same tokens"),
    "training/total/seconds": ("s", "training steps since the start of the run, validation excluded"),
    "training/total/rollouts_generated": ("rollouts", "generated since the start of the run"),
    "training/total/rollouts_trained": ("rollouts", "trained on since the start of the run"),
    "training/total/tokens_generated": ("tokens", "response tokens of rollouts_generated"),
    "training/total/tokens_trained": ("tokens", "response tokens of rollouts_trained"),
    "timing_s/step": ("s", "the whole step"),
    "timing_s/collect": ("s", "everything while the engines are awake (verl's gen): gen, and all other generation"),
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
    "timing_s/after_update": ("s", "undoing changes made only for the update, and observing the new weights"),
    "timing_s/update_weights": ("s", "sending the new weights to the engines"),
    "timing_s/save_checkpoint": ("s", "writing the checkpoint"),
    "timing_s/testing": ("s", "validation"),
}


# The most used of verl's own metrics, for the pages.
VERLS_METRICS: Glossary = {
    "val-core/{set}/{reward}/mean@{n}": ("score", "mean over a validation set's prompts, n samples each"),
    "val-core/{set}/{reward}/best@{n}/mean": ("score", "mean over prompts of the best of n samples"),
    "val-core/{set}/{reward}/maj@{n}/mean": ("score", "mean over prompts of the most frequent answer of n samples"),
    "critic/score/{statistic}": ("score", "reward of the batch's rollouts, as the reward function returns it"),
    "critic/rewards/{statistic}": ("score", "the same with a KL penalty, if that is part of the reward"),
    "critic/advantages/{statistic}": ("advantage", "of the tokens that are trained on"),
    "critic/returns/{statistic}": ("score", "return that advantages are computed from, before a baseline"),
    "critic/values/{statistic}": ("score", "the critic's prediction of the return"),
    "actor/entropy": ("nats", "mean entropy of the policy per token: near 0, rollouts of a prompt become alike"),
    "actor/entropy_loss": ("nats", "mean entropy of the policy per token"),
    "actor/grad_norm": ("norm", "norm of the gradient before clipping, mean over the step's updates"),
    "actor/pg_loss": ("loss", "policy gradient loss; its size is not informative, NaN is"),
    "actor/pg_clipfrac": ("fraction", "tokens whose probability ratio left the clip range from above"),
    "actor/pg_clipfrac_lower": ("fraction", "tokens of negative advantage that the second clip bound caught"),
    "actor/ppo_kl": ("nats", "approximate KL of the updated policy from the one that generated, per token"),
    "actor/kl_loss": ("nats", "KL from the reference policy, as part of the loss"),
    "actor/lr": ("rate", "learning rate"),
    "response_length/{statistic}": ("tokens", "of the responses; clip_ratio: fraction that reached the limit"),
    "prompt_length/{statistic}": ("tokens", "of the prompts; clip_ratio: fraction that reached the limit"),
    "perf/throughput": ("tokens/s", "tokens of the batch per second and device"),
    "perf/mfu/{role}": ("fraction", "share of the devices' peak FLOP/s that was used"),
    "perf/max_memory_allocated_gb": ("GB", "peak memory of tensors on a device"),
    "perf/time_per_step": ("s", "the whole step"),
    "timing_s/{phase}": ("s", "seconds of this part of the step"),
    "timing_per_token_ms/{phase}": ("ms", "milliseconds of this part per token"),
    "training/epoch": ("epochs", "epoch of verl's data loader"),
    "training/global_step": ("steps", "RL steps so far"),
}


def find_entry(name: str, glossary: Glossary) -> str | None:
    """The glossary's entry for a metric: its name, or the pattern that matches it; None without one."""
    if name in glossary:
        return name
    return next((entry for entry in glossary if "{" in entry and _pattern(entry).fullmatch(name)), None)


@functools.cache
def _pattern(entry: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", entry)
    return re.compile(r"[^/]+".join(map(re.escape, parts)))
