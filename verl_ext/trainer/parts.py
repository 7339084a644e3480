"""The parts of a trainer: one `Collector`, any number of `Selector`s and `Observer`s.

A step of `SignalTrainer`, and where the parts are called:

    collector.collect      which rollouts are trained on
    generate               further generation while the engines are awake (all parts)
    [log-probs, engine guard, reference, values: verl's]
    before_advantages      data for an advantage estimator (all parts)
    [advantages, critic's update: verl's]
    selector.select        which rows the actor's update uses, one selector after the other
    [actor's update: verl's]
    selector.after_update  undo changes made only for the update, last selector first
    observer.observe       observations of the new weights
    metrics                (all parts)
    [checkpoint, then the engines get the weights: verl's]
    observer.observe_served  observations of the new weights in the engines

A part extends one of the three protocols and is built with only its trainer, before any process of the run exists.
Methods that it does not override do nothing.
"""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Protocol

from omegaconf import DictConfig
from tensordict import TensorDict

from verl_ext.run.run_folder import RunFolder
from verl_ext.run.run_totals import RunTotals
from verl_ext.serving.data_plane import KVBatchMeta


class Trainer(Protocol):
    """The interface of a trainer for its parts.

    Attributes:
        config: The whole configuration.
        run_folder: Folder of the run's records.
        global_steps: The current step, from 1.
        local_trigger_step: The current update within the step, from 0.
        weight_version: The step whose weights the engines serve now.
        tokenizer: From `set_up_data` on, with `processor` (None for plain text) and `train_dataset` (verl's).
        actor_rollout_wg: The actor's workers, from `set_up_workers` on.
        agent_loop_manager: Generates (`verl_ext.serving.agent_loop`); only during steps.
        collector: The collector, which exists before the other parts.
    """

    config: DictConfig
    run_folder: RunFolder
    global_steps: int
    local_trigger_step: int
    tokenizer: Any
    processor: Any
    train_dataset: Any
    actor_rollout_wg: Any
    agent_loop_manager: Any

    @property
    def collector(self) -> "Collector":
        """See above."""
        ...

    @property
    def weight_version(self) -> int:
        """See above."""
        ...

    def timed(self, name: str) -> AbstractContextManager[None]:
        """Add the seconds within to `timing_s/{name}`."""
        ...

    def waiting_for_rollouts(self) -> AbstractContextManager[None]:
        """Add the seconds within to `timing_s/gen`."""
        ...

    def fetch_prompts(self) -> TensorDict:
        """The next rows of verl's loader, each with a new `uid`: `data.gen_batch_size`, one in asynchronous modes."""
        ...

    def save_unfinished_step(self) -> None:
        """Write a checkpoint of the state between two steps, before giving up the current one."""
        ...


class Part(Protocol):
    """Base class of all parts."""

    # Worker class of the actor, instead of verl's; extends `ActorRolloutRefWorker`.
    worker_class: ClassVar[type | None] = None

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def set_up_data(self) -> None:
        """Called when tokenizer and training data exist."""

    def set_up_workers(self) -> None:
        """Called when every process exists and a checkpoint is loaded, before the engines get their first weights."""

    def generate(self) -> None:
        """Additional generation of the step, the last time that the engines are awake."""

    def before_advantages(self, batch: KVBatchMeta) -> None:
        """Pass data to a custom advantage estimator for which verl's registry has no argument.

        Args:
            batch: The rows in the estimator's order.
        """

    def metrics(self) -> dict[str, Any]:
        """Metrics of the update that is about to end; verl aggregates them over a step's updates."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Additional entries of the run's summary."""
        return {}

    def at_rest(self) -> AbstractContextManager[None]:
        """Keep the part unchanged inside this context while a checkpoint is written. For a part with its own thread."""
        return nullcontext()

    def before_checkpoint(self) -> None:
        """Write data to the data plane that must be in its checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """State saved in checkpoints; JSON-serialisable."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the data plane is already restored. Called before `set_up_workers`."""

    def end(self) -> None:
        """Training is over."""


class Collector(Part, Protocol):
    """Chooses the rollouts that a step trains on.

    Attributes:
        submits_prompts: Whether it sends prompts to the engines itself; otherwise verl submits a batch of them before
            each step.
    """

    submits_prompts: ClassVar[bool] = True

    @abstractmethod
    def collect(self, num_prompts: int) -> KVBatchMeta:
        """All rollouts of this many prompts, siblings together."""
        ...

    def progress(self) -> tuple[int, int] | None:
        """How many prompts of the current batch are done, and of how many; None if unknown.

        Called in another thread while `collect` runs.
        """
        return None

    def observe_influence(self, scores: Mapping[str, float]) -> None:
        """Take what a selector measured: how much training on the rollouts of each prompt helps a validation set.

        Args:
            scores: By uid, of the prompts of the last `collect`: the inner product of the summed gradient of a prompt's
                rollouts and the validation set's.
        """

    @abstractmethod
    def count(self, batch: KVBatchMeta, metrics: dict[str, Any], totals: RunTotals) -> None:
        """Add a step to the run's totals of rollouts and tokens.

        Args:
            batch: The rows trained on, in all updates of the step.
            metrics: Metrics of the step; changed where verl aggregated values that cannot be.
            totals: Changed.
        """
        ...


class Selector(Part, Protocol):
    """Chooses the rows of a batch that the actor's update uses, and their weights.

    The critic, where there is one, learns from every row. Not called during a critic's warm-up.
    """

    @abstractmethod
    def select(self, batch: KVBatchMeta) -> KVBatchMeta | None:
        """Choose by the advantages and all other columns of these rows in `verl_ext.serving.data_plane`.

        Returns:
            The batch, or a part of it in whole mini-batches (`data_plane.select_rows`), whose other rows are freed
            after the update; None: this step makes no update. Columns may be changed: an advantage of 0 removes a row
            from the policy's gradient, a mask also from the loss.
        """
        ...

    def after_update(self, batch: KVBatchMeta) -> None:
        """Undo changes made only for the update: the step's metrics are computed from the columns after this.

        Args:
            batch: The rows that the update used; all rows if it was skipped.
        """


class Observer(Part, Protocol):
    """Observes the new weights."""

    @abstractmethod
    def observe(self, batch: KVBatchMeta) -> None:
        """Runs at the end of every step's computation (also during a critic's warm-up), before the engines get the
        weights.

        Args:
            batch: The rows of the step.
        """
        ...

    def observe_served(self, batch: KVBatchMeta) -> dict[str, Any]:
        """Runs once the engines serve the new weights, after the step's checkpoint.

        Returns:
            Metrics of the step.
        """
        return {}
