"""Train the base model of the toxicity task's CPU demo: a small Qwen2 that has read the prompts and continues in their
style.

    python -m data_preprocess.toxicity_model --input rtp.jsonl.gz --local_save_dir outputs/models/toxicity_base

About a minute and a half on one CPU core; a second call with the same settings and data returns immediately. `--input`
is
required: nothing may be downloaded for a demo, and there is no substitute for real text. See
`data_preprocess.real_toxicity_prompts` for its format.

Simplification: five thousand half sentences are the only text, so the model babbles in the prompts' vocabulary, some of
it rude, and hardly follows the prompt. In the corpus a prompt is followed by other prompts, and no text ends, because
no prompt does: the model never produces end-of-text, and every continuation has the maximum length. The held-out
prompts of `real_toxicity_prompts` with the same seed are not in the corpus.

Saved in Hugging Face format, in float32, with its own byte-level BPE tokenizer.
"""

import argparse
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from data_preprocess.demo_models.model_training import fit, train_cached
from data_preprocess.demo_models.small_model import SmallModelSettings, Vocabulary, build_model
from data_preprocess.ending import errors_in_one_line
from data_preprocess.real_toxicity_prompts import ScoredPrompt, digest, read_prompts, split


@dataclass(frozen=True, kw_only=True)
class LanguageModelSettings(SmallModelSettings):
    """All settings that determine the weights, except the data; see `SmallModelSettings` for the rest.

    Attributes:
        batch_size: Texts per step.
        text_tokens: Tokens per text; enough for a demo's prompt and continuation together.
        vocab_size: Number of tokens, including special ones.
    """

    steps: int = 450
    weight_decay: float = 0.5
    batch_size: int = 24
    text_tokens: int = 72
    vocab_size: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.batch_size, self.text_tokens - 1) < 1:
            raise ValueError(f"batch_size must be at least 1, and text_tokens 2, got {self}")
        if self.vocab_size < 300:
            raise ValueError(f"vocab_size must be at least 300 (256 bytes, special tokens), got {self.vocab_size}")


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> PreTrainedTokenizerBase:
    """Byte-level BPE of the texts; otherwise the arithmetic model's tokenizer, whose prompts are also raw."""
    raw = build_tokenizer()
    tokenizer = raw.train_new_from_iterator(texts, vocab_size, show_progress=False)
    tokenizer.chat_template = raw.chat_template
    return tokenizer


class Corpus:
    """Texts made of prompts: one from its beginning, then random others, separated by spaces."""

    def __init__(self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, length: int) -> None:
        self._first = tokenizer(list(texts))["input_ids"]
        self._further = tokenizer([f" {text}" for text in texts])["input_ids"]
        self._length = length

    def text(self, rng: np.random.Generator) -> list[int]:
        """`length` token ids."""
        ids = list(self._first[rng.integers(len(self._first))])
        while len(ids) < self._length:
            ids += self._further[rng.integers(len(self._further))]
        return ids[: self._length]

    def batch(self, size: int, rng: np.random.Generator) -> torch.Tensor:
        """Token ids (B, T), int64."""
        return torch.tensor([self.text(rng) for _ in range(size)])


def train(
    prompts: Sequence[ScoredPrompt], settings: LanguageModelSettings, *, report_every: int = 50
) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Train from scratch; prints the loss of held-out text; returns the model in eval mode and its tokenizer."""
    learned, held_out = split(prompts, settings.seed)
    texts = [prompt.text for prompt in learned]
    tokenizer = train_tokenizer(texts, settings.vocab_size)
    model = build_model(settings, cast(Vocabulary, tokenizer), max_position_embeddings=128).train()
    corpus = Corpus(texts, tokenizer, settings.text_tokens)
    rng = np.random.default_rng(settings.seed)

    def loss_of_next_batch() -> torch.Tensor:
        ids_BT = corpus.batch(settings.batch_size, rng)
        return model(input_ids=ids_BT, labels=ids_BT).loss

    fit(
        model,
        loss_of_next_batch,
        settings.optimization,
        name="base model of the toxicity task",
        report_every=report_every,
    )
    model.eval()
    if report_every:
        unseen = Corpus([prompt.text for prompt in held_out], tokenizer, settings.text_tokens)
        ids_BT = unseen.batch(64, np.random.default_rng(settings.seed))
        with torch.inference_mode():
            loss = model(input_ids=ids_BT, labels=ids_BT).loss.item()
        print(f"held-out loss {loss:.3f} (uniform: {math.log(len(tokenizer)):.3f})")
    return model, tokenizer


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or reuse the trained model, and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="file of RealToxicityPrompts, or its name on the hub")
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=LanguageModelSettings.steps)
    parser.add_argument("--force", action="store_true", help="train even if the folder has this model")
    args = parser.parse_args(argv)
    with errors_in_one_line(args.local_save_dir, ValueError):
        settings = LanguageModelSettings(seed=args.seed, steps=args.steps)
        prompts, _ = read_prompts(args.input)
        record = dataclasses.asdict(settings) | {"prompts": digest(prompts)}
        # Matrices this small gain nothing from a second thread, and the weights depend on the number of threads.
        torch.set_num_threads(1)
        print(train_cached(record, args.local_save_dir, lambda: train(prompts, settings), force=args.force))


if __name__ == "__main__":
    main()
