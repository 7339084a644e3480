"""Ways to choose what is generated and trained on, over the policy of `learning_lab.py`.

`Uniform` and `FilterGroups` are the baselines: every prompt gets N rollouts; verl's DAPO sampler, its unmodified
`ReplayBuffer` on a real TransferQueue, throws groups of equal rewards away and refills. `Curriculum` is the product:
`DataController` with its schedules, predictor, screening and correction.
"""

import abc
import itertools
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from learning_lab import Policy, Rollout

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.correction import clip_weights, horvitz_thompson_weight
from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings
from recipe.fast_dapo.curriculum.records import GenerationInput, Prompt, Sample, TrainingGroup, UpdateResult


@dataclass
class Batch:
    """What one update sees.

    Attributes:
        rollouts: B of them.
        groups: The prompt's name of each.
        weights: (B,) factors on the advantages; None: 1.
        advantages: (B,), of a method that has its own; None: the policy's estimator makes them.
    """

    rollouts: list[Rollout]
    groups: list[str]
    weights: np.ndarray | None = None
    advantages: np.ndarray | None = None

    @classmethod
    def of_groups(cls, groups: Sequence[Sequence[Rollout]]) -> "Batch":
        """Groups of rollouts, each under its own name even if two are of one prompt."""
        names = [str(number) for number, group in enumerate(groups) for _ in group]
        return cls([rollout for group in groups for rollout in group], names)


@dataclass
class Counts:
    """Since the start: rollouts and response tokens generated, rollouts trained on, groups and informative ones."""

    generated: int = 0
    generated_tokens: int = 0
    trained: int = 0
    groups: int = 0
    informative: int = 0


class Method(abc.ABC):
    """Base: epochs over the prompts in a random order, and counting."""

    def __init__(self, num_prompts: int, *, batch: int, group: int, seed: int) -> None:
        self.num_prompts, self.batch, self.group = num_prompts, batch, group
        self.counts = Counts()
        self.num_screened = 0  # prompts that were generated for, those of earlier epochs again
        self.predict_seconds = 0.0
        self._order = self._epochs(np.random.default_rng(seed))

    def _epochs(self, rng: np.random.Generator) -> Iterator[int]:
        while True:
            yield from rng.permutation(self.num_prompts).tolist()

    def _next_different(self, count: int) -> list[int]:
        """The next `count` different prompts of the order; all prompts where there are fewer."""
        chosen: dict[int, None] = {}
        while len(chosen) < min(count, self.num_prompts):
            chosen[next(self._order)] = None
        return list(chosen)

    def _generate_groups(self, policy: Policy, prompts: Sequence[int], sizes: Sequence[int]) -> list[list[Rollout]]:
        """A group of this many rollouts for each prompt."""
        repeated = [prompt for prompt, size in zip(prompts, sizes, strict=True) for _ in range(size)]
        rollouts = iter(self._generate(policy, repeated))
        return [list(itertools.islice(rollouts, size)) for size in sizes]

    def _generate(self, policy: Policy, prompts: list[int]) -> list[Rollout]:
        rollouts = policy.sample(prompts)
        self.counts.generated += len(rollouts)
        self.counts.generated_tokens += sum(len(rollout.response) for rollout in rollouts)
        return rollouts

    def next_batch(self, policy: Policy) -> Batch:
        batch = self._collect(policy)
        rewards = defaultdict(set)
        for rollout, group in zip(batch.rollouts, batch.groups, strict=True):
            rewards[group].add(rollout.reward)
        self.counts.trained += len(batch.rollouts)
        self.counts.groups += len(rewards)
        self.counts.informative += sum(len(values) > 1 for values in rewards.values())
        return batch

    def reliability_table(self) -> list[dict[str, float]]:
        """Predicted against observed pass rates, of a method that predicts."""
        return []

    @abc.abstractmethod
    def _collect(self, policy: Policy) -> Batch:
        """The rollouts of one update."""


class Uniform(Method):
    """The next `batch` prompts with `group` rollouts each."""

    def _collect(self, policy: Policy) -> Batch:
        prompts = list(itertools.islice(self._order, self.batch))
        self.num_screened += len(prompts)
        rollouts = self._generate(policy, [prompt for prompt in prompts for _ in range(self.group)])
        return Batch(rollouts, [str(rollout.prompt) for rollout in rollouts])


class FilterGroups(Method):
    """verl's `ReplayBuffer` with DAPO group filtering; its engine answers immediately. Needs Ray and TransferQueue."""

    def __init__(self, num_prompts: int, *, batch: int, group: int, seed: int) -> None:
        super().__init__(num_prompts, batch=batch, group=group, seed=seed)
        import ray
        from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

        from verl_ext.serving import data_plane

        if not ray.is_initialized():
            # Logical processors: TransferQueue reserves one for each of its actors.
            ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
            data_plane.start()
        self._rollouts: dict[str, Rollout] = {}
        self.buffer = ReplayBuffer(
            trainer_mode="sync",
            trainer_config=None,
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs=None,
            poll_interval=0.0,
            refill_fn=self._submit,
            filter_groups_metric="reward",
            train_batch_size=batch,
            gen_batch_size=1,
        )

    def _submit(self, num_prompts: int) -> None:
        from tensordict import TensorDict

        from verl_ext.serving import data_plane

        prompts = list(itertools.islice(self._order, num_prompts))
        self.num_screened += len(prompts)
        rollouts = self._generate(self._policy, [prompt for prompt in prompts for _ in range(self.group)])
        uids = [str(uuid.uuid4()) for _ in prompts]
        keys = [f"{uid}_{session}_0" for uid in uids for session in range(self.group)]
        self._rollouts |= dict(zip(keys, rollouts, strict=True))
        rewards = torch.tensor([[rollout.reward] for rollout in rollouts])
        of_rollouts = [{"status": "success", "response_len": len(rollout.response)} for rollout in rollouts]
        data_plane.write(keys, "train", TensorDict({"rm_scores": rewards}, batch_size=len(keys)), of_rollouts)
        tags = [{"is_prompt": True, "status": "finished", "global_steps": self._policy.version}] * len(uids)
        data_plane.write(uids, "train", None, tags)

    def _collect(self, policy: Policy) -> Batch:
        from verl_ext.serving import data_plane

        self._policy = policy
        self._submit(self.batch)
        selected, _ = self.buffer.sample(global_steps=policy.version, partition_id="train", batch_size=self.batch)
        rollouts = [self._rollouts[key] for key in selected.keys]
        groups = [key.split("_")[0] for key in selected.keys]
        data_plane.clear(selected.keys, "train")
        self._rollouts.clear()  # verl discards the surplus
        return Batch(rollouts, groups)


class Curriculum(Method):
    """The product's controller and its options.

    Args:
        predictor: Settings of the posterior, or None for epochs in random order.
        screening_chunk: Rollouts per stage of sequential screening; None for all n at once.
        clip: Of Horvitz-Thompson weights; used with settings.correction="horvitz_thompson".
        features_PF, sources_P: Of the prompts, for the posterior.

    Attributes:
        trained_groups: Of the last batch.
    """

    def __init__(
        self,
        num_prompts: int,
        settings: CurriculumSettings,
        *,
        seed: int,
        predictor: PredictorSettings | None = None,
        screening_chunk: int | None = None,
        clip: float | None = None,
        features_PF: np.ndarray | None = None,
        sources_P: np.ndarray | None = None,
    ) -> None:
        super().__init__(num_prompts, batch=settings.train_batch_size, group=settings.group_size, seed=seed)
        self.settings, self.clip = settings, clip
        self.posterior = PassRatePosterior(num_prompts, predictor, features_PF, sources_P) if predictor else None
        self.trained_groups: list[TrainingGroup] = []
        self.controller = DataController(settings, screening_chunk)
        self._rollouts: dict[str, Rollout] = {}
        self._numbers = itertools.count()
        self._queue: list[int] = []

    def _new_prompts(self) -> list[Prompt]:
        wanted = self.controller.num_prompts_wanted
        if self.posterior is None:
            chosen = list(itertools.islice(self._order, wanted))
        else:
            began = time.process_time()
            live = [int(index) for index in self.controller.live_indices()]
            chosen = self.posterior.choose(wanted, live).tolist()
            self.predict_seconds += time.process_time() - began
        self.num_screened += len(chosen)
        return [Prompt(f"{next(self._numbers)}", index) for index in chosen]

    def _collect(self, policy: Policy) -> Batch:
        controller = self.controller
        if self.posterior is not None:
            self.posterior.set_weight_version(policy.version)
        self._fill(policy)
        rollouts, groups, weights = [], [], []
        self.trained_groups = controller.get_training_data()
        for group in self.trained_groups:
            samples = controller.trained_samples(group)
            rollouts += [self._rollouts[sample.key] for sample in samples]
            groups += [group.prompt.uid] * len(samples)
            weight = 1.0
            if self.settings.correction == "horvitz_thompson":
                plan = group.plan
                weight = horvitz_thompson_weight(group.num_passes, len(group.samples), plan.max_fails, plan.max_passes)
            weights += [weight] * len(samples)
            self._free([sample.key for sample in group.samples])
        return Batch(rollouts, groups, clip_weights(np.array(weights), self.clip)[0])

    def _fill(self, policy: Policy) -> None:
        """Generate until the controller has a batch."""
        controller, streaming = self.controller, self.settings.schedule == "streaming"
        self._free(controller.evict(policy.version).released_keys)
        while streaming or not controller.is_ready_for_training():
            inputs = self._next_inputs()
            if not inputs:
                break
            self._observe(controller.update_prompts(self._answer(policy, inputs), policy.version))

    def _next_inputs(self) -> list[GenerationInput]:
        self.controller.add_new_prompts_first_generation_phase(self._new_prompts())
        if self.posterior is not None:
            positions = [int(prompt.index) for prompt in self.controller.prompts_to_screen()]
            self.controller.set_posteriors(self.posterior.posteriors(positions))
        return self.controller.get_generation_inputs()

    def _observe(self, result: UpdateResult) -> None:
        if self.posterior is not None:
            for outcome in result.outcomes:
                fails = outcome.samples - outcome.passes
                self.posterior.observe(int(outcome.index), outcome.passes, fails, outcome.shortfall)
        self._free(result.released_keys)

    def reliability_table(self) -> list[dict[str, float]]:
        return [] if self.posterior is None else self.posterior.reliability.rows()

    def _answer(self, policy: Policy, inputs: list[GenerationInput]) -> dict[str, list[Sample]]:
        prompts = [int(entry.prompt.index) for entry in inputs for _ in range(entry.num_samples)]
        rollouts = iter(self._generate(policy, prompts))
        samples: dict[str, list[Sample]] = {}
        for entry in inputs:
            new = []
            for session in range(entry.first_session, entry.first_session + entry.num_samples):
                rollout = next(rollouts)
                key = f"{entry.prompt.uid}_{session}"
                self._rollouts[key] = rollout
                new.append(Sample(key, self._success(rollout), policy.version, len(rollout.response)))
            samples[entry.prompt.uid] = new
        return samples

    def _success(self, rollout: Rollout) -> float:
        return rollout.reward

    def _free(self, keys) -> None:
        for key in keys:
            del self._rollouts[key]
