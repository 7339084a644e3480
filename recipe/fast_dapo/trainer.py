"""Fast DAPO on verl's trainer: the curriculum collects batches, and its correction weights them."""

from omegaconf import DictConfig

from recipe.fast_dapo import posterior_advantage  # noqa: F401 - registers the estimator
from recipe.fast_dapo.collector import Curriculum
from recipe.fast_dapo.settings import read_settings, resolve_group_size
from recipe.fast_dapo.weighting import HorvitzThompson
from verl_ext.trainer.parts import Collector, Selector
from verl_ext.trainer.trainer import SignalTrainer


class FastDapoTrainer(SignalTrainer):
    """Chooses and screens prompts, continues those with a mixed result, and trains on finished ones.

    With `curriculum.enable=false` it is verl's plain synchronous trainer with groups of n + n_continue.
    """

    def __init__(self, config: DictConfig) -> None:
        resolve_group_size(config)
        super().__init__(config)

    def new_collector(self) -> Collector:
        return Curriculum(self) if read_settings(self.config).enable else super().new_collector()

    def new_selectors(self) -> list[Selector]:
        if (
            isinstance(self.collector, Curriculum)
            and self.collector.settings.controller.correction == "horvitz_thompson"
        ):
            return [HorvitzThompson(self.collector)]
        return []
