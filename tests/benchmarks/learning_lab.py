"""A policy in plain PyTorch, small enough for many seeds: samples, is trained by verl's own estimators and loss.

The engines of a real run cost 10 to 20 ms per rollout on a CPU, this one a third of a millisecond, so that a comparison
of sampling methods can have many seeds and tuned learning rates. The methods (which prompts, how many rollouts, what is
trained on) are the product's own code and verl's own; the difference from a run is that everything happens in one
process and one precision.

Advantages: `verl.trainer.ppo.core_algos`; loss: `compute_policy_loss_vanilla` (clip .2/.28, token-mean); samples that
waited: `compute_rollout_correction_weights` (token-level truncated importance sampling, as in the recipe).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from lean_qwen2 import LeanQwen2
from learning_tasks import Question, Task, build_task
from transformers import AutoModelForCausalLM, DynamicCache
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, get_adv_estimator_fn
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.utils.torch_functional import logprobs_from_logits

from data_preprocess.arithmetic import POOLS, PoolSettings, answer, build_rows, draw_pairs

MAX_PROMPT, MAX_RESPONSE = 20, 10  # of `data_preprocess.arithmetic`, in tokens
FIELDS = ("digits_first", "digits_second")


@dataclass
class Rollout:
    """One completion.

    Attributes:
        prompt: Row of `Task.prompts`.
        response: Token ids, the end-of-text token included if it came.
        log_probs: Of these tokens under the policy that sampled them, float32.
        reward: 1 for the exact answer, else 0.
        hint: Tokens of the right completion after the prompt; `response` continues from there.
    """

    prompt: int
    response: list[int]
    log_probs: torch.Tensor
    reward: float
    hint: int = 0


def make_task(pool: str, size: int, *, held_out: int = 512, seed: int = 0) -> Task:
    """A pool of `data_preprocess.arithmetic` and as many other core prompts as `held_out`."""
    rows = build_rows(PoolSettings(train_size=size, val_size=1, shares=POOLS[pool], seed=seed))["train"]
    return task_of_rows(rows, held_out, seed)


def task_of_rows(rows: Sequence[dict[str, Any]], held_out: int, seed: int) -> Task:
    """Rows of `data_preprocess.arithmetic` and as many other core prompts as `held_out`."""
    questions = [
        Question(
            text=row["prompt"][0]["content"],
            answer=row["reward_model"]["ground_truth"],
            kind=row["extra_info"]["kind"],
            fields={name: row["extra_info"][name] for name in FIELDS},
        )
        for row in rows
    ]
    known = {question.text for question in questions}
    pairs = draw_pairs("core", 4 * held_out, np.random.default_rng(10_000 + seed))
    unseen = [(a, b) for a, b in pairs if f"{a}+{b}=" not in known][:held_out]
    return build_task(
        questions,
        [Question(f"{a}+{b}=", answer(a, b), "core") for a, b in unseen],
        max_prompt=MAX_PROMPT,
        max_response=MAX_RESPONSE,
    )


class Policy:
    """The base model with an optimizer.

    Args:
        base: Folder of the base model.
        task: What it answers.
        learning_rate: Learning rate of AdamW (betas .9, .999, no decay); gradients are clipped to norm 1.
        estimator: verl's name of an advantage estimator.
        seed: Seed of the sampling.
        compact: Leave everything without a gradient out of the update, rollouts without an advantage and columns of
            padding, and compute by `lean_qwen2.py`. The gradient is the same up to the order of its sums, for a third
            to all of the time.
    """

    def __init__(
        self, base: Path, task: Task, *, learning_rate: float, estimator: str, seed: int, compact: bool = False
    ) -> None:
        self.task, self.compact = task, compact
        self.model = copy.deepcopy(_load(base))
        self.lean = LeanQwen2(self.model, task.pad, task.end) if compact else None
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, weight_decay=0.0)
        self.estimator = get_adv_estimator_fn(estimator)
        self.generator = torch.Generator().manual_seed(seed)
        self.version = 0
        self.loss_config = SimpleNamespace(
            clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28, get=lambda name, default=None: default,
            global_batch_info={},
        )  # fmt: skip

    @torch.no_grad()
    def sample(self, prompts: Sequence[int]) -> list[Rollout]:
        """One rollout at temperature 1 for each entry of `prompts`, rows of the task's prompts."""
        rollouts: list[Rollout] = []
        for start in range(0, len(prompts), 1024):
            rollouts += self._sample_chunk(prompts[start : start + 1024])
        return rollouts

    def _sample_chunk(self, prompts: Sequence[int]) -> list[Rollout]:
        # Equal prompts share their prefill.
        unique, inverse = torch.unique(torch.tensor(prompts), return_inverse=True)
        ids = self.task.prompts[unique]
        if self.lean is None:
            tokens_BT, log_probs_BT, lengths_B = self._decode(ids, inverse)
        else:
            tokens_BT, log_probs_BT, lengths_B = self.lean.sample(ids, inverse, self.task.max_response, self.generator)
        out = []
        for row, (prompt, length) in enumerate(zip(prompts, lengths_B.tolist(), strict=True)):
            response = tokens_BT[row, :length].tolist()
            reward = float(response == self.task.answers[prompt])
            out.append(Rollout(prompt, response, log_probs_BT[row, :length].clone(), reward))
        return out

    def _decode(self, ids: torch.Tensor, inverse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(B, T) token ids, padded on the right; their log-probs; (B,) the responses' lengths."""
        mask = (ids != self.task.pad).long()
        cache = DynamicCache()
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        logits = self.model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache).logits[:, -1]
        cache.batch_select_indices(inverse)
        logits, mask, position = logits[inverse], mask[inverse], positions[inverse, -1:]
        tokens, log_probs = [], []
        alive = torch.ones(len(inverse), dtype=torch.bool, device=ids.device)
        for step in range(self.task.max_response):
            distribution = torch.log_softmax(logits, -1)
            token = torch.multinomial(distribution.exp(), 1, generator=self.generator)
            log_probs.append(distribution.gather(1, token))
            tokens.append(torch.where(alive[:, None], token, self.task.pad))
            alive = alive & (token[:, 0] != self.task.end)
            if step == self.task.max_response - 1 or not alive.any():
                break
            mask = torch.cat([mask, torch.ones_like(token)], 1)
            position = position + 1
            logits = self.model(token, attention_mask=mask, position_ids=position, past_key_values=cache).logits[:, -1]
        tokens_BT = torch.cat(tokens, 1)
        return tokens_BT, torch.cat(log_probs, 1), (tokens_BT != self.task.pad).sum(1)

    def update(
        self,
        rollouts: Sequence[Rollout],
        groups: Sequence[str],
        weights: np.ndarray | None = None,
        advantages: np.ndarray | None = None,
        *,
        updates: int = 1,
    ) -> dict[str, float]:
        """This many optimizer steps on one batch; the weights count as one version newer.

        Args:
            rollouts: B of them.
            groups: Name of each one's prompt.
            weights: (B,) factors on the advantages; None: 1.
            advantages: (B,), one per rollout, in place of the estimator's.
            updates: Steps, each on the whole batch; verl's loss clips how far its ratios leave those of the first.

        Returns:
            Norm of the gradient and loss of the last step.
        """
        prompt_ids = self._prompt_ids(rollouts)
        responses, rollout_log_probs, mask = self._padded_responses(rollouts)
        if advantages is None:
            rewards = torch.zeros_like(mask)
            for row, rollout in enumerate(rollouts):
                rewards[row, len(rollout.response) - 1] = rollout.reward
            advantages_BT, _ = self.estimator(
                token_level_rewards=rewards, response_mask=mask, index=np.array(groups, dtype=object)
            )
        else:
            advantages_BT = torch.from_numpy(advantages).to(mask)[:, None] * mask
        if weights is not None:
            advantages_BT = advantages_BT * torch.from_numpy(weights).to(advantages_BT)[:, None]
        self.loss_config.global_batch_info = {"batch_num_tokens": mask.sum()}  # of all rollouts
        if self.compact:
            rows = (advantages_BT != 0).any(1)
            rows[0] |= not rows.any()  # AdamW moves by its momentum where there is no gradient
            prompt_ids, responses, rollout_log_probs = prompt_ids[rows], responses[rows], rollout_log_probs[rows]
            mask, advantages_BT = mask[rows], advantages_BT[rows]
        old_log_probs = is_weights = None
        norm = loss = torch.zeros(())
        for _ in range(updates):
            log_probs = self._completion_log_probs(prompt_ids, responses)
            if old_log_probs is None:
                old_log_probs = log_probs.detach()
                is_weights, _ = compute_rollout_correction_weights(
                    old_log_probs - rollout_log_probs, mask, rollout_is="token", rollout_is_threshold=2.0
                )
            loss, _ = compute_policy_loss_vanilla(
                old_log_prob=old_log_probs,
                log_prob=log_probs,
                advantages=advantages_BT,
                response_mask=mask,
                loss_agg_mode="token-mean",
                config=self.loss_config,
                rollout_is_weights=is_weights,
            )
            self.optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        self.version += 1
        return {"grad_norm": float(norm), "loss": float(loss.detach())}

    @torch.no_grad()
    def drift(self, rollouts: Sequence[Rollout]) -> np.ndarray:
        """(B,) mean |change| of the log-prob of a response's tokens since it was sampled, in nats per token."""
        responses, rollout_log_probs, mask = self._padded_responses(rollouts)
        log_probs = self._log_probs(torch.tensor([rollout.prompt for rollout in rollouts]), responses)
        changes = (log_probs - rollout_log_probs).abs() * mask
        return (changes.sum(1) / mask.sum(1)).double().numpy()

    def _prompt_ids(self, rollouts: Sequence[Rollout]) -> torch.Tensor:
        """(B, L) what stood before each response, padded on the left."""
        return self.task.prompts[torch.tensor([rollout.prompt for rollout in rollouts])]

    def _padded_responses(self, rollouts: Sequence[Rollout]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(B, T) token ids, log-probs as sampled, and the mask of the responses' own tokens."""
        width = max(len(rollout.response) for rollout in rollouts)
        responses = torch.full((len(rollouts), width), self.task.pad)
        log_probs = torch.zeros(len(rollouts), width)
        mask = torch.zeros(len(rollouts), width)
        for row, rollout in enumerate(rollouts):
            length = len(rollout.response)
            responses[row, :length] = torch.tensor(rollout.response)
            log_probs[row, :length] = rollout.log_probs
            mask[row, :length] = 1.0
        return responses, log_probs, mask

    def _log_probs(self, prompts: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
        return self._completion_log_probs(self.task.prompts[prompts], responses)

    def _completion_log_probs(self, prompt_ids: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
        """(B, T) log-probs of the responses' tokens; those of padding mean nothing."""
        if self.lean is not None:
            return self.lean.log_probs(prompt_ids, responses)
        return completion_log_probs(self.model, prompt_ids, responses, self.task.pad)

    def accuracy(self) -> float:
        """Exact pass@1 at temperature 1 on the held-out prompts, the mean over the domains."""
        by_domain = self.accuracy_by_domain()
        return sum(by_domain.values()) / len(by_domain)

    @torch.no_grad()
    def accuracy_by_domain(self) -> dict[str, float]:
        """Exact pass@1 at temperature 1 on each domain's held-out prompts: mean probability of the right completion."""
        log_probs = self._completion_log_probs(self.task.held_out_prompts, self.task.held_out_answers)
        return _held_out_accuracy(self.task, log_probs)


@torch.no_grad()
def held_out_accuracy(model: torch.nn.Module, task: Task) -> dict[str, float]:
    """As `Policy.accuracy_by_domain`, of any causal language model of transformers."""
    log_probs = completion_log_probs(model, task.held_out_prompts, task.held_out_answers, task.pad)
    return _held_out_accuracy(task, log_probs)


def _held_out_accuracy(task: Task, log_probs: torch.Tensor) -> dict[str, float]:
    right = (log_probs * (task.held_out_answers != task.pad)).sum(1).exp()
    domains = torch.from_numpy(task.held_out_domains)
    return {name: float(right[domains == index].mean()) for index, name in enumerate(task.domain_names)}


def completion_log_probs(
    model: torch.nn.Module, prompt_ids: torch.Tensor, responses: torch.Tensor, pad: int
) -> torch.Tensor:
    """(B, T) log-probs of (B, T) responses' tokens after prompts padded on the left; those of padding mean nothing."""
    ids = torch.cat([prompt_ids, responses], 1)
    mask = (ids != pad).long()
    mask[:, prompt_ids.shape[1] :] = 1
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    logits = model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    return logprobs_from_logits(logits[:, prompt_ids.shape[1] - 1 : -1], responses)


_LOADED: dict[Path, torch.nn.Module] = {}


def _load(base: Path) -> torch.nn.Module:
    if base not in _LOADED:
        _LOADED[base] = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    return _LOADED[base]
