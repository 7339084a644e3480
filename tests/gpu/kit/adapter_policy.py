"""The policy of tests/benchmarks/learning_lab.py with a pretrained model on an accelerator, trained through LoRA.

The lab samples by its own loop over a key-value cache, here with all tensors on the device, and weighs and updates on
the CPU. Logits and log-probs are float32 throughout, so sampling and training have the same policy.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from learning_lab import Policy, Rollout
from peft import LoraConfig, get_peft_model
from torch import nn
from verl.utils.torch_functional import logprobs_from_logits
from word_problems import Problems

from verl_ext.rewards.math_answer import compute_score

LORA_RANK = 8
# Responses per held-out question in an evaluation.
LOOK_SAMPLES = 2
LOOK_SEED = 1234
# Rows decoded at once in an evaluation: the cache takes 41 MB per row of 450 tokens.
LOOK_ROWS = 128


class Tempered(nn.Module):
    """A model's logits divided by a temperature, without one token."""

    def __init__(self, model: nn.Module, device: str, temperature: float, without: int) -> None:
        super().__init__()
        self.model, self.device, self.temperature, self.without = model, device, temperature, without

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, keep: int, cache: Any = None):
        """(B, keep, V) float32 on the device: logits of the last `keep` positions."""
        found = self.model(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=keep,
        ).logits
        forbidden = torch.zeros(found.shape[-1], dtype=torch.bool, device=found.device)
        forbidden[self.without] = True
        return (found.float() / self.temperature).masked_fill(forbidden, float("-inf"))

    def forward(self, ids: torch.Tensor, *, attention_mask, position_ids, past_key_values) -> SimpleNamespace:
        """The call by which the lab asks a transformers model for its next token."""
        return SimpleNamespace(logits=self.logits(ids, attention_mask, position_ids, 1, past_key_values))


class AdapterPolicy(Policy):
    """A LoRA adapter on a pretrained model.

    Args:
        base: Folder of the model.
        problems: The problems that it answers, judged by verl-signal's reward for math.
        device: Device of the model.
        temperature: Temperature of sampling and of the trained policy.
        learning_rate, estimator, seed: As in `Policy`; the seed also initializes the adapter.

    Attributes:
        log: Every call of `sample` so far.
    """

    def __init__(
        self,
        base: Path,
        problems: Problems,
        *,
        device: str,
        temperature: float,
        learning_rate: float,
        estimator: str,
        seed: int,
    ) -> None:
        super().__init__(base, problems.task, learning_rate=learning_rate, estimator=estimator, seed=seed)
        self.problems, self.device = problems, device
        torch.manual_seed(seed)
        lora = LoraConfig(r=LORA_RANK, lora_alpha=2 * LORA_RANK, lora_dropout=0.0, target_modules="all-linear")
        adapted = get_peft_model(self.model, lora).to(device)
        adapted.gradient_checkpointing_enable({"use_reentrant": False})
        self.model = Tempered(adapted, device, temperature, self.task.pad)
        self.trained = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        self.optimizer = torch.optim.AdamW(self.trained.values(), lr=learning_rate, weight_decay=0.0)
        self.log: list[list[Rollout]] = []

    def sample(self, prompts: Sequence[int]) -> list[Rollout]:
        """One rollout for each entry of `prompts`, with its reward."""
        self.model.eval()  # with gradient checkpointing, transformers uses no cache in training mode
        rollouts = super().sample(prompts)
        texts = self._texts([rollout.response for rollout in rollouts])
        judged = [
            dataclasses.replace(rollout, reward=score(text, self.problems.truths[rollout.prompt]))
            for rollout, text in zip(rollouts, texts, strict=True)
        ]
        self.log.append(judged)
        return judged

    def _completion_log_probs(self, prompt_ids: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
        self.model.train()
        ids = torch.cat([prompt_ids, responses], 1)
        mask = (ids != self.task.pad).long()
        mask[:, prompt_ids.shape[1] :] = 1
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        logits_BTV = self.model.logits(ids, mask, positions, responses.shape[1] + 1)[:, :-1]
        # Padding has no probability; its log-prob is not used, and must be finite for the gradient to be.
        tokens_BT = responses.masked_fill(responses == self.task.pad, self.task.end)
        return logprobs_from_logits(logits_BTV, tokens_BT.to(logits_BTV.device)).cpu()

    @torch.no_grad()
    def accuracy_by_domain(self) -> dict[str, float]:
        """Sampled pass@1 on the held-out problems, from the same seed every time; training is not affected."""
        self.model.eval()
        own, self.generator = self.generator, torch.Generator().manual_seed(LOOK_SEED)
        numbers = torch.arange(len(self.task.held_out_prompts)).repeat_interleave(LOOK_SAMPLES)
        responses: list[list[int]] = []
        try:
            for some in numbers.split(LOOK_ROWS):
                unique, inverse = torch.unique(some, return_inverse=True)
                tokens_BT, _, lengths_B = self._decode(self.task.held_out_prompts[unique], inverse)
                responses += [tokens_BT[row, :length].tolist() for row, length in enumerate(lengths_B.tolist())]
        finally:
            self.generator = own
        truths = [self.problems.held_out_truths[number] for number in numbers.tolist()]
        scores = [score(text, truth) for text, truth in zip(self._texts(responses), truths, strict=True)]
        return {self.task.domain_names[0]: sum(scores) / len(scores)}

    def _decode(self, ids: torch.Tensor, inverse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # The device draws: a token for each of 128 rows of 49k logits takes the CPU longer than the model. Its
        # generator is seeded by the policy's, whose state is the only one to save.
        own = self.generator
        seed = int(torch.randint(2**62, (), generator=own))
        self.generator = torch.Generator(self.device).manual_seed(seed)
        try:
            tokens_BT, log_probs_BT, lengths_B = super()._decode(ids.to(self.device), inverse.to(self.device))
        finally:
            self.generator = own
        return tokens_BT.cpu(), log_probs_BT.cpu(), lengths_B.cpu()

    def _texts(self, responses: Sequence[Sequence[int]]) -> list[str]:
        return self.problems.tokenizer.batch_decode(responses, skip_special_tokens=True)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` of a new policy with the same arguments needs to continue, without the log."""
        return {
            "version": self.version,
            "weights": {name: weight.detach().cpu() for name, weight in self.trained.items()},
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.version = state["version"]
        with torch.no_grad():
            for name, weight in self.trained.items():
                weight.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])


def score(text: str, truth: str) -> float:
    """1 for a right answer, else 0."""
    return float(compute_score("svamp", text, truth)["score"])
