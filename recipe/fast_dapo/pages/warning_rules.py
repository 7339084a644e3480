"""Warnings to show before anyone trusts a Fast DAPO run. Pure."""

from verl_ext.report.warning_rules import LOGS, Rule

RULES = (
    Rule(
        "problem",
        "unaccounted rollouts",
        "curriculum/unaccounted_rollouts",
        lambda value: value != 0,
        "generated rollouts and the sum over their fates differ by up to {worst:g} ({count} of {of} steps)",
        "this is a bug in the curriculum's bookkeeping: report it with this page",
        worst=lambda values: max(values, key=abs),
    ),
    Rule(
        "look",
        "clipped correction weights",
        "curriculum/correction_weight/clipped_share",
        lambda value: value > 0.1,
        "up to {worst:.0%} of a batch's groups had their weight cut ({count} of {of} steps): the gradient is biased",
        "raise curriculum.correction_clip, or accept the bias for less variance",
    ),
    Rule(
        "look",
        "failed generation calls",
        "curriculum/failed",
        lambda value: value > 0,
        "up to {worst:g} calls of a step returned fewer rollouts than requested ({count} of {of} steps)",
        f"the cause is in the {LOGS}",
    ),
    Rule(
        "problem",
        "prompts given up",
        "curriculum/given_up",
        lambda value: value > 0,
        "up to {worst:g} prompts of a step were dropped after failed calls ({count} of {of} steps)",
        f"generation failed repeatedly: the cause is in the {LOGS}",
    ),
    Rule(
        "problem",
        "a data source without a pass",
        "curriculum/silent_sources",
        lambda value: value > 0,
        "up to {worst:g} data sources have 200 rollouts or more and not a single pass ({count} of {of} steps)",
        "summary.json names them under findings, with how many responses were cut off or had no answer: seldom are all "
        "prompts of a source too hard",
    ),
    Rule(
        "look",
        "no informative group",
        "curriculum/qualified_share",
        lambda value: value == 0,
        "not one screened prompt was mixed at {count} steps",
        "use prompts nearer to the model's ability, or a larger rollout.n",
    ),
)
