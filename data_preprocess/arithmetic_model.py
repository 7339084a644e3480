"""Train the base model of the arithmetic task: a small Qwen2 that adds digit by digit and forgets carries.

    python -m data_preprocess.arithmetic_model --local_save_dir outputs/models/arithmetic_base

About a minute on one CPU core; a second call with the same settings returns immediately. The model learns from
demonstrations of a *sloppy* adder that drops every incoming carry with probability 1/2. So it knows the method, the
format and when to stop, yet solves a sum with c carries only with probability 2^-c: reinforcement learning can quickly
teach it to trust the carry. (A clean but undertrained base model is a poor start: it is noisy everywhere, and RL gains
little.) Sums of more than five digits are not in its corpus and remain unsolved.

Saved in Hugging Face format, in float32, with a byte-level tokenizer.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from data_preprocess.arithmetic import LENGTH_DECAY
from data_preprocess.demo_models import model_training
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from data_preprocess.demo_models.model_training import fit, settings_hash
from data_preprocess.demo_models.small_model import SmallModelSettings, Vocabulary, build_model
from data_preprocess.ending import errors_in_one_line


@dataclass(frozen=True, kw_only=True)
class BaseModelSettings(SmallModelSettings):
    """All settings that determine the weights; see `SmallModelSettings` for the rest.

    Attributes:
        batch_size: Demonstrations per step.
        max_digits: Longest number of the corpus.
        length_decay: Each additional digit makes a number less likely by this factor.
        drop_carry: Probability that the demonstrator drops a carry.
    """

    steps: int = 1300
    weight_decay: float = 0.1
    hidden_size: int = 64
    num_layers: int = 3
    num_heads: int = 2
    intermediate_size: int = 128
    initializer_range: float = 0.1
    batch_size: int = 128
    max_digits: int = 5
    length_decay: float = LENGTH_DECAY
    drop_carry: float = 0.55

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.drop_carry <= 1:
            raise ValueError(f"drop_carry must be a probability, got {self.drop_carry}")
        if not 1 <= self.max_digits <= 8:
            raise ValueError(f"max_digits must be from 1 to 8, got {self.max_digits}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")

    def hash(self) -> str:
        """A hash of the settings, equal for equal settings."""
        return settings_hash(dataclasses.asdict(self))


def sloppy_sum(a: int, b: int, drop_carry: float, rng: np.random.Generator) -> str:
    """Add from the right and lose each incoming carry with probability `drop_carry`.

    Returns:
        The digits, least significant first. With `drop_carry=0` it is the exact sum, with 1 no carry is added.
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

    Only the answer and the end-of-text token are labels: the digits of the prompt are random and cannot be learned.
    """
    prompts = tokenizer([prompt for prompt, _ in texts])["input_ids"]
    answers = tokenizer([answer for _, answer in texts])["input_ids"]
    width = max(len(p) + len(a) + 1 for p, a in zip(prompts, answers, strict=True))
    ids_BT = torch.full((len(texts), width), cast(int, tokenizer.pad_token_id))
    labels_BT = torch.full((len(texts), width), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        whole = torch.tensor([*prompt, *answer, tokenizer.eos_token_id])
        ids_BT[row, : len(whole)] = whole
        labels_BT[row, len(prompt) : len(whole)] = whole[len(prompt) :]
    return ids_BT, labels_BT


def train(settings: BaseModelSettings, *, report_every: int = 100) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Train from scratch; returns the model in eval mode and its tokenizer.

    Args:
        settings: Equal settings give equal weights on the same machine with the same number of torch threads.
        report_every: Steps between two lines of progress; 0 for silence.
    """
    tokenizer = build_tokenizer()
    model = build_model(settings, cast(Vocabulary, tokenizer), max_position_embeddings=128).train()
    rng = np.random.default_rng(settings.seed)

    def loss_of_next_batch() -> torch.Tensor:
        ids_BT, labels_BT = encode_batch(demonstrations(settings, settings.batch_size, rng), tokenizer)
        # Right padding needs no attention mask under causal attention: no answer token attends to it.
        return model(input_ids=ids_BT, labels=labels_BT).loss

    fit(model, loss_of_next_batch, settings.optimization, name="base model", report_every=report_every)
    return model.eval(), tokenizer


def is_cached(settings: BaseModelSettings, folder: Path) -> bool:
    """Whether `folder` has a model of exactly these settings."""
    return model_training.is_cached(dataclasses.asdict(settings), folder)


def train_cached(settings: BaseModelSettings, folder: Path, *, report_every: int = 100) -> Path:
    """Train into `folder` unless it already has a model of these settings; see `model_training.train_cached`.

    Raises:
        FileExistsError: If `folder` contains something that this function did not write.
    """
    return model_training.train_cached(
        dataclasses.asdict(settings), folder, lambda: train(settings, report_every=report_every)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or reuse the trained model, and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=BaseModelSettings.steps)
    # Matrices this small gain nothing from a second thread, and the weights depend on the number of threads.
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    try:
        settings = BaseModelSettings(seed=args.seed, steps=args.steps)
    except ValueError as error:
        parser.error(str(error))
    with errors_in_one_line(args.local_save_dir):
        print(train_cached(settings, args.local_save_dir))


if __name__ == "__main__":
    main()
