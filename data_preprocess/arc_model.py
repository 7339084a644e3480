"""Train the base model of golden redaction's CPU demo: a small Qwen2 trained on golden solutions with mistakes.

    python -m data_preprocess.arc_model --input arc-agi-1_training.json.gz --local_save_dir outputs/models/arc_base
    python -m data_preprocess.arc --arc1_training arc-agi-1_training.json.gz --local_save_dir outputs/data/arc_demo \\
        --tasks <the line `tasks:` that the first one prints>

About two minutes on one CPU core; a second call with the same settings and data returns immediately. `--input` is
required: nothing may be downloaded for a demo, and a task's pairs cannot be made from its golden solution. See
`verl_ext.data.arc_tasks` for its formats.

The model learns a few tasks by heart: it sees golden redaction's prompts of them (with the --grid_format and
--test_inputs of the run's `golden.prompt`: it does not recognise its tasks in another format), each followed by copies
of the golden solution with newly drawn mistakes (`data_preprocess.demo_models.arc_mistakes`). So it writes complete
programs and is sure of nearly every token, but in a few states of a golden solution the right token has a probability
of about three quarters, and one or two plausible wrong ones share the rest. In these states redaction can find
something out.

Simplification: it understands nothing. It recognises its tasks by their prompts and knows no others.

Saved in Hugging Face format, in float32, with its own byte-level BPE tokenizer, trained on all golden solutions, so
that it does not depend on the chosen tasks.

P: tokens of a prompt. B: copies of its solution in a batch. T: tokens of an answer. V: vocabulary.
"""

import argparse
import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import DynamicCache, Qwen2ForCausalLM

from data_preprocess.demo_models.arc_lessons import (
    Lesson,
    SavedTokenizer,
    choose,
    closing_ids,
    read_lessons,
    train_tokenizer,
    tutorial_texts,
)
from data_preprocess.demo_models.arc_mistakes import replace_at
from data_preprocess.demo_models.arc_model_report import print_report
from data_preprocess.demo_models.model_training import fit, train_cached
from data_preprocess.demo_models.small_model import SmallModelSettings, build_model
from data_preprocess.ending import errors_in_one_line
from verl_ext.arc.prompt_options import add_prompt_arguments, prompt_settings
from verl_ext.arc.prompts import SizeLimits, encode_golden

# A prompt and its answer have at most about 1,200 tokens.
MAX_POSITIONS = 2048


@dataclass(frozen=True, kw_only=True)
class ArcModelSettings(SmallModelSettings):
    """All settings that determine the weights, except the data; see `SmallModelSettings` for the rest.

    Attributes:
        tasks_per_step: Distinct tasks per step.
        copies: Solutions with mistakes per task.
        mistake_rate: Probability of a mistake at a site.
        max_sites: Maximum sites per solution.
        vocab_size: Number of tokens, including special ones.
    """

    steps: int = 350
    weight_decay: float = 0.01
    tasks_per_step: int = 2
    copies: int = 8
    mistake_rate: float = 0.26
    max_sites: int = 7
    vocab_size: int = 1536

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mistake_rate <= 1:
            raise ValueError(f"mistake_rate must be a probability, got {self.mistake_rate}")
        if min(self.tasks_per_step, self.copies, self.max_sites) < 1:
            raise ValueError(f"tasks_per_step, copies and max_sites must be at least 1, got {self}")
        if self.vocab_size < 300:
            raise ValueError(f"vocab_size must be at least 300 (256 bytes, special tokens), got {self.vocab_size}")


def answer_ids(lesson: Lesson, tokenizer: SavedTokenizer, rng: np.random.Generator, rate: float) -> list[int]:
    """The tokens after the prompt in one text of the corpus: a copy with mistakes, the closing fence, end of text.

    The copy is encoded as a separate text, like a golden solution, so that redaction's states have the same ids as the
    training data.
    """
    return [*encode_golden(replace_at(lesson.source, lesson.sites, rng, rate), tokenizer), *closing_ids(tokenizer)]


def answer_loss(model: Qwen2ForCausalLM, prompt_ids: Sequence[int], answers: Sequence[Sequence[int]]) -> torch.Tensor:
    """Mean negative log-prob, in nats, of the answers' tokens after one prompt; the prompt's own are not learned.

    The prompt is several times as long as an answer and is processed once for all of them: the answers attend to its
    keys and values, through which gradients flow.

    Args:
        model: Model whose gradients are recorded.
        prompt_ids: P token ids.
        answers: B answers, each with its end-of-text token.
    """
    cache = DynamicCache(config=model.config)
    first_11V = model(
        input_ids=torch.tensor([list(prompt_ids)]), past_key_values=cache, use_cache=True, logits_to_keep=1
    ).logits
    cache.batch_repeat_interleave(len(answers))
    labels_BT = torch.full((len(answers), max(map(len, answers))), -100)
    for row, ids in enumerate(answers):
        labels_BT[row, : len(ids)] = torch.tensor(ids)
    # Tokens after an end of text do not matter, because no answer token attends to them.
    inputs_BT = labels_BT[:, :-1].clamp(min=0)
    further_BTV = model(input_ids=inputs_BT, past_key_values=cache, use_cache=True).logits
    logits_BTV = torch.cat([first_11V.expand(len(answers), -1, -1), further_BTV], dim=1)
    return functional.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), ignore_index=-100)


def train(
    lessons: Sequence[Lesson],
    tokenizer: SavedTokenizer,
    settings: ArcModelSettings,
    *,
    report_every: int = 25,
) -> Qwen2ForCausalLM:
    """Train from scratch; returns the model in eval mode.

    Args:
        lessons: The tasks and their solutions; mistakes are made at their sites.
        tokenizer: The tokenizer of the lessons' ids.
        settings: Equal settings give equal weights on the same machine with the same number of torch threads.
        report_every: Steps between two lines of progress; 0: no progress.
    """
    model = build_model(settings, tokenizer, max_position_embeddings=MAX_POSITIONS).train()
    rng = np.random.default_rng(settings.seed)

    def loss_of_next_batch() -> torch.Tensor:
        drawn = rng.choice(len(lessons), size=min(settings.tasks_per_step, len(lessons)), replace=False)
        losses = []
        for lesson in (lessons[place] for place in drawn):
            answers = [answer_ids(lesson, tokenizer, rng, settings.mistake_rate) for _ in range(settings.copies)]
            losses.append(answer_loss(model, lesson.prompt_ids, answers))
        return torch.stack(losses).mean()

    fit(
        model,
        loss_of_next_batch,
        settings.optimization,
        name="base model of golden redaction",
        report_every=report_every,
    )
    return model.eval()


def digest(texts: Sequence[str]) -> str:
    """A digest of the data, equal for equal texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or reuse the trained model, and print its tasks and its folder; errors end the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="ARC-AGI-1's training tasks: .json, .json.gz or a folder")
    parser.add_argument("--local_save_dir", type=Path, required=True, help="folder for the model")
    parser.add_argument("--tasks", help="ids separated by commas; otherwise --num_tasks are chosen by their size")
    add_prompt_arguments(parser)
    parser.add_argument("--num_tasks", type=int, default=8)
    parser.add_argument("--max_prompt_tokens", type=int, default=900)
    parser.add_argument("--max_golden_tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=ArcModelSettings.steps)
    parser.add_argument("--samples", type=int, default=16, help="answers per pass rate in the report; 0: no report")
    parser.add_argument("--force", action="store_true", help="train even if the folder has this model")
    args = parser.parse_args(argv)
    with errors_in_one_line(args.local_save_dir, ValueError):
        settings = ArcModelSettings(seed=args.seed, steps=args.steps)
        limits = SizeLimits(max_prompt_tokens=args.max_prompt_tokens, max_golden_tokens=args.max_golden_tokens)
        prompt = prompt_settings(args)
        texts = tutorial_texts(settings.max_sites)
        tokenizer = train_tokenizer(texts, settings.vocab_size)
        lessons = choose(
            read_lessons(args.input, tokenizer, settings.max_sites, prompt),
            limits,
            args.tasks.split(",") if args.tasks else args.num_tasks,
        )
        ids = ",".join(lesson.task.id for lesson in lessons)
        learned = [part for lesson in lessons for part in (str(lesson.task), lesson.source)]
        record = dataclasses.asdict(settings) | {
            "tasks": ids,
            "data": digest([*texts, *learned]),
            "prompt": prompt.model_dump(),
        }
        # Matrices this small gain nothing from a second thread, and the weights depend on the number of threads.
        torch.set_num_threads(1)
        trained: list[Qwen2ForCausalLM] = []

        def train_once() -> tuple[Qwen2ForCausalLM, SavedTokenizer]:
            trained.append(train(lessons, tokenizer, settings))
            return trained[0], tokenizer

        folder = train_cached(record, args.local_save_dir, train_once, force=args.force)
        for model in trained:  # none if the folder had this model
            print_report(model, lessons, tokenizer, args.samples)
    print(f"tasks: {ids}")
    print(folder)


if __name__ == "__main__":
    main()
