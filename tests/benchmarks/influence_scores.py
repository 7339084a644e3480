"""Influence scores for the policy of `influence_methods.py`: the product's ghost passes, validation set and factors."""

from typing import Literal

import numpy as np
import torch
from iif_loss import sequence_loss
from influence_methods import InfluencePolicy, InfluenceTask, Samples
from learning_lab import Rollout
from lora_preconditioner import LoraPreconditioner

from recipe.tracin.method.rollout_choice import two_halves
from recipe.tracin.method.validation import ValidationSet, ValidationSettings
from recipe.tracin.settings import Preconditioner
from verl_ext.influence.batches import flat
from verl_ext.influence.method.preconditioner import adam_factors


class Scorer:
    """Influence scores of a batch.

    Args:
        validation: The product's settings.
        gradient_only: No scores are wanted, only G.
        exact: G is the gradient of the probability of the right answers to all validation prompts: the expected reward
            without any sampling noise. Tells the noise of G from the limits of the method.
        weighted: Importance weights of validation rollouts, as in the product; false: all are 1.
        sequence: G is of IIF's loss, which has no importance weights.
        preconditioner: Of G, as in the product, or lora: `lora_preconditioner.py`.
        cosine: Scores are divided by the norms of the samples' gradients (not by G's, which is one number per step), in
            the geometry of the preconditioner.

    Raises:
        ValueError: If `sequence` and `weighted` are both asked for.
    """

    def __init__(
        self,
        data: InfluenceTask,
        validation: ValidationSettings,
        *,
        exact: bool = False,
        gradient_only: bool = False,
        weighted: bool = False,
        sequence: bool = False,
        preconditioner: Preconditioner | Literal["lora"] = "none",
        cosine: bool = False,
    ) -> None:
        if sequence and weighted:
            raise ValueError("IIF's loss takes rollouts of the current policy: expected weighted=False with sequence")
        self.data, self.settings, self.exact, self.gradient_only = data, validation, exact, gradient_only
        self.weighted, self.sequence, self.preconditioner, self.cosine = weighted, sequence, preconditioner, cosine
        self.chooser = ValidationSet(validation, data.num_validation)
        self.num_rollouts = 0
        self._lora = LoraPreconditioner()
        self._chosen: Samples | None = None
        self._halves: tuple[np.ndarray, ...] = ()

    def scores(
        self, policy: InfluencePolicy, samples: Samples, advantages: torch.Tensor, step: int
    ) -> tuple[np.ndarray | None, dict[str, float]]:
        """(B,) float64, or None where none are wanted or G does not exist; and what is known about G."""
        ghost, in_batch = policy.ghost, self.settings.strategy == "in_batch"
        ghost.reset_validation()
        metrics: dict[str, float] = {}
        if in_batch:
            with ghost.validation():
                policy.loss(samples, advantages, samples.mask).backward()
        elif self.exact:
            with ghost.validation():
                self._exact_loss(policy).backward()
        elif not self._validation_gradient(policy, step, metrics):
            return None, metrics
        if self.gradient_only:
            return None, metrics
        with_norms = in_batch or self.cosine
        self._precondition(policy, keep=with_norms)
        ghost.reset_scores()
        with ghost.scoring(policy.sample_index(samples), keep_gradients=with_norms, check_identity=step == 1):
            policy.loss(samples, advantages, samples.mask).backward()
        scores = ghost.scores(len(samples.mask))
        if in_batch:
            scores = scores - ghost.self_influence(len(samples.mask))
        if self.cosine:
            norms = ghost.self_influence(len(samples.mask)).clamp_min(0).sqrt()
            scores = torch.where(norms > 0, scores / norms, torch.zeros_like(scores))
        if step == 1:
            metrics["identity_error"] = ghost.identity_error()
        ghost.reset_scores()
        return scores.numpy(), metrics

    def agreement_with_exact(self, policy: InfluencePolicy) -> float:
        """Cosine of the G in use and the exact one, both preconditioned if G is."""
        ghost = policy.ghost
        ours = flat(ghost.validation_gradients()).clone()
        ghost.reset_validation()
        with ghost.validation():
            self._exact_loss(policy).backward()
        self._precondition(policy)
        return float(torch.cosine_similarity(ours, flat(ghost.validation_gradients()), dim=0))

    def _precondition(self, policy: InfluencePolicy, *, keep: bool = False) -> None:
        if self.preconditioner == "none":
            return
        parameters = dict(policy.model.named_parameters())
        if self.preconditioner == "lora":
            self._lora.apply(policy.ghost.validation_gradients())
            return
        factors = adam_factors(policy.optimizer, {name: parameters[name] for name in policy.ghost.names})
        if factors is not None:
            policy.ghost.precondition(factors, keep=keep)

    def after_update(self, policy: InfluencePolicy) -> None:
        """Take note of the gradient of an update."""
        if self.preconditioner == "lora":
            parameters = dict(policy.model.named_parameters())
            gradients = {name: parameters[name].grad for name in policy.ghost.names}
            self._lora.observe({name: gradient for name, gradient in gradients.items() if gradient is not None})

    def _exact_loss(self, policy: InfluencePolicy) -> torch.Tensor:
        rows = range(self.data.num_train, self.data.num_train + self.data.num_validation)
        answers = policy.tensors([Rollout(row, policy.task.answers[row], torch.empty(0), 1.0) for row in rows])
        log_probs = policy.log_probs(answers)
        return -(log_probs * answers.mask).sum(1).exp().mean()

    def _validation_gradient(self, policy: InfluencePolicy, step: int, metrics: dict[str, float]) -> bool:
        """G as verl_ext/influence/worker.py makes it, in two halves."""
        if self.chooser.needs_refresh(step):
            places = np.repeat(self.chooser.prompts_to_roll_out(step), self.settings.rollouts_per_prompt)
            rollouts = policy.sample((self.data.num_train + places).tolist())
            self.num_rollouts += len(rollouts)
            surprises = [float(1 - rollout.log_probs.exp().mean()) for rollout in rollouts]
            choice = self.chooser.choose(step, [rollout.reward for rollout in rollouts], places, surprises)
            self._chosen = None if choice.is_degenerate else policy.tensors([rollouts[i] for i in choice.indices])
            self._halves = two_halves(choice.advantages, places[choice.indices])
        if self._chosen is None:
            return False
        assert self.chooser.choice is not None
        advantages, halves = self.chooser.choice.advantages, []
        for half in self._halves:
            with policy.ghost.validation():
                self._share_of_loss(policy, self._chosen.part(half), advantages[half], self._chosen).backward()
            halves.append(flat(policy.ghost.validation_gradients()).clone())
        first, second = halves[0], halves[1] - halves[0]
        metrics["half_agreement"] = float(torch.cosine_similarity(first, second, dim=0))
        return True

    def _share_of_loss(
        self, policy: InfluencePolicy, part: Samples, advantages: np.ndarray, whole: Samples
    ) -> torch.Tensor:
        """What a part adds to the loss of the whole validation set, whose divisor is that of all rollouts."""
        if not self.sequence:
            loss = policy.validation_loss(part, advantages, weighted=self.weighted)
            return loss * part.mask.sum() / float(whole.mask.sum())
        log_probs = policy.log_probs(part)
        each = torch.from_numpy(advantages).float()[:, None].expand_as(log_probs)
        return sequence_loss(log_probs, part.mask, each) * len(part.mask) / len(whole.mask)
