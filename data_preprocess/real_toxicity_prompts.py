"""RealToxicityPrompts: beginnings of sentences from the web, each with the toxicity that Perspective gave it.

    python -m data_preprocess.real_toxicity_prompts --input rtp.jsonl.gz --local_save_dir outputs/data/toxicity
    python -m data_preprocess.real_toxicity_prompts --local_save_dir outputs/data/toxicity --val_strategy top  # hub

Writes train.parquet and val.parquet, four prompts to one. `--val_strategy random` draws the validation prompts;
`top` takes the most toxic fifth, so that validation asks for politeness where training had no example as bad.

Rows are `{prompt, prompt_toxicity, challenging}`, or the original ones whose `prompt` is `{text, toxicity, ...}`. The
texts are offensive; do not print them. There is no right answer: `reward_model.ground_truth` is empty, and the reward
is a classifier's (`verl_ext.rewards.toxicity`). `extra_info` has `index` ("real_toxicity_prompts/17": the row's number
in its input, from 0), `split`, `prompt_toxicity` (0 to 1), `challenging` and `prompt`, the text for a reward that is to
see it.
"""

import argparse
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_preprocess.ending import errors_in_one_line
from verl_ext.data.row_choice import draw, draw_number
from verl_ext.data.row_report import UnusableRow, print_counts, reasons, require_unicode
from verl_ext.data.row_source import HubSource, SourceError, read_rows
from verl_ext.data.schema import make_row, write_parquet

NAME = "real_toxicity_prompts"
HUB = HubSource("allenai/real-toxicity-prompts", "train")
VAL_STRATEGIES = ("random", "top")
VAL_SHARE = 0.2
REPEATED = "repeat of an earlier prompt"


@dataclass(frozen=True)
class ScoredPrompt:
    """A usable row.

    Attributes:
        index: The `extra_info.index`.
        text: The prompt.
        toxicity: From 0 to 1.
        challenging: Whether language models of the paper continued it badly every time.
    """

    index: str
    text: str
    toxicity: float
    challenging: bool

    @property
    def key(self) -> str:
        """Equal for prompts that differ in letter case and white space only."""
        return " ".join(self.text.split()).casefold()


def read_prompt(row: Mapping[str, Any], index: str) -> ScoredPrompt:
    """The prompt of a row of either form; the module's docstring has both.

    Raises:
        UnusableRow: It has no text, or no score from 0 to 1.
    """
    prompt, toxicity = row.get("prompt"), row.get("prompt_toxicity")
    if isinstance(prompt, Mapping):
        prompt, toxicity = prompt.get("text"), prompt.get("toxicity")
    if not isinstance(prompt, str) or not prompt.strip():
        raise UnusableRow("no text")
    require_unicode(prompt)
    if isinstance(toxicity, bool) or not isinstance(toxicity, int | float) or math.isnan(toxicity):
        raise UnusableRow("no toxicity score")
    if not 0 <= toxicity <= 1:
        raise UnusableRow("toxicity is not from 0 to 1")
    return ScoredPrompt(index, prompt.strip(), float(toxicity), bool(row.get("challenging")))


def collect(rows: Iterable[Mapping[str, Any]]) -> tuple[list[ScoredPrompt], Counter[str]]:
    """The usable prompts in the order of the rows, and how many rows went for which reason ("rows read" included).

    Of copies the first stays.
    """
    counts: Counter[str] = Counter()
    prompts: dict[str, ScoredPrompt] = {}
    for number, row in enumerate(rows):
        counts["rows read"] += 1
        try:
            prompt = read_prompt(row, f"{NAME}/{number}")
        except UnusableRow as reason:
            counts[str(reason)] += 1
            continue
        if prompts.setdefault(prompt.key, prompt) is not prompt:
            counts[REPEATED] += 1
    return list(prompts.values()), counts


def read_prompts(source: str) -> tuple[list[ScoredPrompt], Counter[str]]:
    """`collect` of a file, or of a data set on the hub.

    Raises:
        SourceError: It cannot be read, or no row of it is usable.
    """
    prompts, counts = collect(read_rows(source, HUB))
    if not counts:
        raise SourceError(f"{source}: the file has no rows. Fetch it again.")
    if not prompts:
        raise SourceError(f"{source}: no row is usable ({reasons(counts)}). Is it RealToxicityPrompts?")
    return prompts, counts


def digest(prompts: Iterable[ScoredPrompt]) -> str:
    """Names the texts and scores: a model that is trained on the same prompts need not be trained again."""
    lines = (f"{prompt.toxicity!r} {prompt.text!r}\n" for prompt in prompts)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def split(prompts: Sequence[ScoredPrompt], strategy: str, seed: int) -> tuple[list[ScoredPrompt], list[ScoredPrompt]]:
    """Training and validation prompts, each in the given order.

    Args:
        prompts: Without repeats.
        strategy: One of `VAL_STRATEGIES`.
        seed: Of the draw; with "top", of the order among equal scores at the border.

    Raises:
        ValueError: If there are fewer than two prompts, or no such strategy.
    """
    if len(prompts) < 2:
        raise ValueError(f"a training and a validation set need two prompts at least, got {len(prompts)}")
    val_size = max(1, round(VAL_SHARE * len(prompts)))
    if strategy == "random":
        val, train = draw(prompts, val_size, seed)
        return train, val
    if strategy != "top":
        raise ValueError(f"val_strategy must be one of {', '.join(VAL_STRATEGIES)}, got {strategy!r}")
    ranked = sorted(prompts, key=lambda prompt: (-prompt.toxicity, draw_number(seed, prompt.key)))
    chosen = {prompt.index for prompt in ranked[:val_size]}
    return [p for p in prompts if p.index not in chosen], [p for p in prompts if p.index in chosen]


def to_rows(prompts: Iterable[ScoredPrompt], split_name: str) -> list[dict[str, Any]]:
    """Rows of verl's schema."""
    return [
        make_row(
            NAME,
            prompt.text,
            "",
            index=prompt.index,
            split=split_name,
            ability="detoxification",
            style="model",
            extra_info={
                "prompt": prompt.text,
                "prompt_toxicity": prompt.toxicity,
                "challenging": prompt.challenging,
            },
        )
        for prompt in prompts
    ]


def prepare(args: argparse.Namespace) -> None:
    """Write both files and print the report.

    Raises:
        SourceError: The input cannot be read, or has too few usable rows.
    """
    source = args.input or HUB.name
    prompts, counts = read_prompts(source)
    if len(prompts) < 2:
        raise SourceError(f"{source}: two usable rows are needed at least, found one ({reasons(counts)}).")
    train, val = split(prompts, args.val_strategy, args.seed)
    counts["in val.parquet"] = len(val)
    val_counts = Counter({"rows read": len(val)})
    for name, chosen, cap, report in (
        ("train", train, args.train_size, counts),
        ("val", val, args.val_size, val_counts),
    ):
        if cap is not None and cap < len(chosen):
            report[f"not drawn (--{name}_size)"] = len(chosen) - cap
            chosen, _ = draw(chosen, cap, args.seed)
        path = args.local_save_dir / f"{name}.parquet"
        write_parquet(to_rows(chosen, name), path)
        print(f"{path} ({name})")
        print_counts(report, len(chosen))
        mean = sum(prompt.toxicity for prompt in chosen) / len(chosen)
        share = sum(prompt.toxicity > 0.5 for prompt in chosen) / len(chosen)
        print(f"  mean toxicity {mean:.3f}, {share:.1%} of the prompts above 0.5")


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet files; errors end the program with their message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help=f"file or hub name (default: {HUB.name} on the hub)")
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for train.parquet and val.parquet")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn at random")
    parser.add_argument("--val_strategy", choices=VAL_STRATEGIES, default="random", help="drawn, or the most toxic")
    parser.add_argument("--train_size", type=int, help="draw so many training prompts at most")
    parser.add_argument("--val_size", type=int, help="draw so many validation prompts at most")
    args = parser.parse_args(argv)
    for name in ("train_size", "val_size"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    with errors_in_one_line(args.local_save_dir):
        prepare(args)


if __name__ == "__main__":
    main()
