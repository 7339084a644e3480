"""What a trainer is made of: one `Collector`, any number of `Selector`s and `Observer`s.

A step of `SignalTrainer`, and where the parts have their say:

    collector.collect      which rollouts are trained on
    generate               what else is generated while the engines are awake (all parts)
    [log-probs, engine guard, reference, values: verl's]
    before_advantages      what an estimator of advantages is to know (all parts)
    [advantages, critic's update: verl's]
    selector.select        which rows the actor's update sees, one selector after the other
    [actor's update: verl's]
    selector.after_update  undo what the update alone was to see, the last selector first
    observer.observe       what is to be seen of the new weights
    metrics                (all parts)
    [checkpoint, then the engines get the weights: verl's]
    observer.observe_served  what is to be seen of the new weights in the engines

A part extends one of the three protocols and is built with its trainer alone, before any process of the run exists.
What it leaves out does nothing.
"""

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Protocol

from omegaconf import DictConfig
from tensordict import TensorDict

from verl_ext.run.run_folder import RunFolder
from verl_ext.run.run_totals import RunTotals
from verl_ext.serving.data_plane import KVBatchMeta


class Trainer(Protocol):
    """What a part may ask of its trainer.

    Attributes:
        config: The whole configuration.
        run_folder: Where the run's records are.
        global_steps: The step under way, from 1.
        local_trigger_step: Of the updates of the step under way, the one that is, from 0.
        weight_version: The step that made the weights which the engines serve now.
        tokenizer: From `set_up_data` on, with `processor` (None for plain text) and `train_dataset` (verl's).
        actor_rollout_wg: The actor's workers, from `set_up_workers` on.
        agent_loop_manager: Generates (`verl_ext.serving.agent_loop`); in steps only.
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
        """The next `data.gen_batch_size` rows of verl's loader, each with a new `uid`."""
        ...

    def save_unfinished_step(self) -> None:
        """Write a checkpoint of the state between two steps, before giving up on the one under way."""
        ...


class Part(Protocol):
    """What all parts have in common."""

    # Of the actor, in place of verl's; extends `ActorRolloutRefWorker`.
    worker_class: ClassVar[type | None] = None

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def set_up_data(self) -> None:
        """Tokenizer and training data are there."""

    def set_up_workers(self) -> None:
        """Every process is there and a checkpoint is loaded; next, the engines get their first weights."""

    def generate(self) -> None:
        """Further generation of the step; the last moment at which the engines are awake."""

    def before_advantages(self, batch: KVBatchMeta) -> None:
        """Tell an advantage estimator of one's own what verl's registry has no argument for.

        Args:
            batch: The rows in the order in which the estimator gets them.
        """

    def metrics(self) -> dict[str, Any]:
        """Of the update that is about to end; verl makes one number of those of a step's updates."""
        return {}

    def summary(self) -> dict[str, Any]:
        """What the run's summary says beside what it says of every run."""
        return {}

    def at_rest(self) -> AbstractContextManager[None]:
        """Nothing of the part changes within: a checkpoint is written. For a part with a thread of its own."""
        return nullcontext()

    def before_checkpoint(self) -> None:
        """Write to the data plane what must be in its checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """What travels with a checkpoint; JSON-able."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; the data plane is restored already. Comes before `set_up_workers`."""

    def end(self) -> None:
        """Training is over."""


class Collector(Part, Protocol):
    """Which rollouts a step is trained on.

    Attributes:
        submits_prompts: It sends prompts to the engines itself; without, verl submits a batch of them before each step.
    """

    submits_prompts: ClassVar[bool] = True

    @abstractmethod
    def collect(self, num_prompts: int) -> KVBatchMeta:
        """All rollouts of so many prompts, siblings together."""
        ...

    def progress(self) -> tuple[int, int] | None:
        """How many prompts of the batch under way are done, and of how many; None: not known.

        Called in another thread while `collect` runs.
        """
        return None

    @abstractmethod
    def count(self, batch: KVBatchMeta, metrics: dict[str, Any], totals: RunTotals) -> None:
        """Add a step to the run's totals of rollouts and tokens.

        Args:
            batch: What was trained on, in all updates of the step.
            metrics: Of the step; changed where verl made one number of what is none.
            totals: Changed.
        """
        ...


class Selector(Part, Protocol):
    """Which rows of a batch the actor's update sees, and with which weights.

    The critic, where there is one, learns from every row. Not asked during a critic's warm-up.
    """

    @abstractmethod
    def select(self, batch: KVBatchMeta) -> KVBatchMeta | None:
        """Choose by the advantages and all else that `verl_ext.serving.data_plane` has of these rows.

        Returns:
            The batch, or a part of it in whole mini-batches (`data_plane.select_rows`), whose other rows are freed
            after the update; None: this step makes no update. Columns may be changed: an advantage of 0 takes a row
            out of the policy's gradient, a mask out of the loss too.
        """
        ...

    def after_update(self, batch: KVBatchMeta) -> None:
        """Undo what only the update was to see: the step's metrics come from the columns as they are then.

        Args:
            batch: The rows that the update saw; if it was called off, all that there were.
        """


class Observer(Part, Protocol):
    """What is to be seen of the new weights."""

    @abstractmethod
    def observe(self, batch: KVBatchMeta) -> None:
        """Runs at the end of every step's computation (a critic's warm-up too), before the engines get the weights.

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
