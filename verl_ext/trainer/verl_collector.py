"""verl's own way to collect a batch, as a part; and the seam in front of every collector."""

from collections.abc import Callable
from typing import Any, ClassVar

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from verl_ext.run.run_totals import RunTotals
from verl_ext.serving import data_plane
from verl_ext.serving.data_plane import KVBatchMeta
from verl_ext.serving.rollout_key import session_key, uid_of
from verl_ext.trainer.parts import Collector, Trainer

# verl's counters of groups that it generated and discarded: by its dynamic sampling, as too old, or because a rollout
# failed.
DISCARDED_GROUPS = (
    "filter_groups/evicted_samples",
    "filter_groups/discarded_surplus_samples",
    "off_policy/evicted_samples",
    "rollout_failure/evicted_samples",
)

# Types of verl's objects, which tests/compat/contract_uses.py cannot infer.
RELIES_ON = {
    "self._trainer.replay_buffer.verl": "verl.trainer.ppo.v1.replay_buffer.ReplayBuffer",
}


class CollectedBuffer:
    """Replaces verl's replay buffer: samples for training come from a collector, everything else from verl's.

    Args:
        verl: verl's buffer, or the one that `trainer.v1.sampler.custom_sampler` names.
        collect: Returns the rollouts of this many prompts.
    """

    def __init__(self, verl: ReplayBuffer, collect: Callable[[int], KVBatchMeta]) -> None:
        self.verl = verl
        self._collect = collect

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """verl's signature; the collector's metrics are added with those of the other parts."""
        if partition_id != data_plane.TRAIN:
            return self.verl.sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        return self._collect(batch_size), {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.verl, name)


class VerlCollector(Collector):
    """The next prompts of the loader with all their rollouts, or those that verl's dynamic sampling keeps."""

    submits_prompts: ClassVar[bool] = False

    def __init__(self, trainer: Trainer) -> None:
        self._trainer: Any = trainer
        self._metrics: dict[str, Any] = {}
        self._done, self._wanted = 0, 0

    def collect(self, num_prompts: int) -> KVBatchMeta:
        self._done, self._wanted = 0, num_prompts
        with self._trainer.waiting_for_rollouts():
            batch, self._metrics = self._trainer.replay_buffer.verl.sample(
                global_steps=self._trainer.global_steps, partition_id=data_plane.TRAIN, batch_size=num_prompts
            )
        return batch

    def progress(self) -> tuple[int, int] | None:
        """As last read by verl's buffer; a user's sampler may count differently."""
        finished = getattr(self._trainer.replay_buffer.verl, "finished_keys", None)
        if finished is None:
            return None
        # The buffer clears them all before it reads them again.
        self._done = max(self._done, len(finished.get(data_plane.TRAIN, ())))
        return min(self._done, self._wanted), self._wanted

    def count(self, batch: KVBatchMeta, metrics: dict[str, Any], totals: RunTotals) -> None:
        """Rollouts are trained on, except the groups that verl discards; those in flight are not counted."""
        config = self._trainer.config
        rows = zip(batch.keys, batch.tags, strict=True)
        trained = [(key, tag["response_len"]) for key, tag in rows if not tag.get("is_padding", False)]
        lengths = [length for _, length in trained]
        num_rollouts = len({session_key(key) for key, _ in trained})  # each may have several outputs
        discarded = sum(int(metrics.get(f"training/{name}", 0)) for name in DISCARDED_GROUPS)
        totals.rollouts_trained += num_rollouts
        totals.tokens_trained += sum(lengths)
        totals.rollouts_generated += num_rollouts + discarded * config.actor_rollout_ref.rollout.n
        # verl keeps no lengths of the groups that it discards: they count as average ones.
        totals.tokens_generated += round(sum(lengths) * (1 + discarded / config.data.train_batch_size))

    def metrics(self) -> dict[str, Any]:
        return self._metrics

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # The checkpoint was written while the step's own batch still existed: it has been trained on. An asynchronous
        # trainer has other rows, whose prompt is still there: they wait, or are made again.
        tags = data_plane.tags(data_plane.TRAIN)
        trained = list(tags)
        if self._trainer.trainer_mode != "sync":
            waiting = {key for key, tag in tags.items() if tag.get("is_prompt", False)}
            trained = [key for key in tags if key not in waiting and uid_of(key) not in waiting]
        data_plane.clear(trained, data_plane.TRAIN)
