"""Word problems as a task of tests/benchmarks/learning_tasks.py, from the files and the model of `make demo-real`.

Suffixes: P prompts, H held-out prompts, C components.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from learning_tasks import Task
from pieces import PieceError
from transformers import AutoModel, AutoTokenizer

from data_preprocess.prompt_states import encode, last_states, principal_components

# As in configs/experiment/smollm2_svamp_cpu.yaml.
MAX_PROMPT, MAX_RESPONSE = 480, 40
# The defaults of data_preprocess.prompt_states.
TOKENS_PER_BATCH, NUM_COMPONENTS = 16384, 16


@dataclass(frozen=True)
class Problems:
    """A task whose answers are judged by a reward function: many completions are right.

    Attributes:
        task: Its `answers` are empty, its `held_out_answers` only say how long a response may be.
        truths: P ground truths.
        held_out_truths: H ground truths.
        tokenizer: The model's tokenizer.
    """

    task: Task
    truths: list[str]
    held_out_truths: list[str]
    tokenizer: Any


def read_problems(model: Path, data: Path, *, most: int | None = None, max_response: int = MAX_RESPONSE) -> Problems:
    """The questions of svamp.parquet for training and of svamp_test.parquet for evaluation, at most `most` of each.

    Raises:
        PieceError: A file or the model is missing.
    """
    files = [data / "svamp.parquet", data / "svamp_test.parquet"]
    for path in (model / "config.json", *files):
        if not path.is_file():
            raise PieceError(f"expected {path}, found nothing: assemble the pieces, or `make demo-real-data`.")
    tokenizer = AutoTokenizer.from_pretrained(model)
    parts: list[tuple[list[list[int]], list[str]]] = []
    for path in files:
        rows = pq.read_table(path).to_pylist()[:most]
        ids = encode([row["prompt"] for row in rows], tokenizer, {}, str(path))
        kept = [number for number, tokens in enumerate(ids) if len(tokens) <= MAX_PROMPT]
        parts.append(([ids[n] for n in kept], [str(rows[n]["reward_model"]["ground_truth"]) for n in kept]))
    (prompts, truths), (held_out, held_out_truths) = parts
    pad = _padding(tokenizer, [*prompts, *held_out])
    width = max(map(len, [*prompts, *held_out]))
    task = Task(
        prompts=_left_padded(prompts, pad, width),
        answers=[[] for _ in prompts],
        held_out_prompts=_left_padded(held_out, pad, width),
        held_out_answers=torch.full((len(held_out), max_response), pad),
        pad=pad,
        end=int(tokenizer.eos_token_id),
        domain_names=("svamp",),
        domains=np.zeros(len(prompts), dtype=np.int64),
        held_out_domains=np.zeros(len(held_out), dtype=np.int64),
        feature_names=("domain_svamp", "prompt_tokens"),
        features=np.array([[1.0, len(ids)] for ids in prompts]),
    )
    return Problems(task, truths, held_out_truths, tokenizer)


def prompt_states(problems: Problems, model: Path, device: str) -> np.ndarray:
    """(P, C) float32: the model's state of each prompt before any training."""
    task = problems.task
    prompts = [ids[ids != task.pad].tolist() for ids in task.prompts]
    base = AutoModel.from_pretrained(model, dtype=torch.float32).eval().to(device)
    return principal_components(last_states(base, prompts, TOKENS_PER_BATCH), NUM_COMPONENTS)[0]


def with_states(problems: Problems, states_PC: np.ndarray) -> Problems:
    """The problems with `prompt_states`."""
    return replace(problems, task=replace(problems.task, states=states_PC))


def _padding(tokenizer: Any, prompts: Sequence[Sequence[int]]) -> int:
    """A token that no prompt has and that ends no response: many tokenizers pad with the end of a turn.

    Raises:
        PieceError: The tokenizer has none to spare.
    """
    used = {token for ids in prompts for token in ids} | {tokenizer.eos_token_id}
    spare = [token for token in tokenizer.all_special_ids if token not in used]
    if not spare:
        raise PieceError("expected a special token that no prompt has, for padding, found none. Take another model.")
    return int(spare[0])


def _left_padded(ids: Sequence[Sequence[int]], pad: int, width: int) -> torch.Tensor:
    return torch.tensor([[pad] * (width - len(row)) + list(row) for row in ids])
