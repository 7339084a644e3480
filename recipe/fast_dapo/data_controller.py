"""`DataController` under its documented name; it lives in `recipe.fast_dapo.curriculum`."""

from recipe.fast_dapo.curriculum.data_controller import DataController, TooManyGenerationBatches

__all__ = ["DataController", "TooManyGenerationBatches"]
