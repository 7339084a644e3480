"""Checks whether the golden solutions' docstrings suffice: a model writes the code only from the docstring.

    python -m recipe.golden_redaction.golden sufficiency --model PATH --task-file arc-agi-1_training.json.gz --samples 8

If a capable model cannot write the code from a docstring, the docstring is incomplete. The model sees no pair, only the
function's head; an attempt counts if it solves every pair of the task. Its code runs in the sandbox; a program with an
infrastructure error in every try does not count as an attempt.
"""

import argparse
import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_ext.arc.prompts import FENCE, open_turn, program
from verl_ext.arc.solutions import GoldenError, read_pairs, read_solution, solution_names
from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.policy import LEVELS, SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.programs import Programs

INSTRUCTION = f"""\
Write the body of this Python function. A grid is a list of rows, and each cell is a colour from 0 to 9. Follow the \
docstring: it describes the examples and the procedure, and you are not shown the examples. The function must not \
change its argument, and it ends in `return result`. Use nothing but the standard library.

{FENCE}python
%s
{FENCE}
"""


@dataclass(frozen=True)
class Sufficiency:
    """How often the code could be reproduced.

    Attributes:
        task: Task id.
        attempts: Programs that were sampled and judged.
        passed: How many of them solve every pair.
    """

    task: str
    attempts: int
    passed: int


def head(source: str) -> str:
    """The function up to the end of its docstring."""
    solve = ast.parse(source).body[0]
    assert isinstance(solve, ast.FunctionDef)
    return "\n".join(source.splitlines()[: solve.body[0].end_lineno])


def measure_task(
    task: str,
    source: str,
    pairs: Mapping[str, Pair],
    sample: Callable[[str, str], Sequence[str]],
    executor: Executor,
) -> Sufficiency:
    """Samples programs for one task and counts those that solve it.

    Args:
        task: Task id.
        source: Its golden solution; only the part up to the docstring's end is shown.
        pairs: Pairs that a program must solve.
        sample: Maps the user message and the beginning of the answer to continuations.
        executor: Runs the programs.
    """
    start = head(source)
    texts = sample(INSTRUCTION % start, f"{FENCE}python\n{start}\n")
    before = program("")[:-1]
    jobs = [(task, program(start[len(before) :] + "\n" + text)) for text in texts]
    results = Programs(executor, attempts=2).run("all", jobs, {task: list(pairs.values())}, stop_at_first_failure=True)
    rewards = [result.reward for result in results]
    return Sufficiency(task, sum(reward is not None for reward in rewards), sum(reward == 1.0 for reward in rewards))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sufficiency`."""
    parser.add_argument("--model", required=True, help="folder of a Hugging Face causal language model")
    parser.add_argument("--task-file", type=Path, action="append", required=True, help="ARC collection with pairs")
    parser.add_argument("--fresh", type=Path, help="fresh pairs, JSON lines")
    parser.add_argument("--task", action="append", default=[], help="only this task; may be repeated")
    parser.add_argument("--samples", type=int, default=8, help="programs for each task")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-new-tokens", type=int, default=768)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--require", default="minimum", choices=sorted(LEVELS), help="isolation of the sandbox")


def run(args: argparse.Namespace) -> int:
    """`sufficiency`: prints one JSON line per task and one for all; returns the exit status.

    Raises:
        GoldenError: The options contradict themselves, or a task has no pairs.
        SandboxUnavailableError: This machine does not support the required isolation.
    """
    for name in ("samples", "temperature", "max_new_tokens"):
        if not getattr(args, name) > 0:
            raise GoldenError(f"--{name.replace('_', '-')} must be above 0, got {getattr(args, name)}")
    pairs = read_pairs(args.task_file, args.fresh)
    names = args.task or solution_names()
    missing = [name for name in names if not pairs.get(name)]
    if missing:
        raise GoldenError(f"no pairs of {', '.join(missing)} in the given files. Give the files that have them.")
    found = []
    with SandboxPool(SandboxPolicy(require=args.require)) as pool:
        sample = _sampler(args)
        for name in names:
            found.append(measure_task(name, read_solution(name), pairs[name], sample, pool))
            print(json.dumps(asdict(found[-1])), flush=True)
    total = Sufficiency("all", sum(x.attempts for x in found), sum(x.passed for x in found))
    print(json.dumps({**asdict(total), "pass_rate": total.passed / total.attempts if total.attempts else None}))
    return 0


def _sampler(args: argparse.Namespace) -> Callable[[str, str], Sequence[str]]:
    """Samples with transformers' `generate`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model: Any = AutoModelForCausalLM.from_pretrained(args.model).to(args.device).eval()

    def sample(message: str, start: str) -> Sequence[str]:
        is_base = tokenizer.chat_template is None
        text = (message + "\n" if is_base else open_turn(message, tokenizer)) + start
        ids = tokenizer(text, add_special_tokens=is_base, return_tensors="pt")["input_ids"]
        ids = ids.to(args.device)
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=args.temperature,
                num_return_sequences=args.samples,
                max_new_tokens=args.max_new_tokens,
                pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
            )
        return tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)

    return sample
