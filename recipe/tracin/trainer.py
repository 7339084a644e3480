"""verl's plain trainer for TracIn, which joins it by `tracin.enable=true` as it joins any other."""

from verl_ext.trainer.trainer import SignalTrainer


class TracInTrainer(SignalTrainer):
    """The plain algorithm; what is special is `recipe.tracin.selector`."""
