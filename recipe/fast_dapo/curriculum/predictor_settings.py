"""The predictor's settings under `curriculum.posterior`."""

from pydantic import Field

from verl_ext.core.settings import Settings


class PredictorSettings(Settings):
    """Settings of `PassRatePosterior`."""

    prior_passes: float = Field(default=0.2, gt=0)
    """First parameter of a pass rate's Beta prior; below 1, since most prompts are never or always solved."""

    prior_fails: float = Field(default=0.2, gt=0)
    """Second parameter of a pass rate's Beta prior."""

    prior_weight: float | None = Field(default=20.0, gt=0)
    """The prior is fitted to the prompts seen so far; the initial prior above counts as this many prompts. null: it is
    never fitted, and no features are used."""

    discount: float = Field(default=0.99, gt=0, le=1)
    """Factor by which evidence is discounted at each weight version. 1: nothing is forgotten."""

    recalibrate: bool = True
    """Predictions are corrected by the errors of recent ones, because evidence lags behind a learning policy. false:
    predictions are the uncorrected posterior."""

    use_features: bool = True
    """The prior of each prompt depends on its data source, its length and the numbers in its extra_info (see
    data_preprocess.prompt_states), as far as these turn out to be informative. false: one prior for all prompts."""

    exploration_epochs: float = Field(default=8.0, ge=1)
    """Every prompt is screened at least once within this many epochs' worth of choices."""

    min_source_share: float = Field(default=0.5, ge=0, le=1)
    """Minimum share of a data source, relative to the choices that a random order would give it. 1: each gets exactly
    its share; 0: a source may starve. Sources with less than 1 % of the prompts are pooled."""

    rest_epochs: float = Field(default=0.5, ge=0)
    """Epochs' worth of choices for which a prompt rests after each choice once it was chosen 20 times; after ten
    choices it rests a quarter as long. A prompt whose reward is wrong never leaves pass rate 1/2, and would be
    chosen again and again. 0: no rest."""

    use_influence: bool = False
    """Prompts that are expected to harm TracIn's validation set, by the scores of their groups trained on, come after
    the others (`prompt_influence.py`); the two minimum shares above still hold. Needs tracin.enable=true."""

    max_candidates: int = Field(default=65536, ge=1)
    """Number of prompts for which a choice draws pass rates, a random subset of larger data sets. Excluded prompts
    count."""

    seed: int = Field(default=0, ge=0)
    """Random seed of the draws."""
