"""Settings of Fast DAPO that are allowed, and about which a run warns."""

import pytest
from omegaconf import OmegaConf

from recipe.fast_dapo.recipe import RECIPE


def warnings_of(mode: str, n: int, n_continue: int, epochs: int, *, mini_batch: int = 64, enable: bool = True):
    config = OmegaConf.create(
        {
            "trainer": {"v1": {"trainer_mode": mode}},
            "data": {"train_batch_size": 64},
            "actor_rollout_ref": {"actor": {"ppo_epochs": epochs, "ppo_mini_batch_size": mini_batch}},
            "curriculum": {"enable": enable, "n": n, "n_continue": n_continue},
        }
    )
    assert RECIPE.warnings is not None
    return list(RECIPE.warnings(config))


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_many_updates_on_late_single_rollouts_are_warned_of(mode: str):
    (warning,) = warnings_of(mode, 1, 0, 4)
    assert warning.startswith(f"4 updates per batch of single rollouts with trainer.v1.trainer_mode={mode}")
    assert warnings_of(mode, 1, 0, 1, mini_batch=16)[0].startswith("4 updates")


def test_what_was_safe_is_not():
    assert warnings_of("sync", 1, 0, 8) == []
    assert warnings_of("colocate_async", 1, 0, 2) == []
    assert warnings_of("colocate_async", 2, 0, 8) == []
    assert warnings_of("colocate_async", 1, 1, 8) == []
    assert warnings_of("colocate_async", 1, 0, 8, enable=False) == []
