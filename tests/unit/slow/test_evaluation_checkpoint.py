"""A checkpoint of verl as `--model`: merged once by verl's own merger into the model that was trained, or refused."""

import contextlib
import io
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from checkpoint_ranks import IDS, Saved, build_model, save_checkpoints
from transformers import AutoModelForCausalLM

from recipe.golden_redaction.evaluate import GoldenEvaluateSettings
from recipe.golden_redaction.evaluate import evaluate as evaluate_golden
from verl_ext.core.errors import CheckpointError, SignalError
from verl_ext.evaluation.checkpoint import merged_model
from verl_ext.evaluation.checkpoint_files import actor_folder, fingerprint
from verl_ext.evaluation.settings import EvaluateSettings


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of runs of two ranks, by name."""
    folder = tmp_path_factory.mktemp("saved")
    checkpoints = {
        "full": Saved(),
        "lora": Saved(lora=True),
        "lora_only": Saved(lora=True, settings={"save_lora_only": True}),
        # VeOmni's engine saves with the same manager, over its own mesh.
        "veomni": Saved(mesh="dp_shard_sp"),
        "hf_model": Saved(settings={"save_contents": ["model", "hf_model"]}),
    }
    save_checkpoints(folder, checkpoints, world=2)
    return folder


@pytest.fixture(scope="module")
def full(saved: Path) -> Path:
    return saved / "full/global_step_3"


@pytest.fixture
def copy(full: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint to remove things from, with its file times."""
    return Path(shutil.copytree(full, tmp_path / "run/global_step_3"))


def logits_of(folder: str) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(IDS).logits


def trained_logits(lora: bool) -> torch.Tensor:
    with torch.no_grad():
        return build_model(lora)(input_ids=IDS).logits


@pytest.fixture(scope="module")
def merged(full: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The merged model of the full checkpoint, and what was printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        folder = merged_model(str(full), tmp_path_factory.mktemp("cache"))
    return Path(folder), said.getvalue()


def test_the_shards_of_all_ranks_become_the_trained_model(full: Path, merged: tuple[Path, str]):
    folder, said = merged
    torch.testing.assert_close(logits_of(str(folder)), trained_logits(lora=False), atol=0.1, rtol=0.1)
    assert (folder / "tokenizer.json").is_file()
    assert folder.name == f"global_step_3-{fingerprint(full / 'actor')}"
    assert said == f"merging 2 shard(s) of {full / 'actor'} with verl's model merger into {folder}\n"
    assert "device mesh" in (folder.parent / f"{folder.name}.log").read_text()  # what verl prints


def test_a_checkpoint_is_merged_once(full: Path, merged: tuple[Path, str], capsys):
    folder, _ = merged
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert merged_model(str(full / "actor"), folder.parent) == str(folder)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    assert "was merged before" in capsys.readouterr().err


def test_another_checkpoint_under_the_same_name_is_another_model(copy: Path):
    settings = [EvaluateSettings(str(folder), ("a",)).sample_settings() for folder in (copy, copy / "actor")]
    assert settings[0] == settings[1]
    (copy / "actor/optim_world_size_2_rank_0.pt").write_text("of no account")
    assert EvaluateSettings(str(copy), ("a",)).sample_settings() == settings[0]
    os.utime(copy / "actor/model_world_size_2_rank_1.pt")
    assert EvaluateSettings(str(copy), ("a",)).sample_settings() != settings[0]


def test_lora_factors_are_merged_into_the_weights(saved: Path, tmp_path: Path):
    step = Path(shutil.copytree(saved / "lora/global_step_3", tmp_path / "global_step_3"))
    trained = trained_logits(lora=True)
    assert (trained - trained_logits(lora=False)).abs().max() > 0.5
    merged = merged_model(str(step), tmp_path / "cache")
    torch.testing.assert_close(logits_of(merged), trained, atol=0.15, rtol=0.1)
    assert not (Path(merged) / "lora_adapter").exists()
    # Without alpha, verl's merger would use 0: the base model's answers under the trained model's name.
    (step / "actor/lora_train_meta.json").unlink()
    with pytest.raises(CheckpointError, match=r"no lora_train_meta\.json"):
        merged_model(str(step), tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [Path(merged).name]


def test_lora_factors_without_their_model_are_refused(saved: Path, tmp_path: Path):
    step = saved / "lora_only/global_step_3"
    with pytest.raises(CheckpointError, match="nothing to merge them into"):
        merged_model(str(step), tmp_path / "cache")


def test_a_run_that_saved_all_weights_needs_no_merge(saved: Path, tmp_path: Path):
    step = saved / "hf_model/global_step_3"
    assert merged_model(str(step), tmp_path / "cache") == str(step / "actor/huggingface")
    assert not (tmp_path / "cache").exists()


def test_shards_that_verls_merger_does_not_know_need_hugging_face_weights(saved: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"a mesh of \('dp_shard_sp',\), as VeOmni's .* save them with hf_model"):
        merged_model(str(saved / "veomni/global_step_3"), tmp_path / "cache")


def _megatrons(folder: Path, *, role: str = "actor", peft: bool = False) -> Path:
    """A checkpoint in the layout of verl's Megatron engine, without weights."""
    actor = folder / "global_step_3/actor"
    (actor / "model/huggingface").mkdir(parents=True)
    contents = {"role": role, "world_size": 4, "backend": {"peft": peft}}
    (actor / "ckpt_contents.json").write_text(json.dumps(contents))
    return actor


def test_megatrons_hugging_face_weights_are_the_model(tmp_path: Path):
    actor = _megatrons(tmp_path)
    build_model(lora=False).save_pretrained(actor / "model/huggingface")  # type: ignore[operator]
    for given in (actor, actor.parent):
        model = merged_model(str(given), tmp_path / "cache")
        torch.testing.assert_close(logits_of(model), trained_logits(lora=False))
    assert model == str(actor / "model/huggingface")
    before = fingerprint(actor)
    assert before
    os.utime(actor / "model/huggingface/model.safetensors")
    assert fingerprint(actor) != before


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({}, "only in Megatron's format: have a run save them with hf_model in .*save_contents"),
        ({"peft": True}, "only LoRA factors.*merge them into the model that the run started from"),
        ({"role": "critic"}, "is a critic"),
    ],
)
def test_a_checkpoint_of_megatrons_without_a_model_says_what_is_needed(made: dict, expected: str, tmp_path: Path):
    with pytest.raises(CheckpointError, match=expected):
        merged_model(str(_megatrons(tmp_path, **made)), tmp_path / "cache")


def test_a_step_without_weights_of_a_known_form_is_refused(tmp_path: Path):
    (tmp_path / "global_step_3/step-3").mkdir(parents=True)
    (tmp_path / "global_step_3/data.pt").touch()
    with pytest.raises(CheckpointError, match="a checkpoint without weights"):
        merged_model(str(tmp_path / "global_step_3"), tmp_path / "cache")


def test_a_models_folder_and_a_name_on_the_hub_stay_as_they_are(copy: Path, tmp_path: Path):
    for model in (str(copy / "actor/huggingface"), "Qwen/Qwen3-4B", str(tmp_path / "nowhere")):
        assert actor_folder(model) is None
        assert merged_model(model, tmp_path / "cache") == model


def test_missing_shards_are_named(copy: Path, tmp_path: Path):
    (copy / "actor/model_world_size_2_rank_1.pt").unlink()
    with pytest.raises(CheckpointError, match=r"lacks 1 of 2 shards, the first is model_world_size_2_rank_1\.pt"):
        merged_model(str(copy), tmp_path / "cache")


def test_shards_alone_are_no_checkpoint(copy: Path, tmp_path: Path):
    (copy / "actor/fsdp_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no readable fsdp_config\.json"):
        merged_model(str(copy), tmp_path / "cache")


def test_a_critic_is_refused(copy: Path, tmp_path: Path):
    file = copy / "actor/huggingface/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"architectures": ["Qwen2ForTokenClassification"]}))
    with pytest.raises(CheckpointError, match="is a critic"):
        merged_model(str(copy), tmp_path / "cache")


def test_shards_that_cannot_be_read_are_an_error_of_one_line(copy: Path, tmp_path: Path):
    (copy / "actor/model_world_size_2_rank_0.pt").write_bytes(b"cut off")
    with pytest.raises(CheckpointError, match=r"verl's model merger cannot merge .* Its output is in"):
        merged_model(str(copy), tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_golden_redactions_evaluation_merges_it_too(full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no_tasks.parquet").touch()
    settings = GoldenEvaluateSettings(str(full.absolute()), ("no_tasks.parquet",), tmp_path / "result", n=1)
    with pytest.raises(SignalError, match="no_tasks"):
        evaluate_golden(settings)
    (merged,) = (tmp_path / "outputs/merged_checkpoints").glob("global_step_3-*/config.json")
    assert fingerprint(full / "actor") in merged.parent.name
