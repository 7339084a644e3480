"""What the metrics of Fast DAPO mean; see `verl_ext/core/metric_glossary.py`."""

from recipe.fast_dapo.curriculum.metrics import METRICS as CURRICULUM
from verl_ext.core.metric_glossary import Glossary

METRICS: Glossary = {
    **CURRICULUM,
    "curriculum/silent_sources": ("data sources", "sources with at least 200 rollouts and no pass"),
    "curriculum/correction_weight/mean": ("factor", "Horvitz-Thompson weight of the trained groups, after clipping"),
    "curriculum/correction_weight/max": ("factor", "largest Horvitz-Thompson weight of the groups"),
    "curriculum/correction_weight/clipped_share": ("fraction", "groups whose weight was cut by correction_clip"),
    "predictor/brier": (
        "squared probability",
        "mean (predicted pass rate - outcome)² of the step's rollouts, predicted before each call",
    ),
    "predictor/brier_of_the_mean": ("squared probability", "the same for a predictor that knows only the step's mean"),
    "predictor/bias": ("probability", "mean of predicted - observed"),
    "predictor/observed_rollouts": ("rollouts", "rollouts that the three metrics above are computed from"),
    "predictor/prior_mean": ("fraction", "a / (a + b) of the fitted Beta(a, b) prior"),
    "predictor/prior_strength": ("rollouts", "a + b of this prior: the rollouts it counts as"),
    "predictor/shortfall_share": (
        "fraction",
        "shortfall of the variance of graded successes from m (1 - m), as a share of it; left out without grades",
    ),
    "predictor/harmful_share": (
        "fraction",
        "candidates of the last choice whose influence on TracIn's validation set is expected to be negative",
    ),
    "timing_s/predict": ("s", "choosing the prompts to screen"),
}
