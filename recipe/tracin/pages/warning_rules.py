"""Warnings to show before anyone trusts a TracIn run. Pure."""

from verl_ext.report.warning_rules import Rule

RULES = (
    Rule(
        "look",
        "update skipped",
        "tracin/update_skipped",
        lambda value: value > 0,
        "no sample was selected, so nothing was updated ({count} of {of} steps)",
        "enlarge the validation set, or choose a rule that always keeps some samples",
    ),
    Rule(
        "look",
        "validation rollouts are all alike",
        "tracin/validation/is_degenerate",
        lambda value: value > 0,
        "the validation set gave no gradient to compare with ({count} of {of} steps)",
        "choose validation prompts of medium difficulty, or more rollouts per prompt",
    ),
    Rule(
        "problem",
        "scores that are no numbers",
        "tracin/num_non_finite",
        lambda value: value > 0,
        "up to {worst:g} influence scores of a step were NaN or infinite ({count} of {of} steps)",
        "check the gradients: lower the learning rate, or compute in float32",
    ),
)
