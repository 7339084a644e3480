"""How an update moved its tokens: in the trainer, and in the engine once it has the weights."""

from collections import Counter
from typing import Any

from recipe.golden_redaction.method.movement import movement_metrics
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.trainer.parts import Observer, Trainer


class MovementProbe(Observer):
    """Queries the log-probs of the step's tokens again and compares them with those before the update.

    Attributes:
        moved: Labelled tokens of the run, by how they moved in the engine.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer: Any = trainer  # a GoldenTrainer
        self._metrics: dict[str, float] = {}
        self.moved: Counter[str] = Counter()

    def set_up_data(self) -> None:
        """Called for every part once verl's data loader exists."""
        self._trainer.set_up_problems()

    def observe(self, batch: KVBatchMeta) -> None:
        """Movement in the trainer."""
        trainer = self._trainer
        with trainer.timed("log_prob_after"):
            log_probs, hidden_norms = trainer.log_probs(trainer.visits, with_hidden_norms=True)
        for visit, own in zip(trainer.visits, log_probs, strict=True):
            visit.trainer["after"] = own
        tolerance = trainer.golden.movement_tolerance
        self._metrics = movement_metrics([visit.movement("trainer", tolerance) for visit in trainer.visits], "trainer")
        if hidden_norms:
            named = {"first": hidden_norms[0], "last": hidden_norms[-1], "max": max(hidden_norms)}
            self._metrics |= {f"golden/hidden_norm/{name}": norm for name, norm in named.items()}

    def observe_served(self, batch: KVBatchMeta) -> dict[str, Any]:
        """Movement in the engine."""
        trainer = self._trainer
        trainer.ask_engine(trainer.visits, "after")
        differences = trainer.check_engine(trainer.visits, "after")
        served = [visit.movement("engine", trainer.golden.movement_tolerance) for visit in trainer.visits]
        self.moved.update(kind for state in served for kind in state.kinds if kind)
        return differences | movement_metrics(served, "engine")

    def metrics(self) -> dict[str, Any]:
        return self._metrics

    def state_dict(self) -> dict[str, Any]:
        return {"moved": dict(self.moved)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.moved = Counter(state["moved"])
