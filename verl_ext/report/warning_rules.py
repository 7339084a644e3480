"""Rules that look at one metric each: above which value a person should look, and what to do then. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """Warns if `is_odd` holds at any step for the metrics that begin with `metric`."""

    level: str
    title: str
    metric: str
    is_odd: Callable[[float], bool]
    what: str  # with {count}, {of}, {worst}
    remedy: str
    worst: Callable[[Sequence[float]], float] = max


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
        "problem",
        "sandbox infrastructure errors",
        "golden/sandbox/infrastructure_error",
        lambda value: value > 0,
        "programs were not judged, up to {worst:.1%} of a step's ({count} of {of} steps); they have no label",
        "give the sandbox fewer workers or more memory, or see its log: the machine may be too crowded",
    ),
    Rule(
        "look",
        "rollouts without a label",
        "golden/rollouts/no_label",
        lambda value: value > 0,
        "up to {worst:g} rollouts of a step have no label ({count} of {of} steps)",
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
        "only {worst:.0%} of the values became another number in the serving dtype ({count} of {of} measured updates)",
        "serve in a wider dtype, keep float32 master weights, or raise the learning rate",
        worst=min,
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
        "many clipped ratios",
        "actor/pg_clipfrac",
        lambda value: value > 0.2,
        "up to {worst:.0%} of the tokens were clipped ({count} of {of} steps)",
        "the update leaves the trust region: lower the learning rate or the number of updates a batch",
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
        "look",
        "update skipped",
        "tracin/update_skipped",
        lambda value: value > 0,
        "no sample was selected, so nothing was updated ({count} of {of} steps)",
        "enlarge the validation set, or choose a rule that always keeps some samples",
    ),
    Rule(
        "look",
        "validation rollouts all alike",
        "tracin/validation/is_degenerate",
        lambda value: value > 0,
        "the validation set gave no gradient to compare with ({count} of {of} steps)",
        "choose validation prompts of middling difficulty, or more rollouts of each",
    ),
    Rule(
        "problem",
        "scores that are no numbers",
        "tracin/num_non_finite",
        lambda value: value > 0,
        "up to {worst:g} influence scores of a step were NaN or infinite ({count} of {of} steps)",
        "look at the gradients: lower the learning rate, or compute in float32",
    ),
    Rule(
        "look",
        "cut responses",
        "response_length/clip_ratio",
        lambda value: value > 0.3,
        "up to {worst:.0%} of the responses reached the length limit ({count} of {of} steps)",
        "raise data.max_response_length, or check that the model ends its answers",
    ),
)
