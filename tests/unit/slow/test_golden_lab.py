"""The lab of golden_baselines.py: its engine against transformers, learning and costs by hand."""

import copy
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import golden_arms
from golden_arms import grpo_update, padded, sft_loss
from golden_engine import GoldenEngine, make_worker
from golden_meter import Meter, RememberingExecutor

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from data_preprocess.demo_models.small_model import SmallModelSettings, build_model
from recipe.golden_redaction.method.labelled_states import LabelledState
from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.rollouts import Answer
from recipe.golden_redaction.method.targets import TargetSettings
from recipe.golden_redaction.settings import GoldenSettings
from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.results import Execution, ProgramResult, Status
from verl_ext.serving.requests import Continuations

TOKENIZER = build_tokenizer()
PAD, END = int(TOKENIZER.pad_token_id or 0), int(TOKENIZER.eos_token_id or 0)
SETTINGS = SmallModelSettings(
    steps=1, weight_decay=0.0, hidden_size=32, num_layers=2, num_heads=1, intermediate_size=64, initializer_range=0.2
)
GOLDEN = GoldenSettings.model_validate(
    {
        "max_new_tokens": 8,
        "credit": {"num_next_tokens": 4, "max_actions": 3, "rollouts_per_action": 4},
        "redaction": {"growth": 1.0},
        "targets": {"steps": 4},
    }
)


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def problem(name: str) -> Problem:
    """A problem whose golden solution ends in `[[7]]`."""
    pairs = (Pair(((0,),), ((7,),)),)
    return Problem(name, ids(f"prompt of {name}:"), ids(f'\n - {name}\n """\n return [[7]]'), pairs, pairs, ())


PROBLEMS = tuple(problem(name) for name in ("a", "bb", "ccc", "dddd"))


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    return build_model(SETTINGS, TOKENIZER, max_position_embeddings=128).eval()  # pyright: ignore


@pytest.fixture
def engine(model: Qwen2ForCausalLM) -> GoldenEngine:
    return GoldenEngine(copy.deepcopy(model), PAD, END, seed=0)


class Sevens:
    """An executor for which programs with `return [[7]]` are right."""

    def __init__(self) -> None:
        self.counts: Counter[Status] = Counter()
        self.isolation: dict[str, str] = {}
        self.ran: list[str] = []

    def check_many(self, jobs: Any, stop_at_first_failure: bool = False) -> list[ProgramResult]:
        jobs = list(jobs)
        self.ran += [source for source, _ in jobs]
        right, wrong = (Execution(Status.OK, ((7,),), cpu_seconds=0.5), Execution(Status.WRONG_OUTPUT, cpu_seconds=0.5))
        return [ProgramResult(tuple(right if "[[7]]" in src else wrong for _ in pairs)) for src, pairs in jobs]


# ------------------------------ the engine ------------------------------


def greedy(model: Qwen2ForCausalLM, prompt: Sequence[int], count: int) -> list[int]:
    text = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(prompt) :]


def test_rows_that_share_a_text_continue_it_as_transformers_does(engine: GoldenEngine, monkeypatch):
    monkeypatch.setattr(torch, "multinomial", lambda probs, num, generator: probs.argmax(-1, keepdim=True))
    texts = [[*p.prompt_ids, *p.golden_ids] for p in PROBLEMS]
    engine.text(texts[0])
    # Prefixes of one text, some with another last token, and texts that were not read before.
    prompts = [[*texts[0][:-k], *more] for k in (3, 9) for more in ([], [5], [6])]
    prompts += [texts[1], texts[2][:-4], [*texts[0][:-3], 5]]
    expected = [greedy(engine.model, prompt, 12) for prompt in prompts]
    # A token that many rows contain: these rows leave the batch at different steps.
    engine.end = Counter(token for row in expected for token in set(row[:8])).most_common(1)[0][0]
    cut = [row[: row.index(engine.end) + 1] if engine.end in row else row for row in expected]
    made = engine.generate([Continuations(prompt, 2, 12, 0) for prompt in prompts])
    assert [[row for row, _ in answers] for answers in made] == [[row, row] for row in cut]
    assert [answers[0][1] for answers in made] == ["stop" if row[-1] == engine.end else "length" for row in cut]
    assert len({len(row) for row in cut}) > 1


def test_samples_follow_the_models_distribution(engine: GoldenEngine):
    prompt = PROBLEMS[0].prompt_ids
    made = engine.generate([Continuations(prompt, 4000, 1, 0)])[0]
    found = np.bincount([row[0] for row, _ in made], minlength=len(TOKENIZER)) / 4000
    expected = engine.model(torch.tensor([prompt])).logits[0, -1].detach().softmax(-1).numpy()
    assert abs(found - expected).max() < 4 * np.sqrt(expected.max() / 4000)


def test_text_log_probs_are_those_of_transformers_and_forgotten_with_the_weights(engine: GoldenEngine):
    text = [*PROBLEMS[0].prompt_ids, *PROBLEMS[0].golden_ids]

    def reference() -> list[float]:
        logits = engine.model(torch.tensor([text])).logits[0, :-1].detach()
        return torch.log_softmax(logits, -1).gather(1, torch.tensor([text[1:]]).T)[:, 0].tolist()

    assert engine.prompt_log_probs([text, text[:-3]])[0] == pytest.approx(reference(), abs=1e-5)
    assert engine.prompt_log_probs([text[:-3]])[0] == pytest.approx(reference()[:-3], abs=1e-5)
    with torch.no_grad():
        engine.model.lm_head.weight += 0.1 * torch.randn_like(engine.model.lm_head.weight)
    engine.forget()
    assert engine.prompt_log_probs([text])[0] == pytest.approx(reference(), abs=1e-5)


def test_every_position_is_counted(engine: GoldenEngine):
    prompt, golden = PROBLEMS[0].prompt_ids, PROBLEMS[0].golden_ids
    engine.end = -1  # no row ends
    engine.generate([Continuations(prompt, 3, 5, 0)])
    assert engine.positions == {"without_gradient": len(prompt) - 1 + 3 * 5}
    assert engine.counts == {"rollouts": 3, "generated": 15}
    engine.generate([Continuations(prompt, 4, 1, 0)])  # next tokens are not rollouts, and the prompt was read before
    assert engine.positions == {"without_gradient": len(prompt) - 1 + 3 * 5 + 4}
    assert engine.counts == {"rollouts": 3, "generated": 15}
    engine.positions.clear()
    sft_loss(engine, [prompt, prompt], [golden, golden])
    # The prompt counts once for both; all tokens of an answer but the last are inputs.
    assert engine.positions == {"with_gradient": len(prompt) + 2 * (len(golden) - 1)}
    engine.positions.clear()
    with torch.no_grad():
        engine.model(torch.tensor([prompt]))
    assert engine.positions == {"without_gradient": len(prompt)}


# ------------------------------ learning ------------------------------


def test_the_loss_of_sft_is_the_cross_entropy_of_the_solutions_tokens_only(engine: GoldenEngine):
    prompts = [p.prompt_ids for p in PROBLEMS]
    answers = [(*p.golden_ids, END) for p in PROBLEMS]
    parts = []
    for prompt, answer in zip(prompts, answers, strict=True):
        logits = engine.model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
        parts.append(functional.cross_entropy(logits, torch.tensor(answer), reduction="sum"))
    by_hand = torch.stack(parts).sum() / sum(map(len, answers))
    loss = sft_loss(engine, prompts, answers)
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)
    weight = engine.model.model.layers[0].mlp.up_proj.weight
    expected, found = (torch.autograd.grad(value, weight)[0] for value in (by_hand, loss))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_padding_stands_on_the_outer_sides():
    prompts, responses, mask = padded([[1], [2, 3]], [[4, 5, 6], [7]], 0)
    assert prompts.tolist() == [[0, 1], [2, 3]]
    assert responses.tolist() == [[4, 5, 6], [7, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def log_prob(engine: GoldenEngine, answer: Answer) -> float:
    text = [*answer.problem.prompt_ids, *answer.made]
    return sum(engine.prompt_log_probs([text])[0][-len(answer.made) :])


def test_grpo_raises_what_passed_and_makes_no_step_without_an_advantage(engine: GoldenEngine):
    optimizer = torch.optim.AdamW(engine.model.parameters(), lr=1e-3, weight_decay=0.0)
    answers = [Answer(PROBLEMS[0], (), ids(text), True) for text in ("right", "wrong", "no")]
    before = [log_prob(engine, answer) for answer in answers]
    grpo_update(engine, optimizer, answers, [1.0, 1.0, 1.0], updates=2)
    assert engine.counts["updates"] == 0
    assert [log_prob(engine, answer) for answer in answers] == before
    grpo_update(engine, optimizer, answers, [1.0, 0.0, 0.0], updates=2)
    assert engine.counts["updates"] == 2
    moved = [log_prob(engine, answer) - was for answer, was in zip(answers, before, strict=True)]
    assert moved[0] > 0 > max(moved[1:])
    # Texts that were read under the weights before the step are forgotten.
    anew = GoldenEngine(engine.model, PAD, END, seed=0)
    assert log_prob(engine, answers[0]) == pytest.approx(log_prob(anew, answers[0]), abs=1e-5)


def test_grpo_learns_a_response_behind_what_was_given(engine: GoldenEngine):
    optimizer = torch.optim.SGD(engine.model.parameters(), lr=1e-3)
    p = PROBLEMS[0]
    answers = [Answer(p, p.given(3), ids(text), True) for text in ("right", "wrong")]
    texts = [[*p.prompt_ids, *p.given(3), *answer.made] for answer in answers]
    before = engine.prompt_log_probs(texts)
    grpo_update(engine, optimizer, answers, [1.0, 0.0], updates=1)
    right, wrong = (
        sum(now[-5:]) - sum(was[-5:]) for now, was in zip(engine.prompt_log_probs(texts), before, strict=True)
    )
    assert right > 0 > wrong


def test_a_problem_comes_once_per_turn():
    batches = golden_arms._turns([*PROBLEMS, problem("e"), problem("f")], np.random.default_rng(0))
    names = [p.id for _ in range(6) for p in next(batches)]
    for start in range(0, 24, 4):
        assert len(set(names[start : start + 4])) == 4
    assert set(Counter(names).values()) == {4}


def test_the_products_worker_brings_a_token_to_its_target(engine: GoldenEngine):
    worker = make_worker(engine, torch.optim.SGD(engine.model.parameters(), lr=0.1))
    state = LabelledState(PROBLEMS[0].prompt_ids, (65, 66), (-1.0, float("nan")), (1, 0), (1.0, 0.0))
    [before] = worker.state_log_probs([state], False, False).log_probs.values()
    target = before[0] + 1.0
    state = LabelledState(state.ids, state.tokens, (target, float("nan")), state.advantages, state.weights)
    [update] = worker.train_states([[state]], None, TargetSettings(steps=16, aim=0.9))
    [after] = worker.state_log_probs([state], False, False).log_probs.values()
    assert before[0] + 0.5 < after[0] <= target
    assert engine.counts["updates"] == update.num_steps > 0


# ------------------------------ costs ------------------------------


def test_equal_programs_run_once_and_pauses_cost_nothing(engine: GoldenEngine):
    sevens = Sevens()
    executor = RememberingExecutor(sevens)  # pyright: ignore
    meter = Meter(engine, executor)
    jobs = [("return [[7]]", PROBLEMS[0].pairs), ("x", PROBLEMS[0].pairs), ("x", PROBLEMS[0].pairs)]
    assert [result.reward for result in executor.check_many(jobs)] == [1.0, 0.0, 0.0]
    assert [result.reward for result in executor.check_many(jobs[1:])] == [0.0, 0.0]
    assert sevens.ran == ["return [[7]]", "x"]
    engine.generate([Continuations(PROBLEMS[0].prompt_ids, 2, 3, 0)])
    spent = meter.cost
    assert (spent.rollouts, spent.programs, spent.updates) == (2, 2, 0)
    assert spent.seconds >= 1.0  # of the programs
    with meter.paused():
        engine.generate([Continuations(PROBLEMS[1].prompt_ids, 2, 3, 0)])
        executor.check_many([("y", PROBLEMS[0].pairs)])
    assert meter.cost.passes == spent.passes
    assert (meter.cost.rollouts, meter.cost.programs) == (2, 2)
