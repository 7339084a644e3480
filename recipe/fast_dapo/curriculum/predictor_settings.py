"""What a user sets of the predictor, under `curriculum.posterior`."""

from pydantic import Field

from verl_ext.core.settings import Settings


class PredictorSettings(Settings):
    """Settings of `PassRatePosterior`."""

    prior_passes: float = Field(default=0.2, gt=0)
    """First parameter of a pass rate's Beta prior; below 1, since most prompts are never or always solved."""

    prior_fails: float = Field(default=0.2, gt=0)
    """Its second parameter."""

    prior_weight: float | None = Field(default=20.0, gt=0)
    """The prior is fitted to the prompts seen so far; so many prompts count for the one above. null: never fitted, and
    no features are used."""

    discount: float = Field(default=0.99, gt=0, le=1)
    """What is kept of the evidence at each weight version. 1: nothing is forgotten."""

    recalibrate: bool = True
    """Predictions are corrected by how those of the last few policies came out, as evidence lags behind a policy that
    learns. false: they are the posterior of what was seen."""

    use_features: bool = True
    """The prior of each prompt depends on its data source, its length and the numbers in its extra_info (see
    data_preprocess.prompt_states), as far as these turn out to tell anything. false: one prior for all prompts."""

    exploration_epochs: float = Field(default=8.0, ge=1)
    """Epochs' worth of choices within which every prompt is screened at least once."""

    min_source_share: float = Field(default=0.5, ge=0, le=1)
    """Of the choices that a random order would give a data source, what it gets at least. 1: each gets exactly its
    share; 0: a source may starve. Sources with less than a hundredth of the prompts count as one."""

    rest_epochs: float = Field(default=0.5, ge=0)
    """Epochs' worth of choices for which a prompt that was chosen 20 times or more is left alone after each choice;
    after ten, for a quarter of that. A prompt whose reward is wrong never leaves pass rate 1/2, and would be
    chosen again and again. 0: no rest."""

    max_candidates: int = Field(default=65536, ge=1)
    """Prompts that a choice draws rates for; a random part of larger data sets. Those that must not be chosen count."""

    seed: int = Field(default=0, ge=0)
    """Of the draws."""
