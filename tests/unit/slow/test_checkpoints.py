"""A checkpoint is complete or absent, and a damaged one is skipped with a warning."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from verl_ext.core.errors import CheckpointError, ConfigError
from verl_ext.run.checkpoints import TRACKER, CheckpointFolder, num_to_keep, prepare_resume
from verl_ext.run.manifest import (
    Entry,
    changed_file,
    describe_files,
    find_damage,
    in_shares,
    sizes_alone,
    write_manifest,
)
from verl_ext.run.run_folder import RunFolder


def _write(checkpoints: CheckpointFolder, step: int, num_ranks: int = 1) -> None:
    folder = checkpoints.saving / f"global_step_{step}"
    (folder / "actor/huggingface").mkdir(parents=True)
    (folder / "transfer_queue").mkdir()
    for rank in range(num_ranks):
        torch.save(
            {"weight": torch.arange(65536.0) + step}, folder / f"actor/model_world_size_{num_ranks}_rank_{rank}.pt"
        )
    (folder / "actor/huggingface/config.json").write_text("{}")
    (folder / "transfer_queue/unit.pkl").write_bytes(bytes(range(256)) * 40)
    (folder / "signal.json").write_text(json.dumps({"step": step}))


def _save(checkpoints: CheckpointFolder, *steps: int, keep: int | None = None, num_ranks: int = 1) -> None:
    for step in steps:
        _write(checkpoints, step, num_ranks)
        checkpoints.publish(step, keep)


@pytest.fixture
def checkpoints(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints")


def _trainer(checkpoints: CheckpointFolder, **values: object):
    return OmegaConf.create({"resume_mode": "auto", "default_local_dir": str(checkpoints.path), **values})


def test_a_published_checkpoint_is_whole_and_tracked(checkpoints: CheckpointFolder):
    _save(checkpoints, 1, 2)
    assert (checkpoints.path / TRACKER).read_text() == "2"
    assert find_damage(checkpoints.at(2)) is None
    assert checkpoints.find().folder == checkpoints.at(2)
    assert not checkpoints.saving.exists()


def test_a_save_that_does_not_end_leaves_the_earlier_ones_as_they_are(checkpoints: CheckpointFolder):
    _save(checkpoints, 1)
    _write(checkpoints, 2)
    assert checkpoints.steps() == [1]
    assert prepare_resume(_trainer(checkpoints), 1) == []
    assert not checkpoints.saving.exists()
    assert checkpoints.find().folder == checkpoints.at(1)


def test_the_same_step_again_replaces_it(checkpoints: CheckpointFolder):
    _save(checkpoints, 3)
    marker = checkpoints.at(3) / "old"
    marker.touch()
    _save(checkpoints, 3)
    assert not marker.exists()
    assert checkpoints.find().folder == checkpoints.at(3)


def test_an_end_between_the_two_renames_of_a_replacement_loses_nothing(checkpoints: CheckpointFolder):
    _save(checkpoints, 3)
    checkpoints.at(3).rename(checkpoints.path / ".global_step_3.replaced")
    assert checkpoints.find().folder == checkpoints.at(3)


@pytest.mark.parametrize(("keep", "left"), [(None, [1, 2, 3, 4]), (1, [4]), (3, [2, 3, 4]), (9, [1, 2, 3, 4])])
def test_old_checkpoints_are_removed_whole(checkpoints: CheckpointFolder, keep: int | None, left: list[int]):
    _save(checkpoints, 1, 2, 3)
    _save(checkpoints, 4, keep=keep)
    assert checkpoints.steps() == left


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({}, None),
        ({"max_actor_ckpt_to_keep": 2}, 2),
        ({"max_actor_ckpt_to_keep": 2, "max_critic_ckpt_to_keep": 3}, 3),
        ({"remove_previous_ckpt_in_save": True, "max_actor_ckpt_to_keep": 5}, 1),
    ],
)
def test_verls_limits_are_one_number(settings: dict[str, object], number: int | None):
    assert num_to_keep(OmegaConf.create(settings)) == number


FILES = ["actor/model_world_size_1_rank_0.pt", "actor/huggingface/config.json", "transfer_queue/unit.pkl"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found(checkpoints: CheckpointFolder, name: str):
    _save(checkpoints, 1)
    (checkpoints.at(1) / name).unlink()
    assert find_damage(checkpoints.at(1)) == f"{name} is missing"


@settings(max_examples=25)
@given(name=st.sampled_from(FILES), share=st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_found(tmp_path_factory: pytest.TempPathFactory, name: str, share: float):
    checkpoints = CheckpointFolder(tmp_path_factory.mktemp("checkpoints"))
    _save(checkpoints, 1)
    file = checkpoints.at(1) / name
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert name in find_damage(checkpoints.at(1))
    assert "bytes, expected" in find_damage(checkpoints.at(1))


@settings(max_examples=25)
@given(name=st.sampled_from([FILES[0], FILES[2]]), place=st.floats(0.1, 0.9), bit=st.integers(0, 7))
def test_a_flipped_bit_among_the_data_is_found(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: float, bit: int
):
    checkpoints = CheckpointFolder(tmp_path_factory.mktemp("checkpoints"))
    _save(checkpoints, 1)
    file = checkpoints.at(1) / name
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    file.write_bytes(content)
    assert find_damage(checkpoints.at(1)) == f"{name} has changed since it was written"


def test_several_machines_read_a_share_of_the_files_each(checkpoints: CheckpointFolder):
    """As in `runner.verify_resume`; sizes are checked first, without reading any file."""
    _save(checkpoints, 1, 2, num_ranks=4)
    read: list[list[str]] = []

    def find_changed(folder: Path, names: Sequence[str]) -> str | None:
        shares = in_shares(folder, names, 3)
        read.extend(shares)
        return next(filter(None, (changed_file(folder, share) for share in shares)), None)

    assert find_damage(checkpoints.at(2), find_changed) is None
    shards = [[name for name in share if name.endswith(".pt")] for share in read]
    assert sorted(map(len, shards)) == [1, 1, 2]  # of equal size, and much larger than the rest
    names = [name for share in read for name in share]
    assert sorted(names) == sorted(json.loads((checkpoints.at(2) / "manifest.json").read_text())["files"])
    damaged = checkpoints.at(2) / shards[0][0]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert find_damage(checkpoints.at(2), sizes_alone) is None
    assert prepare_resume(_trainer(checkpoints), 4, sizes_alone) == []
    warnings = prepare_resume(_trainer(checkpoints), 4, find_changed)
    assert f"{shards[0][0]} has changed since it was written" in warnings[0]
    assert checkpoints.find(find_changed).folder == checkpoints.at(1)


def test_verls_own_checkpoint_is_checked_as_far_as_it_can_be(checkpoints: CheckpointFolder):
    _write(checkpoints, 5)
    folder = checkpoints.saving / "global_step_5"
    assert find_damage(folder) is None
    shard = folder / FILES[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    assert find_damage(folder) == f"{FILES[0]} has changed since it was written"


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_with_a_warning(checkpoints: CheckpointFolder):
    _save(checkpoints, 1, 2, 3)
    (checkpoints.at(3) / FILES[0]).write_bytes(b"")
    (checkpoints.at(2) / "signal.json").unlink()
    warnings = prepare_resume(_trainer(checkpoints), 1)
    assert warnings[-1] == "resuming from global_step_1"
    assert "global_step_3 is damaged (actor/model_world_size_1_rank_0.pt has 0 bytes" in warnings[0]
    assert "global_step_2 is damaged (signal.json is missing)" in warnings[1]
    # Nothing is deleted, and verl's tracker names the intact one.
    assert (checkpoints.path / "global_step_3.damaged").is_dir()
    assert (checkpoints.path / TRACKER).read_text() == "1"
    assert prepare_resume(_trainer(checkpoints), 1) == []


def test_checkpoints_beyond_the_tracker_are_not_resumed_from(checkpoints: CheckpointFolder):
    _save(checkpoints, 1, 2)
    (checkpoints.path / TRACKER).write_text("1")
    assert checkpoints.find().folder == checkpoints.at(1)


@pytest.mark.parametrize("text", ["", "2\x00", "zwei"])
def test_a_torn_tracker_is_not_the_end(checkpoints: CheckpointFolder, text: str):
    _save(checkpoints, 1, 2)
    (checkpoints.path / TRACKER).write_text(text)
    assert checkpoints.find().folder == checkpoints.at(2)


def test_a_fresh_folder_has_nothing_to_resume_from(checkpoints: CheckpointFolder):
    assert checkpoints.find() is None
    assert prepare_resume(_trainer(checkpoints), 1) == []


def test_nothing_but_damaged_checkpoints_is_refused_and_not_started_over(checkpoints: CheckpointFolder):
    _save(checkpoints, 1)
    (checkpoints.at(1) / "signal.json").unlink()
    with pytest.raises(CheckpointError, match=r"expected a whole checkpoint .*\n.*signal.json is missing"):
        prepare_resume(_trainer(checkpoints), 1)
    assert prepare_resume(_trainer(checkpoints, resume_mode="disable"), 1) == []


def test_a_named_checkpoint_is_taken_or_refused_but_never_replaced_by_another(checkpoints: CheckpointFolder):
    _save(checkpoints, 1, 2)
    named = _trainer(checkpoints, resume_mode="resume_path", resume_from_path=str(checkpoints.at(2)))
    assert prepare_resume(named, 1) == []
    (checkpoints.at(2) / "signal.json").unlink()
    with pytest.raises(CheckpointError, match=r"cannot resume from .*signal.json is missing"):
        prepare_resume(named, 1)
    named.resume_from_path = str(checkpoints.at(7))
    with pytest.raises(CheckpointError, match="no such folder"):
        prepare_resume(named, 1)


def test_another_number_of_ranks_is_refused_before_anything_starts(checkpoints: CheckpointFolder):
    _save(checkpoints, 1, num_ranks=2)
    assert prepare_resume(_trainer(checkpoints), 2) == []
    with pytest.raises(CheckpointError, match=r"weights of 1 actor ranks .*got \[2\]"):
        prepare_resume(_trainer(checkpoints), 1)


def test_a_checkpoint_of_megatrons_tells_its_ranks_itself(checkpoints: CheckpointFolder):
    """Its file names have no ranks: verl writes the number of ranks to a file next to them."""
    actor = checkpoints.saving / "global_step_1/actor"
    (actor / "model/huggingface").mkdir(parents=True)
    (actor / "model/huggingface/model.safetensors").write_bytes(b"weights")
    (actor / "ckpt_contents.json").write_text('{"world_size": 4}')
    checkpoints.publish(1)
    assert prepare_resume(_trainer(checkpoints), 4) == []
    with pytest.raises(CheckpointError, match=r"weights of 8 actor ranks .*got \[4\]"):
        prepare_resume(_trainer(checkpoints), 8)
    # A file that is not a torch archive has a checksum in the manifest.
    (checkpoints.at(1) / "actor/model/huggingface/model.safetensors").write_bytes(b"weighty")
    with pytest.raises(CheckpointError, match=r"model\.safetensors has changed"):
        prepare_resume(_trainer(checkpoints), 4)


def test_shards_on_another_nodes_disk_are_missed(checkpoints: CheckpointFolder):
    _write(checkpoints, 1, num_ranks=2)
    (checkpoints.saving / "global_step_1/actor/model_world_size_2_rank_1.pt").unlink()
    checkpoints.publish(1)
    with pytest.raises(CheckpointError, match=r"expected 2 shards .*, got 1: .*file system that all nodes share"):
        prepare_resume(_trainer(checkpoints), 2)


def test_a_failed_save_is_explained_and_gives_its_room_back(checkpoints: CheckpointFolder):
    _save(checkpoints, 1)
    _write(checkpoints, 2)
    error = checkpoints.explain_failed_save(2, OSError(28, "No space left on device"))
    assert "the checkpoint of step 2 could not be written" in str(error)
    assert "GiB free): [Errno 28] No space left on device" in str(error)
    assert not checkpoints.saving.exists()
    assert checkpoints.find().folder == checkpoints.at(1)


def test_a_manifest_lists_every_file_but_itself(checkpoints: CheckpointFolder):
    _write(checkpoints, 1)
    folder = checkpoints.saving / "global_step_1"
    write_manifest(folder)
    write_manifest(folder)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(files) == {*FILES, "signal.json"}
    # torch's archives have their own checksums.
    assert files[FILES[0]]["crc32"] is None
    assert files[FILES[2]]["crc32"] is not None


def test_several_machines_write_the_same_manifest(checkpoints: CheckpointFolder):
    _write(checkpoints, 1, num_ranks=4)
    folder = checkpoints.saving / "global_step_1"
    write_manifest(folder)
    alone = (folder / "manifest.json").read_text()
    read: list[list[str]] = []

    def describe(folder: Path, names: Sequence[str]) -> dict[str, Entry]:
        read.extend(in_shares(folder, names, 3))
        return {name: entry for share in read for name, entry in describe_files(folder, share).items()}

    checkpoints.publish(1, describe=describe)
    assert len(read) == 3
    assert (checkpoints.at(1) / "manifest.json").read_text() == alone


def test_a_second_run_in_the_same_folder_is_refused_and_the_end_of_the_first_frees_it(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    refused = pytest.raises(ConfigError, match=r"another run \(process \d+ on .*\) is writing to")
    with folder.locked(), refused, folder.locked():
        pass
    with folder.locked():
        pass
