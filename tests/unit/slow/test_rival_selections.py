"""Other selections of the TracIn benchmarks against brute force: IIF's loss, GradAlign's cosines, shares of tokens."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import gradalign_method
import tracin_trust
import tracin_utility
from gradalign_method import ProblemChoice, best, cosines
from iif_loss import sequence_loss
from influence_methods import InfluencePolicy, make_influence_task
from influence_scores import Scorer
from lora_preconditioner import DECAY, LoraPreconditioner
from token_influence import kept_tokens, token_shares

from data_preprocess.arithmetic_model import BaseModelSettings, train_cached
from recipe.tracin.method.validation import ValidationSettings
from verl_ext.influence.batches import flat

PROMPTS = [0, 0, 0, 1, 1, 1]
REWARDS = np.array([1.0, 0, 0, 0, 1, 1])


@pytest.fixture(scope="module")
def data():
    return make_influence_task(24, 8, held_out=8)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    settings = BaseModelSettings(steps=3, batch_size=4, num_layers=1, hidden_size=32, num_heads=1, intermediate_size=16)
    return train_cached(settings, tmp_path_factory.mktemp("models") / "base", report_every=0)


@pytest.fixture
def policy(base, data):
    """One update away from lora_B = 0, with second moments."""
    policy = InfluencePolicy(base, data.task, learning_rate=1e-2, seed=0)
    samples = policy.tensors(policy.sample(PROMPTS))
    loss = policy.loss(samples, policy.advantages(samples, REWARDS), samples.mask)
    loss.backward()
    policy.optimizer.step()
    return policy


@pytest.fixture
def batch(policy):
    """Samples and (B, T) advantages."""
    samples = policy.tensors(policy.sample(PROMPTS))
    return samples, policy.advantages(samples, REWARDS)


def gradient(policy, loss):
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, policy.trainable, retain_graph=True)])


def make_scorer(data, **options):
    return Scorer(data, ValidationSettings(strategy="quality", pool_size=8, k=4, min_reward=None), **options)


# ------------------------------ IIF ------------------------------


def test_the_sequence_loss_is_iifs_formula():
    log_probs = torch.tensor([[-1.0, -2.0, -9.0], [-3.0, -4.0, -5.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    advantages = torch.tensor([[7.0, 0.5, 100.0], [8.0, 9.0, -2.0]])
    # At the last token, not at padding: 0.5 x (-3) and -2 x (-12).
    assert float(sequence_loss(log_probs, mask, advantages)) == pytest.approx(-(0.5 * -3 + -2 * -12) / 2)


def test_with_one_advantage_per_rollout_both_losses_have_one_direction(policy, batch):
    samples, _ = batch
    advantages = np.array([1.0, -0.5, 2.0, 0.3, -1.0, 1.0])
    log_probs = policy.log_probs(samples)
    each = torch.from_numpy(advantages).float()[:, None].expand_as(log_probs)
    ours = gradient(policy, policy.validation_loss(samples, advantages, weighted=False))
    theirs = gradient(policy, sequence_loss(log_probs, samples.mask, each))
    assert float(torch.cosine_similarity(ours, theirs, dim=0)) == pytest.approx(1, abs=1e-5)
    # Advantages that differ by token change the direction only through the last token.
    uneven = each.clone()
    uneven[:, 0] += 5
    assert torch.equal(gradient(policy, sequence_loss(log_probs, samples.mask, uneven)), theirs)


def test_the_scorers_gradient_is_that_of_iifs_loss_over_all_validation_rollouts(policy, data, batch):
    scorer = make_scorer(data, sequence=True)
    scores, _ = scorer.scores(policy, *batch, 1)
    chosen, advantages = scorer._chosen, torch.from_numpy(scorer.chooser.choice.advantages).float()
    log_probs = policy.log_probs(chosen)
    whole = gradient(policy, -(advantages * (log_probs * chosen.mask).sum(1)).mean())
    torch.testing.assert_close(flat(policy.ghost.validation_gradients()), whole, rtol=1e-4, atol=1e-6)
    assert scores.shape == (6,)


def test_iifs_loss_refuses_importance_weights(data):
    with pytest.raises(ValueError, match="weighted=False"):
        make_scorer(data, sequence=True, weighted=True)


# ------------------------------ cosine and tokens ------------------------------


def per_sample(policy, samples, advantages):
    """(B, W): the gradient of each sample's contribution to the loss."""
    rows = []
    for row in range(len(samples.mask)):
        only = torch.zeros_like(samples.mask)
        only[row] = 1
        rows.append(gradient(policy, policy.loss(samples, advantages * only, samples.mask)))
    return torch.stack(rows)


@pytest.mark.parametrize("preconditioner", ["none", "adam"])
def test_a_cosine_is_the_score_by_the_norm_of_the_samples_gradient(policy, data, batch, preconditioner):
    scores, _ = make_scorer(data, preconditioner=preconditioner, cosine=True).scores(policy, *batch, 2)
    direction = flat(policy.ghost.validation_gradients())
    gradients = per_sample(policy, *batch)
    factor = torch.ones_like(direction)
    if preconditioner == "adam":
        factor = torch.cat([each.flatten() for each in make_factors(policy).values()])
    expected = (gradients @ direction) / (gradients**2 @ factor).sqrt()
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-3)
    np.testing.assert_array_equal(np.sign(gradients @ direction), np.sign(scores))


def make_factors(policy):
    from verl_ext.influence.method.preconditioner import adam_factors

    parameters = dict(policy.model.named_parameters())
    factors = adam_factors(policy.optimizer, {name: parameters[name] for name in policy.ghost.names})
    assert factors is not None
    return factors


def test_shares_of_tokens_are_their_own_inner_products_and_add_up_to_the_score(policy, data, batch):
    samples, advantages = batch
    scores, _ = make_scorer(data, preconditioner="adam").scores(policy, samples, advantages, 2)
    before = [weight.clone() for weight in policy.trainable]
    shares = token_shares(policy, samples, advantages, policy.ghost.validation_gradients())
    assert all(torch.equal(weight, old) for weight, old in zip(policy.trainable, before, strict=True))
    largest = float(shares.abs().max())
    np.testing.assert_allclose(shares.sum(1).numpy(), scores, atol=1e-2 * largest)
    direction = flat(policy.ghost.validation_gradients())
    for row, column in ((0, 0), (3, 1)):
        only = torch.zeros_like(samples.mask)
        only[row, column] = 1
        loss = policy.loss(samples, advantages * only, samples.mask)
        expected = float(gradient(policy, loss) @ direction)
        assert float(shares[row, column]) == pytest.approx(expected, abs=1e-2 * largest)
    assert torch.equal(kept_tokens(policy, samples, advantages), shares > 0)
    assert not shares[samples.mask == 0].any()


def test_an_update_on_tokens_is_that_of_the_mean_over_them(policy, batch):
    samples, advantages = batch
    kept = torch.zeros_like(samples.mask, dtype=torch.bool)
    kept[0, 0] = kept[4, 1] = True
    log_probs = policy.log_probs(samples)
    wanted = gradient(policy, -(advantages[0, 0] * log_probs[0, 0] + advantages[4, 1] * log_probs[4, 1]) / 2)
    wanted *= min(1.0, 1.0 / (float(wanted.norm()) + 1e-6))  # gradients are clipped
    policy.step_on_tokens(samples, advantages, kept)
    got = torch.cat([weight.grad.flatten() for weight in policy.trainable])
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)
    before = [weight.clone() for weight in policy.trainable]
    policy.step_on_tokens(samples, advantages, torch.zeros_like(kept))
    assert all(torch.equal(weight, old) for weight, old in zip(policy.trainable, before, strict=True))


# ------------------------------ GradAlign ------------------------------


def test_cosines_and_the_best_of_them():
    validation = torch.tensor([3.0, 4.0])
    gradients = [torch.tensor(each) for each in ([6.0, 8.0], [-4.0, 3.0], [0.0, 0.0], [-3.0, -4.0])]
    np.testing.assert_allclose(cosines(gradients, validation), [1, 0, 0, -1], atol=1e-9)
    assert best([10, 11, 12, 13], np.array([0.1, 0.3, 0.3, -1]), 3) == [11, 12, 10]


def test_a_problems_gradient_is_that_of_grpos_loss_over_its_rollouts(policy, data, monkeypatch):
    monkeypatch.setattr(gradalign_method, "ROLLOUTS_AT_ONCE", 4)  # parts add up, whatever their size
    rollouts = policy.sample(PROMPTS)
    samples = policy.tensors(rollouts)
    advantages = policy.advantages(samples, REWARDS)
    whole = gradient(policy, policy.loss(samples, advantages, samples.mask) * samples.mask.sum())
    got = ProblemChoice(policy, data, 0).gradient(rollouts, REWARDS)
    torch.testing.assert_close(got, whole, rtol=1e-4, atol=1e-6)
    assert not ProblemChoice(policy, data, 0).gradient(rollouts, np.ones(6)).any()


def test_the_problems_with_the_highest_cosines_are_trained_on_until_the_next_choice(policy, data, monkeypatch):
    wanted = {0: 1.0, 5: 0.5}
    seen = []

    def fake(self, rollouts, rewards):
        seen.append((rollouts[0].prompt, rewards))
        share = wanted.get(rollouts[0].prompt, -0.5) if rollouts[0].prompt < data.num_train else 1.0
        return torch.tensor([share, (1 - share**2) ** 0.5])

    monkeypatch.setattr(ProblemChoice, "gradient", fake)
    choice = ProblemChoice(policy, data, 0, candidates=24, kept=2, group=3)
    assert choice.choose(lambda rollouts: np.full(len(rollouts), 0.25)) == [0, 5]
    # Validation problems first, by their true rewards; each candidate by the rewards that are reported.
    assert seen[0][0] == data.num_train
    assert len(seen[0][1]) == 8 * 3
    assert all((rewards == 0.25).all() and len(rewards) == 3 for _, rewards in seen[1:])
    assert sorted(prompt for prompt, _ in seen[1:]) == list(range(24))
    assert choice.num_rollouts == (8 + 24) * 3
    assert sorted(choice.next(4)) == [0, 0, 5, 5]


# ------------------------------ in the benchmarks ------------------------------


@pytest.fixture
def small(base, monkeypatch):
    for module in (tracin_trust, tracin_utility):
        monkeypatch.setattr(module, "BASE", base)
        monkeypatch.setattr(module, "GROUP", 4)

    def few(policy, data, seed, *, candidates=12, group=2):
        return ProblemChoice(policy, data, seed, candidates=candidates // 2, kept=2, group=group)

    monkeypatch.setattr(tracin_trust, "ProblemChoice", few)
    monkeypatch.setattr(tracin_trust, "SMALL", {"candidates": 6, "group": 2})
    monkeypatch.setattr(tracin_trust, "VALIDATION_ROLLOUTS", 32)


CHOOSING = {"gradalign": 6 * 2 + 8 * 2, "gradalign_small": 3 * 2 + 8 * 2, "choose_tracin": 32, "choose_influence": 32}


@pytest.mark.parametrize("method", ["grpo_repeats", "olr", "choose", *CHOOSING])
def test_the_new_methods_of_the_trust_benchmark_run(small, method):
    run = tracin_trust.Run(tracin_trust.Job(method, "flips", 8, 1e-3, 0, steps=5))
    result = run.train()
    assert [look["step"] for look in result["history"]] == [0, 5]
    assert result["history"][-1]["total_rollouts"] == 5 * 16 * 4 + CHOOSING.get(method, 0)
    assert len(set(run.repeated)) == 64
    assert bool(run.labels._rates) == (method == "olr")


def test_methods_that_the_corruption_does_not_touch_are_run_once(tmp_path, monkeypatch):
    trained = []

    def train(job):
        trained.append((job.method, job.corruption, job.trusted))
        return {"job": asdict(job), "history": [{"accuracy": 0.5}]}

    monkeypatch.setattr(tracin_trust, "Run", lambda job: SimpleNamespace(train=lambda: train(job)))
    runs = tracin_trust.Runs(tmp_path / "runs.jsonl")
    for method in ("clean", "trusted_only", "grpo"):
        for corruption in ("source", "off_target"):
            for trusted in (8, 32):
                runs.result(tracin_trust.Job(method, corruption, trusted, 1e-3, 0))
    whole = [("clean", "flips", 512), ("trusted_only", "flips", 8), ("trusted_only", "flips", 32)]
    assert trained == [*whole, ("grpo", "source", 512), ("grpo", "off_target", 512)]


def test_rates_that_are_not_tuned_are_read():
    assert tracin_trust.method_and_rate("tracin=2e-3") == ("tracin", 2e-3)
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected METHOD=RATE with one of grpo, .*, got 'trac=1'"):
        tracin_trust.method_and_rate("trac=1")


def test_every_prompt_of_the_repeats_comes_ten_times(small):
    run = tracin_trust.Run(tracin_trust.Job("olr", "flips", 8, 1e-3, 0))
    prompts = [prompt for step in range(1, tracin_trust.STEPS + 1) for prompt in run._prompts(step)]
    assert {prompts.count(prompt) for prompt in set(prompts)} == {10}


def test_the_trust_table_has_the_rollouts_of_both_kinds_where_they_were_counted():
    looks = [{"step": n, "accuracy": 0.1 * n, "total_rollouts": 1000 * n} for n in range(4)]
    old = [{name: look[name] for name in ("step", "accuracy")} for look in looks]
    rows = [
        {"corruption": "flips", "method": method, "trusted": 8, "learning_rate": 1e-3}
        | tracin_trust.described([{"history": history}])
        for method, history in (("tracin", looks), ("grpo", old))
    ]
    lines = tracin_trust.table(rows).splitlines()
    assert lines[2].startswith("| flips | tracin | 0.2000")
    assert lines[2].endswith("| 3,000 |")
    assert lines[3].endswith("|  |")


def test_the_trust_benchmark_reports_stored_results_again(tmp_path, capsys):
    with pytest.raises(SystemExit):
        tracin_trust.main(["--report", "--output", str(tmp_path)])
    assert "results.json is missing: leave --report out" in capsys.readouterr().err
    rows = [
        {"corruption": "flips", "method": method, "trusted": 8, "learning_rate": 1e-3, "rollouts": 10240.0}
        | {"final_by_seed": finals}
        for method, finals in (("tracin", [0.40, 0.42]), ("grpo", [0.33, 0.32]), ("choose", [0.5, 0.6]))
    ]
    del rows[1]["rollouts"]  # as in files from before they were counted
    (tmp_path / "results.json").write_text(json.dumps(rows))
    tracin_trust.main(["--report", "--output", str(tmp_path)])
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert "| flips | tracin | 0.4100  [0.4000, 0.4200] at 0.001 | 10,240 |" in text
    assert "| flips | tracin | ahead: +8.5 [+7.0, +10.0]; grpo +0.0 [+0.0, +0.0] |" in text
    assert "| flips | grpo | 0.3250  [0.3200, 0.3300] at 0.001 |  |" in text
    picture = (tmp_path / "crossover.svg").read_text()
    assert "tracin" in picture
    # Whatever chooses prompts is in the table only.
    assert "| flips | choose | 0.5500  [0.5000, 0.6000] at 0.001 | 10,240 |" in text
    assert "choose" not in picture
    # Without GRPO there is nothing to count gains from.
    assert tracin_trust.write_report(tmp_path, rows[:1]) == tracin_trust.table(rows[:1]) + "\n"


def test_the_trust_benchmark_keeps_the_rows_of_earlier_calls(small, tmp_path, monkeypatch):
    accuracies = {"grpo": 0.3, "tracin": 0.4}

    def make_run(job):
        history = [{"accuracy": accuracies[job.method], "total_rollouts": 9}]
        return SimpleNamespace(train=lambda: {"job": asdict(job), "history": history})

    monkeypatch.setattr(tracin_trust, "Run", make_run)
    shared = ["--output", str(tmp_path), "--corruptions", "source", "--trusted", "32", "--rates", "grpo=.001"]
    tracin_trust.main([*shared, "--methods", "grpo", "--seeds", "3"])
    accuracies["grpo"] = 0.2  # of the fourth seed
    for seeds in ("2", "3"):
        tracin_trust.main([*shared, "tracin=.002", "--methods", "tracin", "--seeds", seeds])
    tracin_trust.main([*shared, "--methods", "grpo", "--seeds", "4"])
    rows = {row["method"]: row for row in json.loads((tmp_path / "results.json").read_text())}
    assert (rows["grpo"]["final_by_seed"], rows["tracin"]["final_by_seed"]) == ([0.3, 0.3, 0.3, 0.2], [0.4] * 3)
    assert "tracin | ahead: +10.0" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize("name", ["iif", "top_half", "top_half_cosine", "tokens", "quality_64_lora"])
def test_the_new_methods_of_the_utility_benchmark_run(small, name, monkeypatch):
    sample = InfluencePolicy.sample

    def sample_with_rewards(policy, prompts):
        """This model is never right, so rewards are made up."""
        rollouts = sample(policy, prompts)
        for rollout in rollouts:
            rollout.reward = float(rollout.response[0] % 2)
        return rollouts

    monkeypatch.setattr(InfluencePolicy, "sample", sample_with_rewards)
    result = tracin_utility.run(tracin_utility.Job(name, 1e-3, 0, steps=2))
    assert 0 < result["samples"]["positive_share_unflipped"] < 1
    validation_rollouts = {"iif": 2 * 512, "quality_64_lora": 128}.get(name, 512)
    assert result["history"][-1]["total_rollouts"] == 2 * 16 * 4 + validation_rollouts
    if name.startswith("top_half"):
        assert result["samples"]["selection_ratio"] == pytest.approx(0.5, abs=0.02)
    assert ("tokens_kept" in result["gradients"]) == (name == "tokens")
    if name == "tokens":
        assert 0 < result["gradients"]["tokens_kept"] < 1


def test_loras_preconditioner_is_the_inverse_root_of_the_moments():
    torch.manual_seed(0)
    updates = [{"a": torch.randn(3, 7, dtype=torch.float64), "b": torch.randn(5, 3, dtype=torch.float64)} for _ in "12"]
    target = {"a": torch.randn(3, 7, dtype=torch.float64), "b": torch.randn(5, 3, dtype=torch.float64)}
    found = {name: gradient.clone() for name, gradient in target.items()}
    preconditioner = LoraPreconditioner()
    preconditioner.apply(found)  # before the first update
    assert all(torch.equal(found[name], target[name]) for name in target)
    for update in updates:
        preconditioner.observe(update)
    preconditioner.apply(found)
    weights = (DECAY / (1 + DECAY), 1 / (1 + DECAY))
    moment_a = sum(w * each["a"] @ each["a"].T / 7 for w, each in zip(weights, updates, strict=True))
    moment_b = sum(w * each["b"].T @ each["b"] / 5 for w, each in zip(weights, updates, strict=True))
    # Twice the inverse root is the inverse.
    again = {name: gradient.clone() for name, gradient in found.items()}
    preconditioner.apply(again)
    assert torch.allclose(again["a"], torch.linalg.solve(moment_a, target["a"]), rtol=1e-4)
    assert torch.allclose(again["b"], torch.linalg.solve(moment_b, target["b"].T).T, rtol=1e-4)


def test_loras_preconditioner_does_not_depend_on_the_basis_of_the_inner_dimensions():
    torch.manual_seed(0)
    update, target, other = ({"a": torch.randn(3, 7).double(), "b": torch.randn(5, 3).double()} for _ in "123")
    rotation = torch.linalg.qr(torch.randn(3, 3).double())[0]
    scores = []
    for turn in (torch.eye(3).double(), rotation):
        turned = [{"a": turn.T @ each["a"], "b": each["b"] @ turn} for each in (update, target, other)]
        preconditioner = LoraPreconditioner()
        preconditioner.observe(turned[0])
        preconditioner.apply(turned[1])
        scores.append(float(sum((turned[1][name] * turned[2][name]).sum() for name in turned[1])))
    assert scores[0] == pytest.approx(scores[1])
