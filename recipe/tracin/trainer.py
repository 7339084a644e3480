"""verl's plain trainer for TracIn, which joins it by `tracin.enable=true`, as in any other trainer."""

from verl_ext.trainer.trainer import SignalTrainer


class TracInTrainer(SignalTrainer):
    """The plain algorithm; `recipe.tracin.selector` adds TracIn."""
