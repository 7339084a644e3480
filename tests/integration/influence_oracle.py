"""The reference for influence scores of verl's worker: verl's own loss, one row at a time, by plain autograd.

A Hugging Face model in one process, one unpadded row per forward pass: no FSDP, no micro-batches, no padding, no
worker. The gradient of row i is that of verl's loss of only this row with the denominators of its whole mini-batch, so
the gradients of a mini-batch add up to the gradient of its loss.

Axes: B rows, T tokens of a response, V vocabulary.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import nn

Gradients = dict[str, torch.Tensor]
Rows = list[dict[str, torch.Tensor]]

NUM_ROWS, NUM_VALIDATION = 16, 8
HIDDEN_SIZE = 32
TEMPERATURE = 0.75
HORIZON = 11
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
LORA, FULL = "lora", r"layers\.\d+\.(self_attn|mlp)\."
LORA_SETTINGS = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": "all-linear"}
# Rows without a token to learn from, and rows whose responses are interrupted by the environment.
EMPTY_ROWS, INTERRUPTED_ROWS = (3, 9), (1, 12)


# ------------------------------ models ------------------------------


def keep_precision(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let Qwen2's norm, which computes in float32, keep float64; nothing changes for other dtypes."""
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

    def forward(self: Any, hidden: torch.Tensor) -> torch.Tensor:
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(hidden.dtype)

    replace(Qwen2RMSNorm, "forward", forward)


def save_models(folder: Path) -> None:
    """A tiny random Qwen2 and a LoRA adapter whose B factors are nonzero, unlike at initialization."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer

    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN_SIZE,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **LORA_SETTINGS))
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            nn.init.normal_(parameter, std=0.2)
    adapted.save_pretrained(folder / "adapter")


def load_model(folder: Path, parameters: str, dtype: torch.dtype) -> nn.Module:
    """The model that verl's engine loads, unsharded and in this process."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "model", attn_implementation="sdpa")
    if parameters == LORA:
        model = PeftModel.from_pretrained(model, folder / "adapter", is_trainable=True)
    return model.to(dtype)


def scored_names(model: nn.Module, parameters: str) -> list[str]:
    """Names of the parameters that scores are computed over, selected by a pattern."""
    pattern = r"lora_[AB]\." if parameters == LORA else parameters
    return [name for name, p in model.named_parameters() if p.requires_grad and re.search(pattern, name)]


# ------------------------------ data ------------------------------


def make_rows(folder: Path, num_rows: int = NUM_ROWS, seed: int = 1) -> Rows:
    """Rows as the actor gets them, of different lengths; off-policy enough for PPO to clip some tokens."""
    generator = torch.Generator().manual_seed(seed)
    model = load_model(folder, LORA, torch.float64).eval()

    def normal(length: int, scale: float) -> torch.Tensor:
        return scale * torch.randn(length, generator=generator, dtype=torch.float64)

    rows: Rows = []
    for number in range(num_rows):
        prompt, response = (int(torch.randint(2, longest, (1,), generator=generator)) for longest in (7, HORIZON + 1))
        tokens = torch.randint(0, 250, (prompt + response,), generator=generator)
        mask = torch.ones(response, dtype=torch.int64)
        if number in EMPTY_ROWS:
            mask[:] = 0
        if number in INTERRUPTED_ROWS:
            mask[response // 2] = 0
        row = {"input_ids": tokens, "prompts": tokens[:prompt], "responses": tokens[prompt:]}
        with torch.no_grad():
            log_probs = outputs_of(model, row)["log_probs"].values()[prompt - 1 : -1]
        row |= {
            "position_ids": torch.arange(len(tokens)),
            "response_mask": mask,
            "loss_mask": mask,
            "old_log_probs": log_probs + normal(response, 0.15),
            "ref_log_prob": log_probs + normal(response, 0.3),
            "rollout_log_probs": log_probs + normal(response, 0.6),
            "rollout_is_weights": normal(response, 0.3).exp(),
            "advantages": normal(1, 1.0).expand(response).clone(),
            "validation_advantage": normal(1, 1.0),
        }
        rows.append(row)
    return rows


def as_batch(rows: Iterable[dict[str, torch.Tensor]], terms: bool, dtype: torch.dtype, **settings: Any) -> TensorDict:
    """Nested rows and settings, as verl's actor receives them.

    Args:
        rows: From `make_rows`.
        terms: Whether to include the fields of all terms of the loss, see `actor_config`.
        dtype: Dtype of the floating-point fields; verl's are float32.
        settings: Non-tensor fields.
    """
    from verl.utils import tensordict_utils as tu

    rows, fields = list(rows), {}
    for name in rows[0]:
        if name in ("ref_log_prob", "rollout_is_weights", "rollout_log_probs") and not terms:
            continue
        column = [row[name].to(dtype) if row[name].is_floating_point() else row[name] for row in rows]
        if name == "validation_advantage":
            fields[name] = torch.cat(column)
        else:
            fields[name] = torch.nested.as_nested_tensor(column, layout=torch.jagged)
    return tu.get_tensordict(fields, {"temperature": TEMPERATURE, "calculate_entropy": terms} | settings)


def actor_config(mode: str, terms: bool) -> Any:
    """verl's settings of the loss; `terms`: with entropy, KL and the rollout's importance weights."""
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode=mode,
        loss_scale_factor=HORIZON,
        entropy_coeff=0.05 if terms else 0.0,
        use_kl_loss=terms,
        kl_loss_coef=0.3,
    )


# ------------------------------ gradients ------------------------------


def outputs_of(model: nn.Module, row: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Log-probs of the next tokens and entropies of one row, (1, its tokens) nested, as verl's engine returns them."""
    tokens = row["input_ids"]
    logits_TV = model(input_ids=tokens[None]).logits[0] / TEMPERATURE
    all_TV = logits_TV.log_softmax(-1)
    picked = all_TV.gather(1, tokens.roll(-1)[:, None])[:, 0]
    entropy = -(all_TV.exp() * all_TV).sum(-1)
    offsets = torch.tensor([0, len(tokens)])
    return {
        "log_probs": torch.nested.nested_tensor_from_jagged(picked, offsets),
        "entropy": torch.nested.nested_tensor_from_jagged(entropy, offsets),
    }


def num_tokens(rows: Rows) -> int:
    return int(sum(row["loss_mask"].sum() for row in rows))


def row_gradients(
    model: nn.Module, names: list[str], rows: Rows, mode: str, terms: bool, mini_batch_of: list[int] | None = None
) -> list[Gradients]:
    """Gradient of each row's share of verl's `ppo_loss`.

    Args:
        model: From `load_model`.
        names: Names of the parameters.
        rows: (B,).
        mode: loss_agg_mode.
        terms: Whether to include all terms of the loss.
        mini_batch_of: (B,) number of each row's mini-batch, over which its loss is normalised; None: all in one.
    """
    from verl.workers.utils.losses import ppo_loss

    config, mini_batch_of = actor_config(mode, terms), mini_batch_of or [0] * len(rows)
    gradients = []
    for row, number in zip(rows, mini_batch_of, strict=True):
        mini_batch = [other for other, its in zip(rows, mini_batch_of, strict=True) if its == number]
        outputs = outputs_of(model, row)
        if not terms:
            outputs.pop("entropy")
        data = as_batch(
            [row],
            terms,
            torch.float64,
            dp_size=1,
            batch_num_tokens=num_tokens(mini_batch),
            global_batch_size=len(mini_batch),
        )
        loss, _ = ppo_loss(config, outputs, data)
        gradients.append(_gradient(model, names, loss))
    return gradients


def validation_gradients(model: nn.Module, names: list[str], rows: Rows, mode: str, terms: bool) -> list[Gradients]:
    """Gradient of each validation row's share of -A log pi; with `terms`, times truncated importance weights."""
    from verl.trainer.ppo.core_algos import agg_loss

    gradients = []
    for row in rows:
        prompt = len(row["prompts"])
        log_probs = outputs_of(model, row)["log_probs"].values()[prompt - 1 : -1]
        weights = torch.ones_like(log_probs)
        if terms:
            weights = (log_probs.detach() - row["rollout_log_probs"]).exp().clamp(max=2.0)
        loss = agg_loss(
            loss_mat=-row["validation_advantage"] * (weights * log_probs)[None],
            loss_mask=row["response_mask"][None].bool(),
            loss_agg_mode=mode,
            batch_num_tokens=num_tokens(rows),
            global_batch_size=len(rows),
            loss_scale_factor=HORIZON,
        )
        gradients.append(_gradient(model, names, loss))
    return gradients


def _gradient(model: nn.Module, names: list[str], loss: torch.Tensor) -> Gradients:
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(loss, [parameters[name] for name in names])
    return {name: gradient.double() for name, gradient in zip(names, found, strict=True)}


def total(gradients: Iterable[Gradients]) -> Gradients:
    gradients = list(gradients)
    return {name: sum(gradient[name] for gradient in gradients) for name in gradients[0]}


def inner(left: Gradients, right: Gradients) -> float:
    return float(sum((left[name].double() * right[name].double()).sum() for name in left))


def products(gradients: list[Gradients], direction: Gradients) -> torch.Tensor:
    """(B,) float64."""
    return torch.tensor([inner(gradient, direction) for gradient in gradients], dtype=torch.float64)
