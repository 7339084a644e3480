"""Warnings to show before anyone trusts a golden-redaction run. Pure."""

from verl_ext.report.warning_rules import LOGS, Rule

RULES = (
    Rule(
        "problem",
        "sandbox infrastructure errors",
        "golden/sandbox/infrastructure_error",
        lambda value: value > 0,
        "programs were not judged, up to {worst:.1%} per step ({count} of {of} steps); they have no label",
        f"the machine may be overloaded: give the sandbox fewer workers or more memory, or read the {LOGS}",
    ),
    Rule(
        "look",
        "rollouts without a label",
        "golden/rollouts/no_label",
        lambda value: value > 0,
        "up to {worst:g} rollouts per step have no label ({count} of {of} steps)",
        "each met an infrastructure error: see the sandbox's statuses",
    ),
    Rule(
        "problem",
        "wrong-way tokens",
        "golden/movement/engine/wrong_way",
        lambda value: value > 0.1,
        "up to {worst:.0%} of the labelled tokens moved against their label ({count} of {of} steps)",
        "lower the learning rate, or update fewer states at once; the trace viewer shows which tokens",
    ),
    Rule(
        "look",
        "much of an update lost by rounding",
        "golden/tensors/changed_share/mean",
        lambda value: value < 0.5,
        "only {worst:.0%} of the values changed in the serving dtype ({count} of {of} measured updates)",
        "keep float32 master weights and set serving.rounding=stochastic, serve in float32, or raise the learning rate",
        worst=min,
    ),
)
