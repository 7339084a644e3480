"""The tasks of a policy of `learning_lab.py`: prompts as token ids, right completions, domains and features.

Suffixes: P prompts, H held-out prompts, F features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer


@dataclass(frozen=True)
class Question:
    """A prompt as text.

    Attributes:
        text: The prompt.
        answer: The only right completion, without the end-of-text token.
        kind: For people and tests; hidden from methods, because it shows how the base model does.
        domain: The data source.
        fields: What the pool's row says about the prompt's difficulty, such as its digits. Nothing that only the
            answer tells, such as the number of carries.
    """

    text: str
    answer: str
    kind: str
    domain: str = "sums"
    fields: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Prompts of a pool as token ids, and the held-out learnable prompts that learning is measured on.

    Attributes:
        prompts: (P, max_prompt) int64, padded on the left.
        answers: Right completions, the end-of-text token included, P lists of ids.
        held_out_prompts: (H, max_prompt).
        held_out_answers: (H, max_response), padded on the right.
        pad, end: Token ids.
        domain_names: The data sources, D of them.
        domains: (P,) int64, index of each prompt's source.
        held_out_domains: (H,) int64.
        feature_names: Names of the F
        features: `domain_<name>` for each source, prompt_tokens, and the rows' fields. features: (P, F) float64: known
            before any rollout.
        states: (P, C) float32: the base model's states (`data_preprocess.prompt_states`), if requested.
    """

    prompts: torch.Tensor
    answers: list[list[int]]
    held_out_prompts: torch.Tensor
    held_out_answers: torch.Tensor
    pad: int
    end: int
    domain_names: tuple[str, ...]
    domains: np.ndarray
    held_out_domains: np.ndarray
    feature_names: tuple[str, ...]
    features: np.ndarray
    states: np.ndarray | None = None

    @property
    def max_prompt(self) -> int:
        """Tokens of the longest prompt that there could be."""
        return self.prompts.shape[1]

    @property
    def max_response(self) -> int:
        """Tokens after which a response is cut off."""
        return self.held_out_answers.shape[1]


def build_task(
    questions: Sequence[Question], held_out: Sequence[Question], *, max_prompt: int, max_response: int
) -> Task:
    """Questions as token ids; sources in the order of their names.

    Args:
        questions: P of them, all with the same fields.
        held_out: H others, of the same sources.
        max_prompt: In tokens.
        max_response: In tokens, with the end-of-text token.

    Raises:
        ValueError: If a prompt or a right completion is longer than allowed, or a held-out prompt is in `questions`.
    """
    seen = {question.text for question in questions}
    if both := [question.text for question in held_out if question.text in seen]:
        raise ValueError(f"held-out prompts must not be trained on, got {len(both)} that are, {both[0]!r} among them")
    tokenizer = build_tokenizer()
    pad, end = int(tokenizer.pad_token_id), int(tokenizer.eos_token_id)
    prompts, held_out_prompts = (
        [tokenizer(question.text)["input_ids"] for question in part] for part in (questions, held_out)
    )
    answers, held_out_answers = (
        [[*tokenizer(question.answer)["input_ids"], end] for question in part] for part in (questions, held_out)
    )
    for limit, rows in (
        (max_prompt, [*prompts, *held_out_prompts]),
        (max_response, [*answers, *held_out_answers]),
    ):
        if (longest := max(map(len, rows))) > limit:
            raise ValueError(f"expected at most {limit} tokens, got {longest}. Raise the limit of this task.")
    names = tuple(sorted({question.domain for question in questions}))
    domains = np.array([names.index(question.domain) for question in questions])
    fields = list(questions[0].fields)
    values = [[question.fields[name] for name in fields] for question in questions]
    features = [np.eye(len(names))[domains], np.array([[len(ids)] for ids in prompts]), np.array(values)]
    return Task(
        prompts=_left_padded(prompts, pad, max_prompt),
        answers=answers,
        held_out_prompts=_left_padded(held_out_prompts, pad, max_prompt),
        held_out_answers=torch.tensor([ids + [pad] * (max_response - len(ids)) for ids in held_out_answers]),
        pad=pad,
        end=end,
        domain_names=names,
        domains=domains,
        held_out_domains=np.array([names.index(question.domain) for question in held_out]),
        feature_names=(*(f"domain_{name}" for name in names), "prompt_tokens", *fields),
        features=np.concatenate(features, axis=1).astype(np.float64),
    )


def _left_padded(ids: Sequence[list[int]], pad: int, width: int) -> torch.Tensor:
    return torch.tensor([[pad] * (width - len(row)) + row for row in ids])


def draw_different(draw: Callable[[], Question], count: int, known: set[str]) -> list[Question]:
    """`count` questions whose texts are not in `known`, which they are added to.

    Raises:
        ValueError: If a thousand draws in a row give nothing new.
    """
    found: list[Question] = []
    misses = 0
    while len(found) < count:
        question = draw()
        misses = misses + 1 if question.text in known else 0
        if misses == 1000:
            raise ValueError(f"found only {len(found)} new questions, expected {count}. Ask for a smaller pool.")
        if not misses:
            known.add(question.text)
            found.append(question)
    return found
