"""A recipe in a script for verl: what it changes of its own defaults, what it leaves, and what it says."""

from collections.abc import Collection
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.fast_dapo.recipe import CENTRED_IN_GROUPS
from recipe.fast_dapo.recipe import RECIPE as FAST_DAPO
from recipe.tracin.recipe import RECIPE as TRACIN
from verl_ext.launch.recipe import Recipe


def fast_dapo(estimator: str = "grpo", **curriculum: Any) -> DictConfig:
    """The options of Fast DAPO that an estimator of a script concerns, at their defaults."""
    node = {"enable": True, "baseline": "posterior", "train_on": "all", "screening": "fixed", "correction": "none"}
    sizes = {"train_batch_size": 512, "gen_batch_size": 256}
    return OmegaConf.create({"curriculum": node | curriculum, "algorithm": {"adv_estimator": estimator}, "data": sizes})


def tracin(**node: Any) -> DictConfig:
    """The options of TracIn that have no counterpart in a script, at their defaults."""
    own = {"enable": True, "validation_files": None, "validation": {"strategy": "quality"}}
    return OmegaConf.create(
        {"tracin": own | node, "actor_rollout_ref": {"model": {"lora_rank": 16, "lora_adapter_path": None}}}
    )


def adapt(recipe: Recipe, config: DictConfig, given: Collection[str] = ()) -> list[str]:
    assert recipe.adapt is not None
    return list(recipe.adapt(config, given))


# ------------------------------ Fast DAPO ------------------------------


@pytest.mark.parametrize("estimator", CENTRED_IN_GROUPS)
def test_a_scripts_estimator_is_kept_and_trained_with_in_two_phases(estimator: str):
    config = fast_dapo(estimator)
    (said,) = adapt(FAST_DAPO, config)
    assert said.startswith(f"algorithm.adv_estimator={estimator}: Fast DAPO keeps it and trains in two phases")
    expected = fast_dapo(estimator, baseline="estimator", train_on="qualified")
    expected.data.gen_batch_size = 512
    assert config == expected


def test_a_larger_number_of_prompts_in_screening_stays():
    config = fast_dapo()
    config.data.gen_batch_size = 1536
    adapt(FAST_DAPO, config)
    assert config.data.gen_batch_size == 1536


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (fast_dapo("posterior"), ()),
        (fast_dapo("gae"), ()),
        (fast_dapo(enable=False), ()),
        (fast_dapo(baseline="estimator", train_on="qualified"), ()),  # +signal=two_phase
        (fast_dapo(), ["curriculum.train_on"]),
        (fast_dapo(), ["curriculum.baseline"]),
    ],
)
def test_what_someone_chose_and_what_does_not_contradict_stays(config: DictConfig, given: Collection[str]):
    before = config.copy()
    assert adapt(FAST_DAPO, config, given) == []
    assert config == before


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (
            {},
            "rollout.n=5: 5 rollouts screen each prompt, and one with mixed results gets 7 in all "
            "(rollout.n_continue=2); the others are trained on as well, with those of their screening",
        ),
        (
            {"train_on": "qualified"},
            "rollout.n=5: 5 rollouts screen each prompt, and one with mixed results gets 7 in all "
            "(rollout.n_continue=2); the others are dropped",
        ),
        (
            {"train_on": "qualified", "screening": "sequential"},
            "rollout.n=5: up to 5 rollouts screen each prompt, and one with mixed results gets 7 in all "
            "(rollout.n_continue=2); the others are dropped",
        ),
        (
            {"train_on": "qualified", "correction": "continuation_only"},
            "rollout.n=5: 5 rollouts screen each prompt, and one with mixed results gets 7 in all "
            "(rollout.n_continue=2); only the last 2 are trained on, and the others are dropped",
        ),
    ],
)
def test_every_run_says_what_n_means(node: dict[str, Any], said: str):
    assert FAST_DAPO.notes is not None
    assert list(FAST_DAPO.notes(fast_dapo(n=5, n_continue=2, **node))) == [said]


def test_where_n_is_verls_nothing_is_said():
    assert FAST_DAPO.notes is not None
    assert list(FAST_DAPO.notes(fast_dapo(n=5, n_continue=0))) == []
    assert list(FAST_DAPO.notes(fast_dapo(n=5, n_continue=2, enable=False))) == []


# ------------------------------ TracIn ------------------------------


def test_without_a_validation_set_samples_are_scored_within_their_batch():
    config = tracin()
    in_batch, lora = adapt(TRACIN, config)
    assert in_batch.startswith("tracin.validation_files is not set: each sample is scored against the rest")
    assert lora.startswith("actor_rollout_ref.model.lora_rank=16: TracIn trains LoRA unless told otherwise")
    assert config == tracin(validation={"strategy": "in_batch"})


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (tracin(validation_files="mine.parquet"), []),
        (tracin(validation={"strategy": "fixed"}), []),
        (tracin(), ["tracin.validation.strategy"]),
    ],
)
def test_a_chosen_validation_stays(config: DictConfig, given: list[str]):
    before = config.copy()
    assert adapt(TRACIN, config, [*given, "tracin.parameters"]) == []
    assert config == before


def test_without_scores_it_changes_nothing():
    assert adapt(TRACIN, tracin(enable=False)) == []
