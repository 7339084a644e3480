"""A script for verl's own command becomes a run of a recipe by one flag, in each of verl's modes.

Dry runs, so that everything up to the start of Ray is real.
"""

from collections.abc import Iterator

import pytest
import torch
import yaml
from command_server import CommandServer, Ended
from stand_ins import StandIns, make_stand_ins
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verls_script import MODES, SCRIPT

from recipe.fast_dapo.recipe import CENTRED_IN_GROUPS

ACCEPTED = "nothing was started: without dry_run=true the same command trains"


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return make_stand_ins(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture(scope="module")
def server() -> Iterator[CommandServer]:
    """Of verl's own platform, as on a machine with GPUs."""
    made = CommandServer()
    yield made
    made.close()


def checked(server: CommandServer, stand_ins: StandIns, *words: str) -> Ended:
    """How verl's command with the script and these words ends, as a dry run."""
    own = [
        f"data.train_files={stand_ins.data('train')}",
        f"data.val_files={stand_ins.data('val')}",
        f"actor_rollout_ref.model.path={stand_ins.model()}",
        f"run_dir={stand_ins.folder / 'run'}",
    ]
    return server.run(["verl.trainer.main_ppo", *SCRIPT, *own, *words, "dry_run=true"])


@pytest.mark.parametrize("mode", MODES)
def test_fast_dapo_trains_a_script_with_its_estimator(server: CommandServer, stand_ins: StandIns, mode: str):
    ended = checked(server, stand_ins, *MODES[mode], "+recipe=fast_dapo")
    assert (ended.code, ACCEPTED in ended.printed) == (0, True), ended.printed
    assert "algorithm.adv_estimator=grpo: Fast DAPO keeps it and trains in two phases" in ended.printed
    assert "rollout.n=5: 5 rollouts screen each prompt, and one with mixed results gets 7 in all" in ended.printed
    assert "512 prompts x 7 rollouts = 3,584 rollouts" in ended.printed
    # What pages and the simulator read is what was run.
    recorded = yaml.safe_load((stand_ins.folder / "run/hydra/config.yaml").read_text(encoding="utf-8"))
    assert (recorded["curriculum"]["baseline"], recorded["curriculum"]["train_on"]) == ("estimator", "qualified")
    assert recorded["algorithm"]["adv_estimator"] == "grpo"
    assert recorded["actor_rollout_ref"]["actor"]["use_kl_loss"] is True


@pytest.mark.parametrize("mode", MODES)
def test_tracin_scores_the_samples_of_a_script(server: CommandServer, stand_ins: StandIns, mode: str):
    ended = checked(server, stand_ins, *MODES[mode], "+recipe=tracin")
    assert (ended.code, ACCEPTED in ended.printed) == (0, True), ended.printed
    assert "tracin.validation_files is not set: each sample is scored against the rest of its batch" in ended.printed
    assert "actor_rollout_ref.model.lora_rank=16: TracIn trains LoRA unless told otherwise" in ended.printed
    assert "512 prompts x 5 rollouts = 2,560 rollouts" in ended.printed
    assert "scores cover all trained parameters" in ended.printed


@pytest.mark.parametrize("estimator", CENTRED_IN_GROUPS)
def test_estimators_that_keep_their_meaning_learn_nothing_from_equal_rewards(estimator: str):
    """Groups of three rollouts, B = 6, T = 2: one with mixed rewards, and one with equal rewards, which is dropped."""
    rewards_BT = torch.zeros(6, 2)
    rewards_BT[:, -1] = torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    advantages_BT, _ = get_adv_estimator_fn(estimator)(
        token_level_rewards=rewards_BT, response_mask=torch.ones(6, 2), index=["mixed"] * 3 + ["equal"] * 3
    )
    assert advantages_BT[:3].abs().min() > 0
    assert torch.equal(advantages_BT[3:], torch.zeros(3, 2))
