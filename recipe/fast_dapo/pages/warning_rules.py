"""What a person should know before believing a run of Fast DAPO. Pure."""

from verl_ext.report.warning_rules import Rule

RULES = (
    Rule(
        "problem",
        "unaccounted rollouts",
        "curriculum/unaccounted_rollouts",
        lambda value: value != 0,
        "generated rollouts and what became of them differ by up to {worst:g} ({count} of {of} steps)",
        "this is a defect of the curriculum's bookkeeping: report it with this page",
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
        "up to {worst:g} calls of a step returned fewer rollouts than asked ({count} of {of} steps)",
        "see the log of the rollout engine",
    ),
    Rule(
        "problem",
        "prompts given up",
        "curriculum/given_up",
        lambda value: value > 0,
        "up to {worst:g} prompts of a step were dropped after failed calls ({count} of {of} steps)",
        "generation failed again and again: see the log of the rollout engine",
    ),
    Rule(
        "problem",
        "a data source without a pass",
        "curriculum/silent_sources",
        lambda value: value > 0,
        "of up to {worst:g} data sources not one of 200 rollouts or more passed ({count} of {of} steps)",
        "summary.json names them under findings, with how many responses were cut off or had no answer: it is seldom "
        "that all of a source's prompts are too hard",
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
