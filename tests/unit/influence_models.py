"""Tiny models and batches on which influence scores can be computed by brute force."""

import itertools
from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 64


def lora_model(dtype: torch.dtype = torch.float64, seed: int = 0, **lora) -> nn.Module:
    """Two Qwen2 layers with LoRA on every Linear; the factors are random, as B = 0 would hide errors in A."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = Qwen2ForCausalLM(config)
    settings = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": "all-linear"} | lora
    model = get_peft_model(model, LoraConfig(**settings))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(parameter, std=0.2)
    # Qwen2's own norm computes in float32, which would limit what a float64 test can see.
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "Qwen2RMSNorm":
                norm = nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon)
                norm.weight.requires_grad_(child.weight.requires_grad)
                setattr(module, name, norm)
    return model.to(dtype)


@dataclass
class Batch:
    """Samples of unequal length: token ids, and an advantage for each. Prompt tokens have no loss."""

    tokens: list[torch.Tensor]
    advantages: list[float]

    def __len__(self) -> int:
        return len(self.tokens)


def make_batch(num_samples: int, seed: int = 1, longest: int = 12) -> Batch:
    """Random tokens, at least 3 per sample."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, longest + 1, (num_samples,), generator=generator).tolist()
    tokens = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in lengths]
    return Batch(tokens, torch.randn(num_samples, generator=generator).tolist())


def sample_loss(logits_TV: torch.Tensor, tokens_T: torch.Tensor, advantage: float) -> torch.Tensor:
    """Policy-gradient loss of one sample; the first token is its prompt. The batch's denominator is fixed."""
    log_probs = logits_TV[:-1].log_softmax(-1).gather(1, tokens_T[1:, None])
    return -advantage * log_probs.sum() / 16


def sample_losses(model: nn.Module, batch: Batch, samples: list[int], layout: str = "padded") -> torch.Tensor:
    """Losses of some of a batch's samples, in one forward; the layout is "padded" or "packed"."""
    index = sample_index(batch, samples, layout)
    tokens = [batch.tokens[sample] for sample in samples]
    if layout == "padded":
        ids = nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=VOCABULARY - 1)
        logits = model(input_ids=ids, attention_mask=(index >= 0).long()).logits
        rows = [logits[row, : len(part)] for row, part in enumerate(tokens)]
    else:
        positions = torch.cat([torch.arange(len(part)) for part in tokens])
        logits = model(input_ids=torch.cat(tokens)[None], position_ids=positions[None]).logits[0]
        rows = logits.split([len(part) for part in tokens])
    return torch.stack(
        [sample_loss(row, batch.tokens[i], batch.advantages[i]) for row, i in zip(rows, samples, strict=True)]
    )


def sample_index(batch: Batch, samples: list[int], layout: str = "padded") -> torch.Tensor:
    """Which sample of the batch each token of the grid belongs to."""
    rows = [torch.full((len(batch.tokens[sample]),), sample) for sample in samples]
    if layout == "packed":
        return torch.cat(rows)[None]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


class MixingNet(nn.Module):
    """Linear layers with biases between an embedding and a loss: the layers are narrow, wide and square."""

    def __init__(self, sizes: tuple[int, ...] = (8, 2, 16, 16, 3), dtype: torch.dtype = torch.float64):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, sizes[0])
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))
        self.to(dtype)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Per-sample losses, (B,). Tokens of a row are mixed, as in attention."""
        x = self.embedding(ids_BT)
        for layer in self.layers:
            x = torch.tanh(layer(x + x.mean(1, keepdim=True)))
        return x.square().sum((1, 2))


def micro_batches(num_samples: int, size: int) -> list[list[int]]:
    """Consecutive samples."""
    return [list(range(start, min(start + size, num_samples))) for start in range(0, num_samples, size)]
