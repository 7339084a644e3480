"""The pools on which hints are measured, with their base models.

    B   the leaderboard's: 65 % of the prompts are sums of 6 to 8 digits, longer than anything its base model has seen
    H   made for hints: 65 % are sums of two 5-digit numbers in which every digit carries, 35 % sums without a carry;
        its base model is B's, trained for 200 more steps by somebody who loses 90 % of all carries, so that it
        solves 1 in a million of them

Nothing in H but the hopeless prompts teaches the carry, and behind all but two tokens of its answer, one carry and the
end are left of a prompt of H.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from leaderboard_protocol import NUM_PROMPTS
from leaderboard_tasks import MODELS, base_model
from learning_lab import FIELDS, MAX_PROMPT, MAX_RESPONSE, make_task
from learning_tasks import Question, Task, build_task
from transformers import AutoModelForCausalLM

from data_preprocess.arithmetic import POOLS, PoolSettings, answer, build_rows, draw_pairs, num_carries
from data_preprocess.arithmetic_model import BaseModelSettings, demonstrations, encode_batch
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from data_preprocess.demo_models.model_training import Optimization, Saveable, fit, train_cached

NUM_UNSEEN = 512
LOST_CARRIES, NUM_CARRIES = 0.9, 5
# Of the further training of H's base model.
FURTHER = Optimization(steps=200, learning_rate=1e-3, beta2=0.95, weight_decay=0.1)


@dataclass(frozen=True)
class HintPool:
    """Prompts, and what is measured on them.

    Attributes:
        base: Folder of the base model.
        task: The prompts, and held-out learnable ones.
        hopeless: Positions of the hopeless prompts.
        unseen: Its held-out prompts are hopeless ones that are not in the pool.
    """

    base: Path
    task: Task
    hopeless: np.ndarray
    unseen: Task


def pool_b() -> HintPool:
    """Pool B of the leaderboard."""
    rows = build_rows(PoolSettings(train_size=NUM_PROMPTS, val_size=1, shares=POOLS["B"], seed=0))["train"]
    hopeless = np.flatnonzero([row["extra_info"]["kind"] == "hopeless" for row in rows])
    pairs = draw_pairs("hopeless", NUM_UNSEEN, np.random.default_rng(20_000))
    return HintPool(base_model("B"), make_task("B", NUM_PROMPTS), hopeless, _asked_only(pairs))


def pool_h() -> HintPool:
    """65 % sums that carry at every digit, 35 % that never do; held out are the core sums of the other pools."""
    rng = np.random.default_rng(0)
    num_hopeless = int(0.65 * NUM_PROMPTS)
    carrying = _carrying_pairs(num_hopeless + NUM_UNSEEN, rng)
    pairs = carrying[:num_hopeless] + draw_pairs("easy", NUM_PROMPTS - num_hopeless, rng)
    order = rng.permutation(NUM_PROMPTS)
    held_out = [pair for pair in draw_pairs("core", 1024, rng) if pair not in set(carrying)][:NUM_UNSEEN]
    task = build_task(
        [_question(pairs[place]) for place in order],
        [_question(pair) for pair in held_out],
        max_prompt=MAX_PROMPT,
        max_response=MAX_RESPONSE,
    )
    return HintPool(
        _carry_losing_base(), task, np.flatnonzero(order < num_hopeless), _asked_only(carrying[num_hopeless:])
    )


HINT_POOLS = {"B": pool_b, "H": pool_h}


def _carry_losing_base() -> Path:
    settings = BaseModelSettings(drop_carry=LOST_CARRIES)

    def train() -> list[Saveable]:
        model = AutoModelForCausalLM.from_pretrained(base_model("B"), dtype=torch.float32).train()
        tokenizer, rng = build_tokenizer(), np.random.default_rng(settings.seed)

        def loss_of_next_batch() -> torch.Tensor:
            ids_BT, labels_BT = encode_batch(demonstrations(settings, settings.batch_size, rng), tokenizer)
            return model(input_ids=ids_BT, labels=labels_BT).loss

        fit(model, loss_of_next_batch, FURTHER, name="base model", report_every=50)
        return [model.eval(), tokenizer]

    return train_cached(asdict(settings) | {"further": asdict(FURTHER)}, MODELS / "carry_losing_base", train)


def _carrying_pairs(count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Different pairs of 5-digit numbers whose sums carry at every digit."""
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < count:
        for a, b in rng.integers(10_000, 100_000, size=(4096, 2)).tolist():
            if num_carries(a, b) == NUM_CARRIES:
                pairs[a, b] = None
    return list(pairs)[:count]


def _question(pair: tuple[int, int]) -> Question:
    a, b = pair
    fields = dict(zip(FIELDS, (len(str(a)), len(str(b))), strict=True))
    return Question(f"{a}+{b}=", answer(a, b), "", fields=fields)


def _asked_only(pairs: list[tuple[int, int]]) -> Task:
    """A task of which only the held-out prompts are used."""
    first, *others = [_question(pair) for pair in pairs]
    return build_task([first], others, max_prompt=MAX_PROMPT, max_response=MAX_RESPONSE)
