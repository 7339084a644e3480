"""Reports how the base model of golden redaction's CPU demo does on the golden solutions that it was trained on with
mistakes.

T: tokens of a golden solution and its end. N: sampled answers. S: tokens of an answer.
"""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import Qwen2ForCausalLM

from data_preprocess.demo_models.arc_lessons import Lesson, SavedTokenizer, closing_ids
from verl_ext.arc.prompts import decode_answer, program, state_ids
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError
from verl_ext.sandbox.pool import SandboxPool

UNDECIDED = (0.3, 0.9)


def golden_probs(model: Qwen2ForCausalLM, lesson: Lesson, tokenizer: SavedTokenizer) -> np.ndarray:
    """Probability of each golden token, and of the final ones, given the right tokens before it: (T,)."""
    answer = [*lesson.golden_ids, *closing_ids(tokenizer)]
    ids_1T = torch.tensor([[*lesson.prompt_ids, *answer]])
    with torch.inference_mode():
        logits_TV = model(input_ids=ids_1T, logits_to_keep=len(answer) + 1).logits[0, :-1]
    return logits_TV.softmax(-1)[range(len(answer)), answer].numpy()


def pass_rate(
    model: Qwen2ForCausalLM,
    lesson: Lesson,
    tokenizer: SavedTokenizer,
    pool: SandboxPool,
    *,
    k: int,
    samples: int,
) -> float:
    """Share of sampled answers that solve every example pair, with the last k golden tokens hidden.

    Answers may be twice as long as the hidden part, plus 32 tokens. NaN if the sandbox judged none of them.
    """
    ids_1T = torch.tensor([state_ids(lesson.prompt_ids, lesson.golden_ids, k)])
    with torch.inference_mode():
        sampled_NS = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
            ids_1T,
            attention_mask=torch.ones_like(ids_1T),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            num_return_sequences=samples,
            max_new_tokens=2 * k + 32,
        )[:, len(lesson.prompt_ids) :]
    jobs = [(program(decode_answer(ids, tokenizer)), lesson.task.train) for ids in sampled_NS.tolist()]
    rewards = [result.reward for result in pool.check_many(jobs, stop_at_first_failure=True)]
    judged = [reward for reward in rewards if reward is not None]
    return sum(judged) / len(judged) if judged else float("nan")


def print_report(model: Qwen2ForCausalLM, lessons: Sequence[Lesson], tokenizer: SavedTokenizer, samples: int) -> None:
    """One line per task.

    Columns: prompt tokens; golden tokens L; undecided tokens (probability from .3 to .9) and their mean probability;
    tokens below .3, and the smallest probability above .9; pass rates with everything hidden and with the
    last quarter hidden, of `samples` answers each (0: left out).
    """
    pool = None
    if samples:
        try:
            pool = SandboxPool(SandboxPolicy(), workers=1)
        except SandboxUnavailableError as error:
            print(f"no pass rates: {error}")
    low, high = UNDECIDED
    print(
        f"{'task':<10}{'prompt':>8}{'golden':>8}{'undecided':>11}{'p there':>9}{'below .3':>10}{'least else':>12}"
        f"{'pass k=L':>10}{'k=L/4':>8}"
    )
    torch.manual_seed(0)
    for lesson in lessons:
        probs_T = golden_probs(model, lesson, tokenizer)
        undecided = probs_T[(low <= probs_T) & (probs_T <= high)]
        sure = probs_T[probs_T > high]
        length = len(lesson.golden_ids)
        line = (
            f"{lesson.task.id:<10}{len(lesson.prompt_ids):>8,}{length:>8,}{len(undecided):>11}"
            f"{undecided.mean() if len(undecided) else float('nan'):>9.2f}{(probs_T < low).sum():>10}"
            f"{sure.min() if len(sure) else float('nan'):>12.3f}"
        )
        if pool is not None:
            for k, width in ((length, 10), (-(-length // 4), 8)):
                rate = pass_rate(model, lesson, tokenizer, pool, k=k, samples=samples)
                line += f"{rate:>{width}.2f}"
        print(line, flush=True)
    if pool is not None:
        pool.close()
