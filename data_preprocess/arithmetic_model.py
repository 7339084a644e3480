"""Train the base model of the arithmetic task: a small Qwen2 that adds digit by digit and forgets carries.

    python -m data_preprocess.arithmetic_model --local_save_dir outputs/models/arithmetic_base

About a minute on one CPU core; a second call with the same settings returns at once. The model learns from
demonstrations of a *sloppy* adder that drops every incoming carry with probability 1/2. So it knows the method, the
format and when to stop, yet solves a sum with c carries with probability 2^-c only: reinforcement learning can teach
it, quickly, to trust the carry. (A clean but undertrained base is a poor start: it is noisy everywhere, and RL gains
little on it.) Sums of more than five digits are not in its corpus and stay out of reach.

Saved in Hugging Face format, in float32, with a byte-level tokenizer.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from data_preprocess import model_training
from data_preprocess.arithmetic import LENGTH_DECAY
from data_preprocess.arithmetic_tokenizer import build_tokenizer
from data_preprocess.model_training import Optimization, fit, settings_hash


@dataclass(frozen=True)
class BaseModelSettings:
    """All that decides the weights.

    Attributes:
        seed: Of the initial weights and of the corpus.
        steps: Optimizer steps.
        batch_size: Demonstrations a step.
        learning_rate: Peak; 5 % linear warm-up, then a cosine to a tenth.
        beta2: Second-moment decay of AdamW; beta1 is .9.
        weight_decay: Of AdamW.
        max_digits: Longest number of the corpus.
        length_decay: A number is this factor less likely with each further digit.
        drop_carry: Probability that the demonstrator drops a carry.
        hidden_size: Width of the residual stream.
        num_layers: Transformer layers.
        num_heads: Attention heads.
        intermediate_size: Width of the MLP.
        initializer_range: Standard deviation of the initial weights. Qwen2's own 0.02 is meant for wide models; at this
            width it makes the model find the carry late, at a step that depends on the seed.
    """

    seed: int = 0
    steps: int = 1300
    batch_size: int = 128
    learning_rate: float = 3e-3
    beta2: float = 0.98
    weight_decay: float = 0.1
    max_digits: int = 5
    length_decay: float = LENGTH_DECAY
    drop_carry: float = 0.55
    hidden_size: int = 64
    num_layers: int = 3
    num_heads: int = 2
    intermediate_size: int = 128
    initializer_range: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.drop_carry <= 1:
            raise ValueError(f"drop_carry is a probability, got {self.drop_carry}")
        if not 1 <= self.max_digits <= 8:
            raise ValueError(f"max_digits must be from 1 to 8, got {self.max_digits}")
        if self.hidden_size % (32 * self.num_heads):
            raise ValueError(
                f"head size hidden_size / num_heads must be a multiple of 32 (vLLM has no kernel for smaller heads on "
                f"a CPU), got {self.hidden_size} / {self.num_heads}"
            )
        if min(self.steps, self.batch_size, self.num_layers) < 1:
            raise ValueError(f"steps, batch_size and num_layers must be at least 1, got {self}")

    def hash(self) -> str:
        """Names the settings: equal settings, equal hash."""
        return settings_hash(dataclasses.asdict(self))


def sloppy_sum(a: int, b: int, drop_carry: float, rng: np.random.Generator) -> str:
    """Add from the right and lose each incoming carry with probability `drop_carry`.

    Returns:
        The digits, least significant first. With `drop_carry=0` it is the exact sum, with 1 no digit hears of a carry.
    """
    digits = []
    carry = 0
    while a or b or not digits:
        total = a % 10 + b % 10 + (carry and int(rng.random() >= drop_carry))
        digits.append(total % 10)
        carry = total // 10
        a, b = a // 10, b // 10
    if carry and rng.random() >= drop_carry:
        digits.append(1)
    return "".join(map(str, digits))


def demonstrations(settings: BaseModelSettings, count: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Pairs of a prompt and the sloppy adder's answer."""
    lengths = np.arange(1, settings.max_digits + 1)
    weights = settings.length_decay**lengths
    drawn = rng.choice(lengths, size=(count, 2), p=weights / weights.sum())
    numbers = rng.integers(np.where(drawn == 1, 0, 10 ** (drawn - 1)), 10**drawn).tolist()
    return [(f"{a}+{b}=", sloppy_sum(a, b, settings.drop_carry, rng)) for a, b in numbers]


def encode_batch(
    texts: Sequence[tuple[str, str]], tokenizer: PreTrainedTokenizerBase
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels of demonstrations, each (B, T) int64, padded on the right.

    Only the answer and the end-of-text token are labels: the digits of the prompt are random, nothing to learn there.
    """
    prompts = tokenizer([prompt for prompt, _ in texts])["input_ids"]
    answers = tokenizer([answer for _, answer in texts])["input_ids"]
    width = max(len(p) + len(a) + 1 for p, a in zip(prompts, answers, strict=True))
    ids_BT = torch.full((len(texts), width), tokenizer.pad_token_id)
    labels_BT = torch.full((len(texts), width), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        whole = torch.tensor([*prompt, *answer, tokenizer.eos_token_id])
        ids_BT[row, : len(whole)] = whole
        labels_BT[row, len(prompt) : len(whole)] = whole[len(prompt) :]
    return ids_BT, labels_BT


def build_model(settings: BaseModelSettings, tokenizer: PreTrainedTokenizerBase) -> Qwen2ForCausalLM:
    """The untrained model; its vocabulary is exactly the tokenizer's.

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
        max_position_embeddings=128,
        tie_word_embeddings=False,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config)
    # No temperature and no top-k/top-p: engines take those from here as defaults, and RL must sample from the model.
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def train(settings: BaseModelSettings, *, report_every: int = 100) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Train from scratch; returns the model in eval mode and its tokenizer.

    Args:
        settings: Equal settings give equal weights on the same machine with the same number of torch threads.
        report_every: Steps between two lines of progress; 0 for silence.
    """
    tokenizer = build_tokenizer()
    model = build_model(settings, tokenizer).train()
    rng = np.random.default_rng(settings.seed)

    def loss_of_next_batch() -> torch.Tensor:
        ids_BT, labels_BT = encode_batch(demonstrations(settings, settings.batch_size, rng), tokenizer)
        # Right padding needs no attention mask under causal attention: no answer token looks at it.
        return model(input_ids=ids_BT, labels=labels_BT).loss

    optimization = Optimization(settings.steps, settings.learning_rate, settings.beta2, settings.weight_decay)
    fit(model, loss_of_next_batch, optimization, report_every=report_every)
    return model.eval(), tokenizer


def is_cached(settings: BaseModelSettings, folder: Path) -> bool:
    """Whether `folder` holds a model of exactly these settings."""
    return model_training.is_cached(dataclasses.asdict(settings), folder)


def train_cached(settings: BaseModelSettings, folder: Path, *, report_every: int = 100) -> Path:
    """Train into `folder` unless it already holds a model of these settings; see `model_training.train_cached`.

    Raises:
        FileExistsError: If `folder` holds something that this function did not write.
    """
    return model_training.train_cached(
        dataclasses.asdict(settings), folder, lambda: train(settings, report_every=report_every)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or find the trained model, and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder of the model itself")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=BaseModelSettings.steps)
    # Matrices this small gain nothing from a second thread, and the weights depend on the number of threads.
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    try:
        settings = BaseModelSettings(seed=args.seed, steps=args.steps)
        print(train_cached(settings, args.local_save_dir))
    except (ValueError, FileExistsError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
