"""The leaderboard's pools: what they are made of, that their answers are right, and how the lab uses them."""

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import chain_sums
import domain_sums
import leaderboard_tasks
from leaderboard_tasks import BASES, make_task, train
from learning_lab import Policy
from learning_tasks import Question, build_task, draw_different

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer

SIZE, HELD_OUT = 600, 90
TOKENIZER = build_tokenizer()

every_pool = pytest.mark.parametrize("pool", leaderboard_tasks.POOLS)
new_pool = pytest.mark.parametrize("source", [chain_sums, domain_sums])


@pytest.fixture(scope="module")
def tasks():
    return {pool: make_task(pool, SIZE, held_out=HELD_OUT) for pool in leaderboard_tasks.POOLS}


def texts(ids) -> list[str]:
    return [TOKENIZER.decode(row, skip_special_tokens=True) for row in ids]


def numbers(text: str) -> list[int]:
    return list(map(int, re.findall(r"\d+", text)))


def backwards(number: int, width: int = 0) -> str:
    return f"{number:0{width}d}"[::-1]


def right_answer(prompt: str) -> str:
    """The answer to a prompt, by Python's own arithmetic."""
    values = numbers(prompt)
    if "-" in prompt:
        return backwards(values[0] - values[1], len(str(values[0])))
    if prompt.endswith("?"):
        return f"[{backwards(sum(values))}]"
    steps = [f"+{values[i]}={backwards(sum(values[: i + 1]))}" for i in range(2, len(values))]
    return backwards(values[0] + values[1]) + "".join(steps)


def carries(prompt: str) -> int:
    """Each carry turns a ten into a one, so it takes 9 off the digits' sum."""

    def digit_sum(number: int) -> int:
        return sum(map(int, str(number)))

    values = numbers(prompt)
    if "-" in prompt:
        values = [values[0] - values[1], values[1]]
    return (sum(map(digit_sum, values)) - digit_sum(sum(values))) // 9


def domain_of(prompt: str) -> str:
    if "-" in prompt:
        return "differences"
    return "boxed" if prompt.endswith("?") else "sums"


# ------------------------------ all pools ------------------------------


@every_pool
def test_the_right_completion_is_what_python_says(tasks, pool):
    task = tasks[pool]
    assert all(ids[-1] == task.end for ids in task.answers)
    for prompt, answer in zip(texts(task.prompts), texts(task.answers), strict=True):
        assert answer == right_answer(prompt), prompt
    for prompt, answer in zip(texts(task.held_out_prompts), texts(task.held_out_answers), strict=True):
        assert answer == right_answer(prompt), prompt


@every_pool
def test_prompts_differ_and_held_out_ones_are_never_trained_on(tasks, pool):
    prompts, held_out = texts(tasks[pool].prompts), texts(tasks[pool].held_out_prompts)
    assert len(set(prompts)) == len(prompts) == SIZE
    assert len(set(held_out)) == len(held_out) == HELD_OUT
    assert not set(prompts) & set(held_out)


@every_pool
def test_held_out_prompts_are_those_that_can_be_learned(tasks, pool):
    for prompt in texts(tasks[pool].held_out_prompts):
        additions = partial_sums(prompt) if pool == "T" else [prompt]
        assert sum(map(carries, additions)) > 0 or prompt.endswith("?")
        assert max(numbers(prompt)) < 200_000


@every_pool
def test_features_are_those_of_the_prompts_text(tasks, pool):
    # From the text only, so they contain neither the answer nor the kind.
    task = tasks[pool]
    assert task.features.dtype == np.float64
    assert task.features.shape == (SIZE, len(task.feature_names))
    for row, prompt in zip(task.features, texts(task.prompts), strict=True):
        digits = [len(str(value)) for value in numbers(prompt)]
        known = {"prompt_tokens": len(prompt)}
        if pool == "T":
            known |= {"terms": len(digits), "digits_longest": max(digits), "digits_total": sum(digits)}
        else:
            known |= {"digits_first": digits[0], "digits_second": digits[1]}
        domain = "chains" if pool == "T" else domain_of(prompt)
        known |= {f"domain_{name}": float(name == domain) for name in task.domain_names}
        assert dict(zip(task.feature_names, row, strict=True)) == known


@every_pool
def test_domains_are_those_of_the_features(tasks, pool):
    task = tasks[pool]
    one_hot = task.features[:, : len(task.domain_names)]
    assert task.feature_names[: len(task.domain_names)] == tuple(f"domain_{name}" for name in task.domain_names)
    np.testing.assert_array_equal(one_hot.argmax(1), task.domains)
    assert set(task.domains) == set(task.held_out_domains) == set(range(len(task.domain_names)))


@every_pool
def test_the_seed_decides_the_pool(tasks, pool):
    again, other = (make_task(pool, SIZE, held_out=HELD_OUT, seed=seed) for seed in (0, 1))
    assert torch.equal(again.prompts, tasks[pool].prompts)
    assert torch.equal(again.held_out_prompts, tasks[pool].held_out_prompts)
    assert not torch.equal(other.prompts, tasks[pool].prompts)


# ------------------------------ T and D ------------------------------


def test_chains_have_the_shares_that_are_written():
    questions, unseen = chain_sums.draw_pool(SIZE, HELD_OUT, 3)
    assert Counter(question.kind for question in questions) == {"hopeless": 402, "easy": 150, "core": 48}
    assert {question.kind for question in unseen} == {"core"}
    for question in [*questions, *unseen]:
        count, values = sum(map(carries, partial_sums(question.text))), numbers(question.text)
        match question.kind:
            case "core":
                assert 1 <= count <= 4
            case "easy":
                assert count == 0
            case _:
                assert min(values) >= 10**5 or (count >= 7 and len(values) >= 6)
        assert question.kind == chain_sums.kind_of(values)
    long = sum(question.kind == "hopeless" and question.fields["terms"] > 2 for question in questions)
    assert long / 402 == pytest.approx(1 / 6, abs=0.08)


def partial_sums(prompt: str) -> list[str]:
    """The additions of a chain as separate prompts."""
    values = numbers(prompt)
    return [f"{sum(values[:i])}+{values[i]}=" for i in range(1, len(values))]


def test_chains_have_a_long_tail_that_goes_with_difficulty():
    questions, _ = chain_sums.draw_pool(2000, 1, 0)
    lengths = np.array([len(question.answer) + 1 for question in questions])
    assert np.median(lengths) <= 10
    assert 50 <= np.quantile(lengths, 0.99) < 70 < lengths.max() <= chain_sums.MAX_RESPONSE
    by_kind = {kind: lengths[[question.kind == kind for question in questions]] for kind in ("core", "easy")}
    many = lengths[[sum(map(carries, partial_sums(question.text))) >= 7 for question in questions]]
    assert many.mean() > 2 * by_kind["core"].mean()
    assert (by_kind["easy"] > 30).mean() > 0.02  # some long ones are easy


def test_domains_have_the_shares_that_are_written():
    questions, unseen = domain_sums.draw_pool(SIZE, HELD_OUT, 3)
    counts = Counter((question.domain, question.kind) for question in questions)
    for domain, shares in domain_sums.SHARES.items():
        assert {kind: counts[domain, kind] for kind in ("hopeless", "easy", "core")} == shares.counts(SIZE // 3)
    assert Counter(question.domain for question in unseen) == dict.fromkeys(domain_sums.SHARES, HELD_OUT // 3)
    for domain, kinds in domain_sums.LEARNABLE.items():
        of_domain = Counter(question.kind for question in unseen if question.domain == domain)
        assert of_domain == dict.fromkeys(kinds, HELD_OUT // 3 // len(kinds))
    for question in [*questions, *unseen]:
        values = numbers(question.text)
        if question.kind == "hopeless":
            assert min(values) >= 10**5
        else:
            assert max(values) < 2 * 10**5
            assert (carries(question.text) > 0) == (question.kind == "core")


@new_pool
@pytest.mark.parametrize("size", [1, 100, 101])
def test_a_pool_has_as_many_prompts_as_asked_for(source, size):
    questions, unseen = source.draw_pool(size, 10, 0)
    assert (len(questions), len(unseen)) == (size, 10)


@given(st.lists(st.integers(0, 999), min_size=2, max_size=12), st.integers(0, 99))
def test_a_sloppy_chain_goes_on_from_its_own_total(terms, seed):
    prompt = chain_sums.prompt_of(terms)
    assert chain_sums.worked_out(terms) == right_answer(prompt)
    text = chain_sums.worked_out(terms, np.random.default_rng(seed), 0.5)
    totals = [int(part[::-1]) for part in re.findall(r"(?:^|=)(\d+)", text)]
    assert len(totals) == len(terms) - 1
    # A lost carry takes off 10 to the power of its place.
    for before, term, after in zip([terms[0], *totals], terms[1:], totals, strict=False):
        lost = before + term - after
        assert lost == 0 or (lost > 0 and set(str(lost)) <= {"0", "1"} and lost % 10 == 0)


@given(st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 99))
def test_a_difference_without_lost_borrows_is_right(left, taken, seed):
    prompt = f"{left + taken}-{taken}="
    assert domain_sums.difference(left + taken, taken) == right_answer(prompt)
    sloppy = domain_sums.difference(left + taken, taken, np.random.default_rng(seed), 0.5)
    assert len(sloppy) == len(right_answer(prompt))
    assert carries(prompt) or sloppy == right_answer(prompt)


def test_the_demonstrator_boxes_as_often_as_said_whatever_it_adds():
    rng = np.random.default_rng(0)
    texts = [domain_sums.demonstration(0.0, 0.3, rng) for _ in range(4000)]
    boxed = [(prompt, answer) for prompt, answer in texts if prompt.endswith("?")]
    assert len(boxed) / len(texts) == pytest.approx(1 / 3, abs=0.03)
    assert np.mean([answer.startswith("[") for _, answer in boxed]) == pytest.approx(0.3, abs=0.04)
    assert all(answer.strip("[]") == right_answer(prompt).strip("[]") for prompt, answer in texts)


def test_the_demonstrator_loses_carries_and_borrows_in_every_source():
    rng = np.random.default_rng(0)
    texts = [domain_sums.demonstration(1.0, 0.3, rng) for _ in range(600)]
    for prompt, answer in texts:
        assert (answer.strip("[]") == right_answer(prompt).strip("[]")) == (carries(prompt) == 0), prompt


# ------------------------------ the lab ------------------------------


@pytest.fixture(scope="module")
def small_base(tmp_path_factory):
    """A base model of T that has learned little more than to stop."""
    folder = tmp_path_factory.mktemp("base")
    settings = replace(BASES["T"][1], steps=25, batch_size=32)
    for part in train(settings, report_every=0):
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def policy(small_base, tasks):
    return Policy(small_base, tasks["T"], learning_rate=1e-3, estimator="rloo", seed=0, compact=True)


def log_probs_one_by_one(policy, prompt_ids, response):
    """Without padding and without a batch."""
    prompt = [token for token in prompt_ids.tolist() if token != policy.task.pad]
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(response)), response]


def test_rollouts_of_a_long_tailed_task_have_the_models_log_probs(policy):
    rollouts = policy.sample([0, 1, 2, 2, 2, 3, 4, 5] * 4)
    lengths = {len(rollout.response) for rollout in rollouts}
    assert len(lengths) > 4
    for rollout in rollouts:
        assert policy.task.end not in rollout.response[:-1]
        assert rollout.response[-1] == policy.task.end or len(rollout.response) == policy.task.max_response
        expected = log_probs_one_by_one(policy, policy.task.prompts[rollout.prompt], rollout.response)
        torch.testing.assert_close(rollout.log_probs, expected, atol=1e-4, rtol=0)


def test_dropped_rows_and_cut_padding_change_no_drift_and_no_step(policy, small_base):
    rollouts = policy.sample(list(range(100)))
    rollouts = [replace(rollout, reward=float(row % 2)) for row, rollout in enumerate(rollouts)]
    plain = Policy(small_base, policy.task, learning_rate=1e-3, estimator="rloo", seed=0)
    groups = [str(row // 4) for row in range(100)]
    metrics = [each.update(rollouts, groups) for each in (policy, plain)]
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-4)
    np.testing.assert_allclose(policy.drift(rollouts), plain.drift(rollouts), atol=1e-3)
    assert policy.drift(rollouts).max() > 0.01


def test_accuracy_is_the_mean_over_domains_of_the_right_completions_probability(small_base, tasks):
    policy = Policy(small_base, tasks["D"], learning_rate=1e-3, estimator="rloo", seed=0)
    task = policy.task
    right = []
    for prompt_ids, answer in zip(task.held_out_prompts, task.held_out_answers.tolist(), strict=True):
        answer = [token for token in answer if token != task.pad]
        right.append(float(log_probs_one_by_one(policy, prompt_ids, answer).sum().exp()))
    by_domain = {
        name: np.mean(np.array(right)[task.held_out_domains == index]) for index, name in enumerate(task.domain_names)
    }
    assert policy.accuracy_by_domain() == pytest.approx(by_domain, rel=1e-3)
    assert policy.accuracy() == pytest.approx(np.mean(list(by_domain.values())), rel=1e-3)


def test_accuracy_of_long_chains_is_the_right_completions_probability(policy):
    task = policy.task
    right = [
        float(log_probs_one_by_one(policy, prompt_ids, [token for token in answer if token != task.pad]).sum().exp())
        for prompt_ids, answer in zip(task.held_out_prompts, task.held_out_answers.tolist(), strict=True)
    ]
    assert policy.accuracy() == pytest.approx(np.mean(right), rel=1e-3)


# ------------------------------ building ------------------------------


def test_a_base_model_is_trained_once(tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard_tasks, "MODELS", tmp_path)
    monkeypatch.setitem(BASES, "D", ("domains_base", replace(BASES["D"][1], steps=1, batch_size=8)))
    folder = leaderboard_tasks.base_model("D")
    assert (folder / "config.json").exists()
    monkeypatch.setattr(leaderboard_tasks, "train", None)
    assert leaderboard_tasks.base_model("D") == folder


def test_what_cannot_be_built_is_said():
    question, other = Question("1+1=", "2", "easy"), Question("1+2=", "3", "easy")
    with pytest.raises(ValueError, match="held-out"):
        build_task([question], [question], max_prompt=20, max_response=10)
    with pytest.raises(ValueError, match="at most 3 tokens, got 4"):
        build_task([question], [other], max_prompt=3, max_response=10)
    with pytest.raises(ValueError, match="at most 1 tokens, got 2"):
        build_task([question], [other], max_prompt=4, max_response=1)
    with pytest.raises(ValueError, match="only 1 new"):
        draw_different(lambda: question, 2, set())
    with pytest.raises(ValueError, match="pool must be one of"):
        make_task("X", 10)
