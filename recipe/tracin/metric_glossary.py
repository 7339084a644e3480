"""What the metrics of TracIn mean; see `verl_ext/core/metric_glossary.py`."""

from verl_ext.core.metric_glossary import Glossary

METRICS: Glossary = {
    "tracin/mean_ip": ("loss² / weight²", "mean score of the step's samples: <its gradient, the validation gradient>"),
    "tracin/score/q{percent}": ("loss² / weight²", "5, 25, 50, 75 and 95 % quantiles of the scores"),
    "tracin/positive_share": ("fraction", "samples with a positive score: those that help validation"),
    "tracin/positive_share/reward_high": ("fraction", "the same among the samples with a reward above 0.5"),
    "tracin/positive_share/reward_low": ("fraction", "the same among the others"),
    "tracin/num_selected": ("samples", "samples that the update sees"),
    "tracin/selection_ratio": ("fraction", "num_selected as a share of all samples"),
    "tracin/num_non_finite": ("samples", "scores that overflowed; never selected"),
    "tracin/update_skipped": ("0 or 1", "whether nothing was selected, so that the step made no update"),
    "tracin/identity_error": (
        "fraction",
        "deviation of the sum of scores from <the batch's gradient, the validation gradient>; rounding is at most "
        "1e-5, and beyond it the run ends",
    ),
    "tracin/preconditioned": ("0 or 1", "scores are of AdamW's direction; 0: of the plain gradient"),
    "tracin/share_of_parameters": (
        "fraction",
        "trained parameters that scores cover; the others do not affect them",
    ),
    "tracin/validation_gradient_norm": ("loss / weight", "norm of the validation gradient"),
    "tracin/validation_half_agreement": (
        "cosine",
        "between the gradients of two halves of the validation prompts; near 0 the scores are noise",
    ),
    "tracin/validation/num_rollouts": ("rollouts", "validation rollouts in use"),
    "tracin/validation/rollouts_generated": ("rollouts", "validation rollouts made in this step"),
    "tracin/validation/reward_pool": ("reward", "mean of the pool that was rolled out"),
    "tracin/validation/reward_chosen": ("reward", "mean of the rollouts in use"),
    "tracin/validation/chosen_at_step": ("step", "step at which the rollouts in use were chosen"),
    "tracin/validation/is_degenerate": (
        "0 or 1",
        "whether the pool gives no gradient, so that every sample is kept",
    ),
    "timing_s/tracin_rollouts": ("s", "validation rollouts"),
    "timing_s/tracin_validation": ("s", "the validation gradient"),
    "timing_s/tracin_scoring": ("s", "computing the scores of all samples"),
}
