"""What TracIn cannot work with is refused before Ray starts, with what to change."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from data_preprocess.arithmetic import PoolSettings, build_rows
from recipe.tracin.checks import check_config
from recipe.tracin.method.disjoint import ValidationOverlapError
from verl_ext.core.errors import ConfigError
from verl_ext.data.schema import write_parquet

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, rows in build_rows(PoolSettings(train_size=60, val_size=20, influence_size=20)).items():
        write_parquet(rows, folder / f"{name}.parquet")
    return folder


def _config(data: Path, *overrides: str) -> DictConfig:
    files = [
        f"data.train_files={data}/train.parquet",
        f"data.val_files={data}/val.parquet",
        f"tracin.validation_files={data}/influence.parquet",
    ]
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("tracin", overrides=["+backend=cpu", *files, *overrides])


def test_the_recipes_own_configuration_is_accepted(data: Path):
    assert check_config(_config(data)).enable


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("actor_rollout_ref.actor.strategy=fsdp", "strategy must be fsdp2"),
        ("actor_rollout_ref.model.lora_rank=0", "the model has no LoRA"),
        ("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2", "whole sequences"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov", "mixes the samples"),
        ("actor_rollout_ref.actor.shuffle=true", "shuffle"),
        ("actor_rollout_ref.rollout.calculate_log_probs=false", "calculate_log_probs=true"),
        ("distillation.enabled=true", "distillation"),
    ],
)
def test_what_has_no_exact_scores_is_refused(data: Path, override: str, message: str):
    with pytest.raises(ConfigError, match=message):
        check_config(_config(data, override))


def test_all_problems_are_named_at_once(data: Path):
    config = _config(data, "actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.shuffle=true")
    with pytest.raises(ConfigError, match=r"(?s)fsdp2.*shuffle"):
        check_config(config)


@pytest.mark.parametrize("estimator", ["gae", "posterior"])
def test_centring_again_needs_one_advantage_a_sample_that_is_centred_by_group(data: Path, estimator: str):
    config = _config(data, f"algorithm.adv_estimator={estimator}", "tracin.selection.baseline=after")
    with pytest.raises(ConfigError, match="baseline=before"):
        check_config(config)


def test_one_pass_needs_one_mini_batch(data: Path):
    config = _config(data, "tracin.one_pass=true", "actor_rollout_ref.actor.ppo_mini_batch_size=16")
    with pytest.raises(ConfigError, match="4 mini-batches a step"):
        check_config(config)


def test_validation_prompts_in_the_training_files_are_refused(data: Path):
    with pytest.raises(ValidationOverlapError, match="60 of 60"):
        check_config(_config(data, f"tracin.validation_files={data}/train.parquet"))


def test_validation_files_must_be_there_unless_none_are_needed(data: Path):
    with pytest.raises(ConfigError, match="validation_files is not set"):
        check_config(_config(data, "tracin.validation_files=null"))
    with pytest.raises(ConfigError, match=r"tracin\.validation_files"):
        check_config(_config(data, f"tracin.validation_files={data}/none.parquet"))
    assert check_config(_config(data, "tracin.validation_files=null", "tracin.validation.strategy=in_batch"))


def test_prompts_are_compared_whatever_the_files_are_called_and_written_in(data: Path, tmp_path: Path):
    rows = pq.read_table(data / "influence.parquet").rename_columns({"prompt": "question"}).to_pylist()
    for number, name in enumerate(("train", "influence")):
        lines = [json.dumps({"question": row["question"], "data_source": "a", "reward_model": {"ground_truth": number}})
                 for row in rows[number * 10 : number * 10 + 10]]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    files = [f"data.train_files={tmp_path}/train.jsonl", "data.prompt_key=question"]
    assert check_config(_config(data, *files, f"tracin.validation_files={tmp_path}/influence.jsonl")).enable
    with pytest.raises(ValidationOverlapError, match="10 of 10"):
        check_config(_config(data, *files, f"tracin.validation_files={tmp_path}/train.jsonl"))


def test_files_that_cannot_be_read_before_the_run_are_compared_in_it(data: Path):
    assert check_config(_config(data, "tracin.validation_files=s3://bucket/influence.parquet")).enable


def test_nothing_is_asked_of_a_run_without_tracin(data: Path):
    assert not check_config(_config(data, "tracin.enable=false", "actor_rollout_ref.actor.strategy=fsdp")).enable
