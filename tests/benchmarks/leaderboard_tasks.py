"""The leaderboard's pools by name, and the base models that their prompts are for.

    python tests/benchmarks/leaderboard_tasks.py      # trains what is missing; two minutes per model on one core

    B, E, C   sums, of `data_preprocess.arithmetic`
    T         chains of sums with long responses, `chain_sums.py`
    D         three data sources, one with a format to be found, `domain_sums.py`

Each base model learns from a demonstrator who loses carries, as in `data_preprocess.arithmetic_model`.
Train them before processes that share the folder start: each would train its own.
"""

import argparse
import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path

import chain_sums
import domain_sums
import learning_lab
import numpy as np
import torch
from learning_tasks import Task, build_task

from data_preprocess import arithmetic_model
from data_preprocess.arithmetic import POOLS as ARITHMETIC_POOLS
from data_preprocess.arithmetic_model import BaseModelSettings, encode_batch
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from data_preprocess.demo_models.model_training import Saveable, fit, train_cached
from data_preprocess.demo_models.small_model import SmallModelSettings, build_model

POOLS = (*ARITHMETIC_POOLS, "T", "D")
MODELS = Path(__file__).resolve().parents[2] / "outputs/models"


@dataclass(frozen=True, kw_only=True)
class LabModelSettings(SmallModelSettings):
    """All settings that determine the weights of T's or D's base model, except the code; see `SmallModelSettings` for
    the rest.

    Attributes:
        pool: T or D.
        batch_size: Demonstrations per step.
        parts: A batch is split into this many parts of similar length, to reduce padding; the gradient is that of the
            whole.
        drop_carry: Probability that the demonstrator drops a carry or a borrow.
        right_format: Probability that a boxed answer of D has its brackets.
        corpus: Raise it when the demonstrations of a pool change.
    """

    pool: str
    steps: int
    weight_decay: float = 0.1
    hidden_size: int = 64
    num_layers: int = 3
    num_heads: int = 2
    intermediate_size: int = 128
    initializer_range: float = 0.1
    batch_size: int = 128
    parts: int
    drop_carry: float
    right_format: float = 0.015
    corpus: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool not in ("T", "D"):
            raise ValueError(f"pool must be T or D, got {self.pool!r}; the other pools are for arithmetic_base")

    def demonstration(self, rng: np.random.Generator) -> tuple[str, str]:
        """A prompt and a sloppy answer."""
        if self.pool == "T":
            return chain_sums.demonstration(self.drop_carry, rng)
        return domain_sums.demonstration(self.drop_carry, self.right_format, rng)


BASES = {
    "T": ("chains_base", LabModelSettings(pool="T", steps=1500, parts=4, drop_carry=0.6)),
    "D": ("domains_base", LabModelSettings(pool="D", steps=2400, parts=2, drop_carry=0.55)),
}


def make_task(pool: str, size: int, *, held_out: int = 512, seed: int = 0) -> Task:
    """`size` prompts of a pool and `held_out` other learnable ones.

    Raises:
        ValueError: If there is no such pool, or it has too few different prompts.
    """
    if pool not in POOLS:
        raise ValueError(f"pool must be one of {', '.join(POOLS)}, got {pool!r}")
    if pool in ARITHMETIC_POOLS:
        return learning_lab.make_task(pool, size, held_out=held_out, seed=seed)
    source = chain_sums if pool == "T" else domain_sums
    questions, unseen = source.draw_pool(size, held_out, seed)
    return build_task(questions, unseen, max_prompt=source.MAX_PROMPT, max_response=source.MAX_RESPONSE)


def base_model(pool: str, *, report_every: int = 0) -> Path:
    """Folder of a pool's base model, trained on one thread if it is not there."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the weights depend on it
    try:
        if pool in ARITHMETIC_POOLS:
            return arithmetic_model.train_cached(
                BaseModelSettings(), MODELS / "arithmetic_base", report_every=report_every
            )
        name, settings = BASES[pool]
        return train_cached(
            dataclasses.asdict(settings), MODELS / name, lambda: train(settings, report_every=report_every)
        )
    finally:
        torch.set_num_threads(threads)


def train(settings: LabModelSettings, *, report_every: int = 100) -> list[Saveable]:
    """A model in eval mode and its tokenizer."""
    tokenizer = build_tokenizer()
    model = build_model(settings, tokenizer, max_position_embeddings=256).train()
    rng = np.random.default_rng(settings.seed)

    def loss_of_next_batch() -> torch.Tensor:
        texts = sorted((settings.demonstration(rng) for _ in range(settings.batch_size)), key=_length)
        edges = np.linspace(0, len(texts), settings.parts + 1).astype(int)
        total, num_tokens = torch.zeros(()), 0
        for first, last in itertools.pairwise(edges):
            ids_BT, labels_BT = encode_batch(texts[first:last], tokenizer)
            tokens = int((labels_BT[:, 1:] != -100).sum())
            total = total + tokens * model(input_ids=ids_BT, labels=labels_BT).loss
            num_tokens += tokens
        return total / num_tokens

    fit(model, loss_of_next_batch, settings.optimization, name="base model", report_every=report_every)
    return [model.eval(), tokenizer]


def _length(pair: tuple[str, str]) -> int:
    return len(pair[0]) + len(pair[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=list(POOLS))
    args = parser.parse_args()
    for pool in args.pools:
        print(pool, base_model(pool, report_every=100))


if __name__ == "__main__":
    main()
