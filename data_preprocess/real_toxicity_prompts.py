"""RealToxicityPrompts: beginnings of sentences from the web, each with its toxicity by Perspective.

    python -m data_preprocess.real_toxicity_prompts --input rtp.jsonl.gz --local_save_dir outputs/data/toxicity
    python -m data_preprocess.real_toxicity_prompts --local_save_dir outputs/data/toxicity --val_strategy top  # hub
    python -m data_preprocess.real_toxicity_prompts --local_save_dir outputs/data/toxicity --min_toxicity 0.3 \\
        --query_tokens 10 15 --tokenizer gpt2                        # as in LDA-ORL (arXiv 2505.19281)

Writes train.parquet and two files from a fifth of the prompts, drawn by --seed and held out: influence.parquet, for
TracIn's validation gradient (`tracin.validation_files`), and val.parquet, for the evaluation. No prompt is in two of
them. `--val_strategy random` draws the influence prompts from the held-out ones, `top` takes the most toxic.

`--min_toxicity` keeps only more toxic prompts. `--query_tokens MIN MAX` makes each prompt the first tokens of the
sentence (prompt and continuation, if the row has one), with a random length between the two.

Rows are `{prompt, prompt_toxicity, challenging}`, or the original ones whose `prompt` is `{text, toxicity, ...}`. The
texts are offensive; do not print them. There is no right answer: `reward_model.ground_truth` is empty, and the reward
is a classifier's (`verl_ext.rewards.toxicity`). `extra_info` has `index` ("real_toxicity_prompts/17": the row's number
in its input, from 0), `split`, `prompt_toxicity` (0 to 1), `challenging` and `prompt`, the text for a reward that needs
it.
"""

import argparse
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from data_preprocess.ending import errors_in_one_line
from verl_ext.data.row_choice import draw, draw_number
from verl_ext.data.row_report import UnusableRow, print_counts, reasons, require_unicode
from verl_ext.data.row_source import HubSource, SourceError, read_rows
from verl_ext.data.schema import make_row, write_parquet

NAME = "real_toxicity_prompts"
HUB = HubSource("allenai/real-toxicity-prompts", "train")
VAL_STRATEGIES = ("random", "top")
HELD_OUT_SHARE = 0.2
INFLUENCE_SHARE = 0.5  # of the held-out prompts
REPEATED = "repeat of an earlier prompt"


@dataclass(frozen=True)
class ScoredPrompt:
    """A usable row.

    Attributes:
        index: The `extra_info.index`.
        text: The prompt.
        toxicity: From 0 to 1.
        challenging: Whether language models of the paper continued it badly every time.
        continuation: The rest of the sentence; "" if the row has none.
    """

    index: str
    text: str
    toxicity: float
    challenging: bool
    continuation: str = ""

    @property
    def key(self) -> str:
        """Key that is equal for prompts that differ only in letter case and white space."""
        return " ".join(self.text.split()).casefold()


def read_prompt(row: Mapping[str, Any], index: str) -> ScoredPrompt:
    """The prompt of a row in either form; see the module's docstring.

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
    continuation = row.get("continuation")
    if isinstance(continuation, Mapping):
        continuation = continuation.get("text")
    continuation = continuation.rstrip() if isinstance(continuation, str) else ""
    return ScoredPrompt(index, prompt.strip(), float(toxicity), bool(row.get("challenging")), continuation)


def collect(rows: Iterable[Mapping[str, Any]]) -> tuple[list[ScoredPrompt], Counter[str]]:
    """The usable prompts in the order of the rows, and the number of dropped rows by reason (including "rows read").

    The first of several copies is kept.
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
    """`collect` for a file or a data set on the hub.

    Raises:
        SourceError: It cannot be read, or no row of it is usable.
    """
    prompts, counts = collect(read_rows(source, HUB))
    if not counts:
        raise SourceError(f"{source}: the file has no rows. Download it again.")
    if not prompts:
        raise SourceError(f"{source}: no row is usable ({reasons(counts)}). Is it RealToxicityPrompts?")
    return prompts, counts


def digest(prompts: Iterable[ScoredPrompt]) -> str:
    """A digest of texts and scores: a model trained on the same prompts need not be trained again."""
    lines = (f"{prompt.toxicity!r} {prompt.text!r}\n" for prompt in prompts)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def split(prompts: Sequence[ScoredPrompt], seed: int) -> tuple[list[ScoredPrompt], list[ScoredPrompt]]:
    """Training prompts and the held-out fifth, drawn by the seed, each in the given order.

    Raises:
        ValueError: If there are fewer than two prompts.
    """
    if len(prompts) < 2:
        raise ValueError(f"a training and a held-out set need at least two prompts, got {len(prompts)}")
    held_out, train = draw(prompts, max(1, round(HELD_OUT_SHARE * len(prompts))), seed)
    return train, held_out


def choose_influence(
    held_out: Sequence[ScoredPrompt], size: int, strategy: str, seed: int
) -> tuple[list[ScoredPrompt], list[ScoredPrompt]]:
    """Split the held-out prompts into those of the validation gradient and those of the evaluation, in the given order.

    Args:
        held_out: Distinct prompts.
        size: Size of the first set.
        strategy: One of `VAL_STRATEGIES`.
        seed: Seed of the draw; with "top", of the order among equal scores at the border.

    Raises:
        ValueError: If the strategy is unknown, or no prompt would be left for the evaluation.
    """
    if not 1 <= size < len(held_out):
        raise ValueError(
            f"expected 1 to {len(held_out) - 1} influence prompts, as {len(held_out)} prompts are held out and some "
            f"must be left for the evaluation, got {size}: change --influence_size, or give more rows"
        )
    if strategy == "random":
        # With the same seed the random numbers would be those that held out these prompts.
        return draw(held_out, size, seed + 1)
    if strategy != "top":
        raise ValueError(f"val_strategy must be one of {', '.join(VAL_STRATEGIES)}, got {strategy!r}")
    ranked = sorted(held_out, key=lambda prompt: (-prompt.toxicity, draw_number(seed, prompt.key)))
    chosen = {prompt.index for prompt in ranked[:size]}
    return [p for p in held_out if p.index in chosen], [p for p in held_out if p.index not in chosen]


class Tokenizer(Protocol):
    """The used interface of a transformers tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...


def as_query(prompt: ScoredPrompt, tokenizer: Tokenizer, bounds: tuple[int, int], seed: int) -> ScoredPrompt:
    """The first tokens of the sentence, with a length within `bounds` drawn from the seed and the text.

    Raises:
        UnusableRow: The sentence has fewer tokens.
    """
    low, high = bounds
    length = low + int.from_bytes(draw_number(seed, f"length\n{prompt.key}")[:8], "big") % (high - low + 1)
    tokens = tokenizer.encode(prompt.text + prompt.continuation, add_special_tokens=False)
    if len(tokens) < length:
        raise UnusableRow("too few tokens (--query_tokens)")
    return replace(prompt, text=tokenizer.decode(tokens[:length]).strip())


@dataclass(frozen=True)
class Filter:
    """Which prompts are used, and their length.

    Attributes:
        min_toxicity: Only more toxic prompts; None: all.
        query_tokens: Bounds of a query's length; None: whole prompts.
        tokenizer: Counts the tokens.
    """

    min_toxicity: float | None = None
    query_tokens: tuple[int, int] | None = None
    tokenizer: Tokenizer | None = None

    def __call__(self, prompts: Iterable[ScoredPrompt], seed: int) -> tuple[list[ScoredPrompt], Counter[str]]:
        """The prompts to use, and the number of dropped ones by reason. The first of several equal queries is kept."""
        used: dict[str, ScoredPrompt] = {}
        counts: Counter[str] = Counter()
        for prompt in prompts:
            if self.min_toxicity is not None and prompt.toxicity <= self.min_toxicity:
                counts["not toxic enough (--min_toxicity)"] += 1
                continue
            try:
                if self.query_tokens is not None and self.tokenizer is not None:
                    prompt = as_query(prompt, self.tokenizer, self.query_tokens, seed)
            except UnusableRow as reason:
                counts[str(reason)] += 1
                continue
            if used.setdefault(prompt.key, prompt) is not prompt:
                counts[REPEATED] += 1
        return list(used.values()), counts


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
    """Write the three files and print the report.

    Raises:
        SourceError: The input cannot be read, or has too few usable rows.
    """
    source = args.input or HUB.name
    prompts, counts = read_prompts(source)
    if len(prompts) < 3:
        raise SourceError(f"{source}: at least three usable rows are needed, found {len(prompts)} ({reasons(counts)}).")
    chosen = Filter(args.min_toxicity, args.query_tokens and tuple(args.query_tokens), load_tokenizer(args.tokenizer))
    # Split first, so that the prompts unseen by a model of data_preprocess.toxicity_model are the same with every
    # filter.
    train, held_out = split(prompts, args.seed)
    train, train_counts = chosen(train, args.seed)
    taken = {prompt.key for prompt in train}
    usable, held_out_counts = chosen(held_out, args.seed)
    unseen = [prompt for prompt in usable if prompt.key not in taken]  # two sentences may begin alike
    held_out_counts[REPEATED] += len(usable) - len(unseen)
    if not train or len(unseen) < 2:
        raise SourceError(
            f"{source}: {len(train)} training and {len(unseen)} held-out prompts are left of {len(prompts)}, and at "
            "least 1 and 2 are needed. Lower --min_toxicity, or give more rows."
        )
    size = args.influence_size or max(1, round(INFLUENCE_SHARE * len(unseen)))
    try:
        influence, val = choose_influence(unseen, size, args.val_strategy, args.seed)
    except ValueError as error:
        raise SourceError(str(error)) from None
    counts += train_counts
    counts["held out"] = len(held_out)
    held_out_counts |= {"rows read": len(held_out), "in val.parquet": len(val)}
    for name, part, cap, report in (
        ("train", train, args.train_size, counts),
        ("influence", influence, None, held_out_counts),
        ("val", val, args.val_size, Counter({"rows read": len(val)})),
    ):
        if cap is not None and cap < len(part):
            report[f"not drawn (--{name}_size)"] = len(part) - cap
            part, _ = draw(part, cap, args.seed)
        path = args.local_save_dir / f"{name}.parquet"
        write_parquet(to_rows(part, name), path)
        print(f"{path} ({name})")
        print_counts(report, len(part))
        mean = sum(prompt.toxicity for prompt in part) / len(part)
        share = sum(prompt.toxicity > 0.5 for prompt in part) / len(part)
        print(f"  mean toxicity {mean:.3f}, {share:.1%} of the prompts above 0.5")


def load_tokenizer(name: str | None) -> Tokenizer | None:
    """The tokenizer of a folder or of a model on the hub.

    Raises:
        SourceError: There is no tokenizer.
    """
    if name is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise SourceError(f"no tokenizer at {name} ({error}): give a model's folder, or its name on the hub") from error


def main(argv: Sequence[str] | None = None) -> None:
    """Write the parquet files; errors end the program with their message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help=f"file or hub name (default: {HUB.name} on the hub)")
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the three parquet files")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws")
    parser.add_argument(
        "--val_strategy", choices=VAL_STRATEGIES, default="random", help="influence prompts: drawn, or the most toxic"
    )
    parser.add_argument("--influence_size", type=int, help="held-out prompts in influence.parquet (default: half)")
    parser.add_argument("--train_size", type=int, help="draw at most this many training prompts")
    parser.add_argument("--val_size", type=int, help="draw at most this many evaluation prompts")
    parser.add_argument("--min_toxicity", type=float, help="use only prompts more toxic than this, such as 0.3")
    parser.add_argument(
        "--query_tokens", type=int, nargs=2, metavar=("MIN", "MAX"), help="shorten the sentences to this many tokens"
    )
    parser.add_argument("--tokenizer", help="folder or hub name of the model whose tokens --query_tokens counts")
    args = parser.parse_args(argv)
    for name in ("influence_size", "train_size", "val_size"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.min_toxicity is not None and not 0 <= args.min_toxicity < 1:
        parser.error(f"--min_toxicity must be from 0 to below 1, got {args.min_toxicity:g}")
    if args.query_tokens is not None and not 1 <= args.query_tokens[0] <= args.query_tokens[1]:
        parser.error(f"--query_tokens must be two numbers from 1 in increasing order, got {args.query_tokens}")
    if (args.query_tokens is None) != (args.tokenizer is None):
        parser.error("--query_tokens and --tokenizer go together: give both or neither")
    with errors_in_one_line(args.local_save_dir):
        prepare(args)


if __name__ == "__main__":
    main()
