"""Tokens of ARC prompts by how the grids are shown, and the share of tasks that fits a context.

    python tests/benchmarks/prompt_tokens.py --arc DIR --tokenizer Qwen/Qwen3-4B-Instruct-2507
    python tests/benchmarks/prompt_tokens.py --arc DIR --ranks qwen.tiktoken     # without the hub

DIR has ARC's four files as arc-agi-1_training.json.gz and so on. --ranks takes the merge ranks that Qwen publishes (a
file of the Python package dashscope, at dashscope/resources), whose 151,643 tokens are those of Qwen2.5 and Qwen3; the
rule that cuts a text before merging is theirs, and the few tokens of the chat template are counted as in ChatML.

PREDICTION, written before this ran: a digit is always a separate token, so a cell costs 1 token instead of 2 (the space
is another one), and a row's line break 1 in both; with the text around the grids 1.7 to 1.8 times fewer.
"""

import argparse
import base64
import statistics
from collections.abc import Callable
from pathlib import Path

from verl_ext.arc.prompts import ASSISTANT_PREFIX, PromptSettings, open_turn, user_message
from verl_ext.data.arc_tasks import Task, read_tasks

COLLECTIONS = ("1_training", "1_evaluation", "2_training", "2_evaluation")
FORMS = {
    "spaced": PromptSettings(grid="spaced"),
    "compact": PromptSettings(),
    "compact, test inputs": PromptSettings(test_inputs=True),
}
CUTS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHATML = ("<|im_start|>", "<|im_end|>")


def of_ranks(path: Path) -> Callable[[Task, PromptSettings], int]:
    """Counts a prompt's tokens with merge ranks of tiktoken's form: lines of a token in base64 and its rank."""
    import tiktoken

    lines = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    special = {name: len(ranks) + place for place, name in enumerate(CHATML)}
    encoding = tiktoken.Encoding("qwen", pat_str=CUTS, mergeable_ranks=ranks, special_tokens=special)

    def count(task: Task, form: PromptSettings) -> int:
        start, end = CHATML
        turn = f"{start}user\n{user_message(task, form)}{end}\n{start}assistant\n{ASSISTANT_PREFIX}"
        return len(encoding.encode(turn, allowed_special="all"))

    return count


def of_tokenizer(name: str) -> Callable[[Task, PromptSettings], int]:
    """Counts them with a tokenizer of transformers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)

    def count(task: Task, form: PromptSettings) -> int:
        message = user_message(task, form)
        text = message if tokenizer.chat_template is None else open_turn(message, tokenizer)
        return len(tokenizer(text + ASSISTANT_PREFIX, add_special_tokens=False)["input_ids"])

    return count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arc", type=Path, required=True, help="folder of ARC's files")
    parser.add_argument("--context", type=int, default=8192, help="tokens that a prompt must fit")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tokenizer", help="folder or hub name of a model")
    source.add_argument("--ranks", type=Path, help="merge ranks of Qwen")
    args = parser.parse_args()
    count = of_ranks(args.ranks) if args.ranks else of_tokenizer(args.tokenizer)
    print(f"| tasks | prompt | median | 90 % | fits {args.context:,} | tokens of spaced / tokens |")
    print("|---|---|---|---|---|---|")
    for collection in COLLECTIONS:
        tasks, _ = read_tasks(args.arc / f"arc-agi-{collection}.json.gz")
        counts = {name: [count(task, form) for task in tasks] for name, form in FORMS.items()}
        for name, found in counts.items():
            ordered = sorted(found)
            fits = sum(tokens <= args.context for tokens in found) / len(found)
            ratio = statistics.median(a / b for a, b in zip(counts["spaced"], found, strict=True))
            print(
                f"| {collection.replace('_', ' ')}, {len(tasks):,} | {name} | {statistics.median(found):,.0f} | "
                f"{ordered[int(0.9 * len(ordered))]:,} | {100 * fits:.1f} % | {ratio:.2f} |"
            )


if __name__ == "__main__":
    main()
