"""Addition with the answer's least significant digit first ("453+812=" -> "5621"), in verl's RL schema.

    python -m data_preprocess.arithmetic --local_save_dir outputs/data/arithmetic --pool E

Writing the answer backwards lets a small model add digit by digit with one carry to remember. Prompts are of three
kinds, so that a pool resembles a real RL data set for the base model of `data_preprocess.arithmetic_model`, which
forgets about every other carry:

    core      1-5 digits, at least one carry   sometimes right: RL can learn here
    easy      1-3 digits, no carry             nearly always right
    hopeless  6-8 digits                       never right: longer than anything the base model has seen

Pools set the shares of the kinds. E is for the demo, B for benchmarks, and C is a hard case in which only one prompt in
twenty can be learned from. Training and validation prompts have the same mix and never overlap.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_preprocess.ending import errors_in_one_line
from verl_ext.data.schema import make_row, write_parquet

KINDS = ("hopeless", "easy", "core")

# Smaller numbers are more likely, by this factor per digit, as in the corpus of the base model. Uniform lengths would
# make most core prompts carry four or five times, which the base model almost never gets right.
LENGTH_DECAY = 0.75

_DIGITS = {"core": range(1, 6), "easy": range(1, 4), "hopeless": range(6, 9)}


@dataclass(frozen=True)
class Shares:
    """Shares of the kinds in a pool; they sum to 1."""

    hopeless: float
    easy: float
    core: float

    def __post_init__(self) -> None:
        values = (self.hopeless, self.easy, self.core)
        if min(values) < 0 or abs(sum(values) - 1) > 1e-6:
            raise ValueError(f"shares must be at least 0 and sum to 1, got {self}. Give all three of them.")

    def counts(self, size: int) -> dict[str, int]:
        """Prompts of each kind among `size`, by largest remainder, so that they sum to `size`."""
        exact = {kind: size * getattr(self, kind) for kind in KINDS}
        # Shares such as .29 are not binary fractions: without rounding, 100 * .29 would be truncated to 28.
        counts = {kind: int(round(value, 6)) for kind, value in exact.items()}
        by_remainder = sorted(KINDS, key=lambda kind: counts[kind] - exact[kind])
        for kind in by_remainder[: size - sum(counts.values())]:
            counts[kind] += 1
        return counts


POOLS = {"E": Shares(0.40, 0.22, 0.38), "B": Shares(0.65, 0.25, 0.10), "C": Shares(0.68, 0.27, 0.05)}


@dataclass(frozen=True)
class PoolSettings:
    """What to draw.

    Attributes:
        train_size: Prompts in train.parquet.
        val_size: Prompts in val.parquet, with the same mix.
        influence_size: Prompts in influence.parquet, with the same mix: for TracIn, not for evaluation.
        shares: The mix.
        seed: Same seed, same files.
    """

    train_size: int = 1024
    val_size: int = 512
    influence_size: int = 0
    shares: Shares = POOLS["E"]
    seed: int = 0

    def __post_init__(self) -> None:
        if self.train_size < 1 or self.val_size < 1:
            raise ValueError(f"train_size and val_size must be at least 1, got {self.train_size} and {self.val_size}")
        if self.influence_size < 0:
            raise ValueError(f"influence_size must be at least 0, got {self.influence_size}")


def num_carries(a: int, b: int) -> int:
    """Number of carries in the sum of two numbers, including one that makes the answer longer."""
    carries = carry = 0
    while a or b:
        carry = (a % 10 + b % 10 + carry) // 10
        carries += carry
        a, b = a // 10, b // 10
    return carries


def answer(a: int, b: int) -> str:
    """The sum, least significant digit first.

    Example:
        >>> answer(453, 812)
        '5621'
    """
    return str(a + b)[::-1]


def kind_of(a: int, b: int) -> str | None:
    """The kind of a prompt, or None for a sum that no pool contains."""
    lengths = {len(str(a)), len(str(b))}
    carries = num_carries(a, b)
    if lengths <= set(_DIGITS["hopeless"]):
        return "hopeless"
    if carries and lengths <= set(_DIGITS["core"]):
        return "core"
    if not carries and lengths <= set(_DIGITS["easy"]):
        return "easy"
    return None


def draw_pairs(kind: str, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """`count` distinct pairs of numbers of one kind; 1+2 and 2+1 are two prompts.

    Raises:
        ValueError: If the kind has too few prompts to find that many.
    """
    digits = np.array(_DIGITS[kind])
    weights = LENGTH_DECAY**digits if kind != "hopeless" else np.ones(len(digits))
    pairs: dict[tuple[int, int], None] = {}  # a dict, because a set has no fixed order
    found = -1
    while len(pairs) > found:  # a round of a thousand draws or more without anything new: none are left
        found = len(pairs)
        lengths = rng.choice(digits, size=(max(4 * count, 1000), 2), p=weights / weights.sum())
        lowest = np.where(lengths == 1, 0, 10 ** (lengths - 1))
        for a, b in rng.integers(lowest, 10**lengths).tolist():
            if kind_of(a, b) == kind:
                pairs[a, b] = None
        if len(pairs) >= count:
            return list(pairs)[:count]
    raise ValueError(f"found only {len(pairs)} different {kind} prompts, expected {count}. Ask for a smaller pool.")


def build_rows(settings: PoolSettings) -> dict[str, list[dict[str, Any]]]:
    """Rows of each file, by its name: train, val and, if requested, influence.

    `extra_info` carries `kind`, the digits of both numbers and the number of carries. Indices continue from file to
    file, so no two rows of a pool share one.
    """
    rng = np.random.default_rng(settings.seed)
    sizes = {"train": settings.train_size, "val": settings.val_size, "influence": settings.influence_size}
    sizes = {name: size for name, size in sizes.items() if size}
    pairs: dict[str, list[tuple[int, int]]] = {name: [] for name in sizes}
    for kind in KINDS:
        counts = {name: settings.shares.counts(size)[kind] for name, size in sizes.items()}
        # One draw, split at random, so that the few short prompts reach all files in proportion.
        drawn = draw_pairs(kind, sum(counts.values()), rng)
        order = iter([drawn[i] for i in rng.permutation(len(drawn))])
        for name, count in counts.items():
            pairs[name] += [next(order) for _ in range(count)]
    rows: dict[str, list[dict[str, Any]]] = {}
    start = 0
    for name, entries in pairs.items():
        mixed = [entries[i] for i in rng.permutation(len(entries))]
        rows[name] = [_row(a, b, index, name) for index, (a, b) in enumerate(mixed, start=start)]
        start += len(mixed)
    return rows


def _row(a: int, b: int, index: int, split: str) -> dict[str, Any]:
    details = {
        "kind": kind_of(a, b),
        "digits_first": len(str(a)),
        "digits_second": len(str(b)),
        "carries": num_carries(a, b),
    }
    return make_row(
        "arithmetic", f"{a}+{b}=", answer(a, b), index=index, split=split, ability="math", extra_info=details
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Write train.parquet, val.parquet and, if requested, influence.parquet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the parquet files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train_size", type=int, default=1024)
    parser.add_argument("--val_size", type=int, default=512)
    parser.add_argument("--influence_size", type=int, default=0, help="prompts of influence.parquet, for TracIn (0)")
    mix = parser.add_mutually_exclusive_group()
    mix.add_argument("--pool", choices=sorted(POOLS), default="E", help="a named mix")
    mix.add_argument(
        "--shares", type=float, nargs=3, metavar=("HOPELESS", "EASY", "CORE"), help="your own mix, summing to 1"
    )
    args = parser.parse_args(argv)
    try:
        shares = Shares(*args.shares) if args.shares else POOLS[args.pool]
        files = build_rows(PoolSettings(args.train_size, args.val_size, args.influence_size, shares, args.seed))
    except ValueError as error:
        parser.error(str(error))
    with errors_in_one_line(args.local_save_dir):
        for name, rows in files.items():
            path = args.local_save_dir / f"{name}.parquet"
            write_parquet(rows, path)
            kinds = [row["extra_info"]["kind"] for row in rows]
            print(f"{path}: {len(rows)} prompts ({', '.join(f'{kinds.count(kind)} {kind}' for kind in KINDS)})")


if __name__ == "__main__":
    main()
