"""The safety suite's scenarios: how much is damaged, where, and how `choose` is run on them."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import safety_scenarios
import safety_training
from choosing_method import Choose
from leaderboard_protocol import Settings
from learning_lab import Rollout
from safety_methods import AheadChoose, GradedChoose, LateChoose, OpenController, VarianceChoose
from safety_protocol import BY_HAND, NUM_PROMPTS, SCENARIOS, Job
from safety_scenarios import RESPONSE_LIMIT, WORLDS, share_right, silent_source

from recipe.fast_dapo.curriculum.baseline import leave_one_out_baselines
from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.records import Prompt


def rollout(prompt: int, reward: float, length: int = 3) -> Rollout:
    return Rollout(prompt, list(range(length)), torch.zeros(length), reward)


def kinds_of_sources() -> np.ndarray:
    return safety_scenarios._two_sources()[1]


# ------------------------------ what is asked ------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_domains_to_compare_and_prompts_as_said(name):
    task = WORLDS[name](0).task
    assert len(task.prompts) == NUM_PROMPTS
    counts = np.bincount(task.held_out_domains, minlength=len(task.domain_names))
    assert len(counts) > 1
    assert counts.min() >= 100
    assert set(SCENARIOS[name].hopeless) <= set(task.domain_names)


@pytest.mark.parametrize(
    ("kept", "shares"),
    [
        (1.0, {"hopeless": 0.65, "easy": 0.25, "core": 0.10}),
        (1 / 3, {"hopeless": 0.38, "easy": 0.44, "core": 0.18}),
    ],
)
def test_two_sources_are_like_pool_b_or_less_hopeless(kept, shares):
    task, kinds = safety_scenarios._two_sources(hopeless_kept=kept)
    for source in range(2):
        counts = Counter(kinds[task.domains == source])
        assert {kind: count / NUM_PROMPTS * 2 for kind, count in counts.items()} == pytest.approx(shares, abs=0.02)


def test_the_limit_cuts_off_the_longest_third_of_the_learnable_chains():
    questions, _ = safety_scenarios._drawn_chains()
    lengths = {"long": [], "other": []}
    for question in questions:
        if question.kind != "hopeless":
            own = safety_scenarios._length_class(question, ("short", "middle", "long"))
            lengths["long" if own == "long" else "other"].append(len(question.answer) + 1)
    assert len(lengths["long"]) / sum(map(len, lengths.values())) == pytest.approx(1 / 3, abs=0.06)
    assert max(lengths["other"]) <= RESPONSE_LIMIT
    assert np.mean(np.array(lengths["long"]) > RESPONSE_LIMIT) > 0.8


# ------------------------------ damage ------------------------------


@pytest.mark.parametrize("name", ["swapped_rewards", "inverted_rewards"])
def test_a_tenth_of_each_kind_of_one_source_is_damaged(name):
    world, kinds = WORLDS[name](0), kinds_of_sources()
    is_source = world.task.domains == world.task.domain_names.index("differences")
    assert not world.damaged[~is_source].any()
    for kind in ("hopeless", "easy", "core"):
        assert world.damaged[is_source & (kinds == kind)].mean() == pytest.approx(0.1, abs=0.005)
    assert (WORLDS[name](0).damaged == world.damaged).all()
    assert (WORLDS[name](1).damaged != world.damaged).any()


def test_swapped_answers_are_those_of_others_alike():
    world, kinds = WORLDS["swapped_rewards"](0), kinds_of_sources()
    sound = safety_scenarios._two_sources()[0]
    for place, (answer, right) in enumerate(zip(world.task.answers, sound.answers, strict=True)):
        assert (answer != right) == world.damaged[place]
        if world.damaged[place]:
            owners = [i for i, other in enumerate(sound.answers) if other == answer]
            assert any(kinds[i] == kinds[place] and sound.domains[i] == sound.domains[place] for i in owners)
            assert len(answer) == len(right)
    assert world.task.held_out_answers is sound.held_out_answers


def test_inverted_rewards_are_those_of_damaged_prompts():
    world = WORLDS["inverted_rewards"](0)
    for reward in (0.0, 1.0):
        seen = world.grade([rollout(prompt, reward) for prompt in range(NUM_PROMPTS)], 0)
        assert [r.reward for r in seen] == np.where(world.damaged, 1 - reward, reward).tolist()


def test_one_source_is_silent_in_a_twentieth_of_the_steps_and_two_on_end():
    silent = [silent_source(3, version, 2) for version in range(4_000)]
    assert sum(source is not None for source in silent) == 200
    for start in range(0, 4_000, 40):
        steps = [step for step in range(start, start + 40) if silent[step] is not None]
        assert steps[1] == steps[0] + 1
        assert silent[steps[0]] == silent[steps[1]]
    assert Counter(silent).keys() == {None, 0, 1}
    assert silent != [silent_source(4, version, 2) for version in range(4_000)]


def test_rollouts_fail_and_a_silent_source_fails_as_a_whole():
    world = WORLDS["failing_environments"](0)
    asked = [rollout(prompt, 1.0) for prompt in range(NUM_PROMPTS)]
    quiet = next(version for version in range(40) if silent_source(0, version, 2) is not None)
    loud = next(version for version in range(40) if silent_source(0, version, 2) is None)
    failed = np.mean([[r.reward == 0 for r in world.grade(asked, loud)] for _ in range(10)])
    assert failed == pytest.approx(0.05, abs=0.006)
    rewards = np.array([r.reward for r in world.grade(asked, quiet)])
    is_silent = world.task.domains == silent_source(0, quiet, 2)
    assert not rewards[is_silent].any()
    assert rewards[~is_silent].mean() == pytest.approx(0.95, abs=0.02)
    assert all(r.reward == 1.0 for r in asked)


def test_what_does_not_fit_has_failed_and_the_rest_is_as_it_was():
    fits, long = rollout(0, 1.0, RESPONSE_LIMIT), rollout(1, 1.0, RESPONSE_LIMIT + 1)
    first, second = WORLDS["length_bias"](0).grade([fits, long], 0)
    assert first is fits
    assert second.reward == 0.0
    assert second.response == long.response[:RESPONSE_LIMIT]
    assert len(second.log_probs) == RESPONSE_LIMIT


def test_the_reward_is_the_share_of_right_digits():
    assert share_right([4, 5, 9], [4, 5, 9]) == 1.0
    assert share_right([4, 9], [4, 5, 9]) == pytest.approx(1 / 3)
    assert share_right([4, 5, 9, 7], [4, 5, 9]) == 0.75
    assert share_right([1], [4]) == 0.0
    world = WORLDS["graded"](0)
    answer = world.task.answers[5]
    asked = [Rollout(5, answer, torch.zeros(len(answer)), 1.0), Rollout(5, answer[:1], torch.zeros(1), 0.0)]
    assert [r.reward for r in world.grade(asked, 0)] == [1.0, 1 / len(answer)]


# ------------------------------ how choose is driven ------------------------------


class Coins:
    """A policy that never learns; a prompt's rollouts pass at the rate of its source."""

    def __init__(self, task, rates, wrong=0.0):
        self.task, self.rates, self.wrong, self.version = task, rates, wrong, 0
        self._rng = np.random.default_rng(0)

    def sample(self, prompts):
        passes = self._rng.random(len(prompts)) < np.array(self.rates)[self.task.domains[prompts]]
        return [rollout(prompt, 1.0 if passed else self.wrong) for prompt, passed in zip(prompts, passes, strict=True)]


def test_late_rollouts_are_trained_on_late_or_dropped_and_the_others_at_once():
    task = WORLDS["slow_hard_prompts"](0).task
    method = LateChoose(NUM_PROMPTS, batch=16, group=4, seed=0, task=task, slow="long", delays=range(1, 7))
    policy, ages, sizes = Coins(task, [0.5, 0.5]), {"long": Counter(), "short": Counter()}, Counter()
    for version in range(30):
        policy.version = version
        assert len(set(method.next_batch(policy).groups)) == 16
        for group in method.trained_groups:
            name = task.domain_names[task.domains[int(group.prompt.index)]]
            ages[name].update(version - sample.version for sample in group.samples)
            sizes[name, len(group.samples)] += 1
    assert set(ages["short"]) <= {0, 1}  # finished groups that a batch has no room for wait for the next
    assert set(ages["long"]) == {1, 2, 3, 4}
    fates = method.controller.rollout_conservation()
    assert fates["expired"] > 80
    assert fates["generated"] == sum(n for fate, n in fates.items() if fate != "generated")
    # At a pass rate of 1/2, half of the screenings are mixed; few of those that are late twice remain.
    assert sizes["short", 4] > 0.4 * (sizes["short", 2] + sizes["short", 4])
    assert sizes["long", 4] < 0.3 * (sizes["long", 2] + sizes["long", 4])


@pytest.mark.parametrize("group", [1, 4])
def test_with_a_batch_ahead_late_rollouts_are_trained_on_late_and_none_is_dropped(group: int):
    task = WORLDS["slow_ahead"](0).task
    method = AheadChoose(NUM_PROMPTS, batch=16, group=group, seed=0, task=task, slow="long", delays=range(1, 7))
    policy, ages = Coins(task, [0.5, 0.5]), {"long": Counter(), "short": Counter()}
    for version in range(30):
        policy.version = version
        assert len(set(method.next_batch(policy).groups)) == 16
        for trained in method.trained_groups:
            name = task.domain_names[task.domains[int(trained.prompt.index)]]
            ages[name].update(version - sample.version for sample in trained.samples)
    assert {1, 2} < set(ages["long"]) <= {0, 1, 2, 3, 4}  # a rollout that is waited for may arrive within its step
    assert set(ages["short"]) <= {0, 1, 2, 3, 4}
    fates = method.controller.rollout_conservation()
    assert fates["expired"] == 0
    assert fates["generated"] == sum(n for fate, n in fates.items() if fate != "generated")


def test_the_products_controller_admits_no_prompt_in_the_place_of_a_late_one():
    settings = CurriculumSettings(n=2, n_continue=2, train_batch_size=4, gen_batch_size=4, schedule="streaming")
    wanted = {}
    for kind in (DataController, OpenController):
        controller = kind(settings.model_copy(update={"train_on": "all"}))
        controller.add_new_prompts_first_generation_phase([Prompt(f"{i}", i) for i in range(4)])
        assert len(controller.get_generation_inputs()) == 4
        controller.num_late = 3
        wanted[kind] = controller.num_prompts_wanted
    assert wanted == {DataController: 0, OpenController: 3}


def batches(factory, wrong):
    """The batches of six updates, and the groups of the last one."""
    task = WORLDS["graded"](0).task
    method, policy = factory(NUM_PROMPTS, batch=32, group=4, seed=0, task=task), Coins(task, [0.4, 0.2], wrong)
    found = []
    for version in range(6):
        policy.version = version
        found.append(method.next_batch(policy))
    return found, method.trained_groups


@pytest.mark.parametrize("factory", [GradedChoose, VarianceChoose])
def test_rewards_of_0_and_1_have_the_advantages_they_have_without_grades(factory):
    for graded, plain in zip(batches(factory, 0.0)[0], batches(Choose, 0.0)[0], strict=True):
        np.testing.assert_allclose(graded.advantages, plain.advantages, atol=1e-9)
        assert np.abs(plain.advantages).max() > 0.5


def test_partial_credit_is_no_pass_and_shrinks_the_advantages():
    # The line from successes to rewards is .6 + .4 success: partial credit gives a wrong answer no advantage.
    for graded, plain in zip(batches(GradedChoose, 0.6)[0], batches(Choose, 0.0)[0], strict=True):
        np.testing.assert_allclose(graded.advantages, 0.4 * plain.advantages, atol=1e-9)


def test_partial_credit_is_evidence_and_is_compared_with_what_was_expected_of_it():
    found, groups = batches(VarianceChoose, 0.6)
    advantages = []
    for group in groups:
        rewards = np.array([sample.success for sample in group.samples])
        assert set(rewards) <= {0.6, 1.0}
        strength = group.prompt.alpha + group.prompt.beta
        advantages += (
            rewards - leave_one_out_baselines(rewards, group.stages, group.prompt.alpha / strength, strength)
        ).tolist()
    np.testing.assert_allclose(found[-1].advantages, advantages, atol=1e-9)
    expected = [group.prompt.alpha / (group.prompt.alpha + group.prompt.beta) for group in groups]
    assert np.mean(expected) == pytest.approx(0.72, abs=0.08)  # .6 and .4 of 0.3 on average


# ------------------------------ runs ------------------------------


class Learner(Coins):
    """Its accuracy is the number of its updates, in thousandths."""

    def __init__(self, base, task, *, grade, **more):
        super().__init__(task, [0.3] * len(task.domain_names))
        self.grade = grade

    def sample(self, prompts):
        return self.grade(super().sample(prompts), self.version)

    def update(self, rollouts, groups, weights, advantages, *, updates):
        self.version += 1

    def accuracy_by_domain(self):
        return dict.fromkeys(self.task.domain_names, self.version / 1000)


@pytest.mark.parametrize("method", BY_HAND)
def test_a_run_looks_at_equal_numbers_of_generated_rollouts(monkeypatch, method):
    monkeypatch.setattr(safety_training, "GradedPolicy", Learner)
    result = safety_training.run(Job(method, "inverted_rewards", 0, Settings(1e-3, 8, 4, 1), 400))
    rollouts = [look["rollouts"] for look in result["history"]]
    assert len(rollouts) == 21
    assert all(0 <= at - 20 * number < 32 for number, at in enumerate(rollouts))
    last = result["history"][-1]
    assert last["accuracy_by_domain"]["sums"] == last["step"] / 1000
    assert last["trained"] == rollouts[-1]
    assert result == {**safety_training.run(Job.from_json(result["job"])), "seconds": result["seconds"]}


def test_a_policy_is_graded():
    policy = object.__new__(safety_training.GradedPolicy)
    policy.version, policy.grade = 7, lambda rollouts, version: [version, *rollouts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safety_training.Policy, "sample", lambda self, prompts: list(prompts))
        assert policy.sample([1, 2]) == [7, 1, 2]
