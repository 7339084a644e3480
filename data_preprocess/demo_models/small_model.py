"""The small Qwen2 that all CPU demos train from scratch, and their shared settings."""

from dataclasses import dataclass
from typing import Protocol

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from data_preprocess.demo_models.model_training import Optimization


class Vocabulary(Protocol):
    """The properties of a tokenizer that a model needs."""

    @property
    def eos_token_id(self) -> int | None: ...
    @property
    def pad_token_id(self) -> int | None: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class SmallModelSettings:
    """Settings of a demo's base model, extended by each script; raises ValueError on a value out of range.

    Attributes:
        seed: Seed of the initial weights and of the corpus.
        steps: Optimizer steps.
        learning_rate: Peak of the schedule in `model_training.fit`.
        beta2: Second-moment decay of AdamW; beta1 is .9.
        weight_decay: Weight decay of AdamW.
        hidden_size: Width of the residual stream.
        num_layers: Transformer layers.
        num_heads: Attention heads.
        intermediate_size: Width of the MLP.
        initializer_range: Standard deviation of the initial weights. Qwen2's own 0.02 is meant for wide models; narrow
            models learn late with it, at a step that depends on the seed.
    """

    seed: int = 0
    steps: int
    learning_rate: float = 3e-3
    beta2: float = 0.98
    weight_decay: float
    hidden_size: int = 128
    num_layers: int = 2
    num_heads: int = 4
    intermediate_size: int = 256
    initializer_range: float = 0.05

    def __post_init__(self) -> None:
        if self.hidden_size % (32 * self.num_heads):
            raise ValueError(
                f"head size hidden_size / num_heads must be a multiple of 32 (vLLM has no kernel for smaller heads on "
                f"a CPU), got {self.hidden_size} / {self.num_heads}"
            )
        if min(self.steps, self.num_layers) < 1:
            raise ValueError(f"steps and num_layers must be at least 1, got {self}")

    @property
    def optimization(self) -> Optimization:
        return Optimization(self.steps, self.learning_rate, self.beta2, self.weight_decay)


def build_model(settings: SmallModelSettings, tokenizer: Vocabulary, max_position_embeddings: int) -> Qwen2ForCausalLM:
    """The untrained model in float32; its vocabulary is exactly the tokenizer's.

    (verl masks surplus logits in the rollout engine only, so a larger vocabulary makes the log-probs of engine and
    trainer differ.)
    """
    torch.manual_seed(settings.seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        num_key_value_heads=settings.num_heads,
        initializer_range=settings.initializer_range,
        max_position_embeddings=max_position_embeddings,
        tie_word_embeddings=False,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config)
    # No temperature and no top-k/top-p: engines use those as defaults, and RL must sample from the unchanged model.
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model
