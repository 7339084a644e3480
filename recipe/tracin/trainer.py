"""verl's plain trainer for TracIn, which joins it by `tracin.enable=true` as it joins any other."""

from verl.trainer.ppo.v1 import register_trainer

from verl_ext.trainer.trainer import SignalTrainer


@register_trainer("tracin")
class TracInTrainer(SignalTrainer):
    """The plain algorithm; what is special is `recipe.tracin.selector`."""
