"""What TracIn cannot work with is refused before Ray starts, with what to change."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from peft import LoraConfig
from transformers import MixtralConfig, Qwen2Config, Qwen2ForCausalLM, Qwen3MoeConfig

from data_preprocess.arithmetic import PoolSettings, build_rows
from recipe.tracin.checks import check_config
from recipe.tracin.method.disjoint import ValidationOverlapError
from recipe.tracin.recipe import dry_run_rows
from verl_ext.core.errors import ConfigError
from verl_ext.data.schema import write_parquet
from verl_ext.launch.estimate import num_lora_parameters, size

ROOT = Path(__file__).resolve().parents[3]
SIZES: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


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
        ("actor_rollout_ref.model.lora_rank=0", "the model has no LoRA"),
        ("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2", "whole sequences"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov", "mixes the samples"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=sapo", "set actor_rollout_ref.actor.loss_agg_mode=seq-mean"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean", "divides by the rows of each micro-batch"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=dro", "a weight on the advantage does not affect"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=my_own", "is not known to add up"),
        ("actor_rollout_ref.actor.fsdp_config.dtype=float16", r"fsdp_config.dtype=bfloat16, got float16"),
        ("actor_rollout_ref.actor.fsdp_config.model_dtype=fp16", r"fsdp_config.model_dtype=bfloat16, got fp16"),
        (
            "++actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype: fp16}",
            r"mixed_precision.param_dtype=bfloat16",
        ),
        ("actor_rollout_ref.actor.shuffle=true", "shuffle"),
        ("actor_rollout_ref.rollout.calculate_log_probs=false", "calculate_log_probs=true"),
        ("distillation.enabled=true", "distillation"),
    ],
)
def test_what_has_no_exact_scores_is_refused(data: Path, override: str, message: str):
    with pytest.raises(ConfigError, match=message):
        check_config(_config(data, override))


def test_all_problems_are_named_at_once(data: Path):
    config = _config(data, "actor_rollout_ref.model.lora_rank=0", "actor_rollout_ref.actor.shuffle=true")
    with pytest.raises(ConfigError, match=r"(?s)no LoRA.*shuffle"):
        check_config(config)


def test_batch_normalised_weights_inside_the_loss_are_refused(data: Path):
    correction = "actor_rollout_ref.actor.policy_loss.rollout_correction"
    bypass = ["actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode"]
    assert check_config(_config(data, *bypass)).enable
    with pytest.raises(ConfigError, match="rollout_is_batch_normalize=false"):
        check_config(_config(data, *bypass, f"++{correction}.rollout_is_batch_normalize=true"))


@pytest.mark.parametrize(
    "estimator",
    ["gae", "posterior", "reinforce_plus_plus", "opo", "grpo_passk", "my_own"],
)
def test_centring_again_needs_one_advantage_a_sample_that_is_centred_by_group(data: Path, estimator: str):
    config = _config(data, f"algorithm.adv_estimator={estimator}", "tracin.selection.baseline=after")
    with pytest.raises(ConfigError, match="use baseline=before, or one of grpo"):
        check_config(config)
    assert check_config(_config(data, f"algorithm.adv_estimator={estimator}")).enable


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The option that names a model folder with only a configuration."""
    folder = tmp_path_factory.mktemp("model")
    Qwen2Config(**SIZES).save_pretrained(folder)
    return f"actor_rollout_ref.model.path={folder}"


def test_dropout_of_the_model_is_refused(data: Path, model: str):
    assert check_config(_config(data, model)).enable
    with pytest.raises(ConfigError, match=r"self_attn\.attention_dropout drops 10%"):
        check_config(_config(data, model, "+actor_rollout_ref.model.override_config.attention_dropout=0.1"))


def test_an_adapter_with_more_than_linear_factors_is_scored_in_part(data: Path, model: str, tmp_path: Path):
    lora = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], modules_to_save=["lm_head"])
    lora.save_pretrained(tmp_path)
    adapter = [model, f"actor_rollout_ref.model.lora_adapter_path={tmp_path}", "actor_rollout_ref.model.lora_rank=0"]
    whole, part = _config(data, model), _config(data, *adapter)
    assert check_config(part).enable
    texts = [dict(dry_run_rows(each))["influence"] for each in (whole, part)]
    assert texts[0] == "scores cover all trained parameters"
    assert re.match(r"scores cover \d?\d\.\d% of the trained parameters", texts[1])
    lora.lora_dropout = 0.05
    lora.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="set lora_dropout to 0"):
        check_config(_config(data, *adapter))


def test_one_pass_takes_mini_batches_but_one_epoch(data: Path):
    one_pass = ["tracin.one_pass=true", "actor_rollout_ref.actor.ppo_mini_batch_size=16"]
    assert check_config(_config(data, *one_pass)).one_pass
    assert not check_config(_config(data, "actor_rollout_ref.actor.ppo_epochs=2")).one_pass
    with pytest.raises(ConfigError, match=r"ppo_epochs=2: set it to 1, or tracin\.one_pass=false"):
        check_config(_config(data, *one_pass, "actor_rollout_ref.actor.ppo_epochs=2"))


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


@pytest.mark.parametrize(
    "model_config",
    [
        Qwen3MoeConfig(num_experts=4, moe_intermediate_size=8, head_dim=8, num_experts_per_tok=2, **SIZES),
        MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **SIZES),
    ],
    ids=["Qwen3-MoE", "Mixtral"],
)
def test_of_a_mixture_attention_is_scored_and_experts_are_refused(data: Path, model_config, tmp_path: Path):
    model_config.save_pretrained(tmp_path)
    model = f"actor_rollout_ref.model.path={tmp_path}"
    with pytest.raises(ConfigError, match=r"experts or the router of a mixture.*'self_attn\\..*lora_'"):
        check_config(_config(data, model))
    attention = r"tracin.parameters='self_attn\..*lora_'"
    part = _config(data, model, attention)
    assert check_config(part).enable
    assert re.search(r"over \d+\.\d% of the trained", dict(dry_run_rows(part))["influence"])
    only = "actor_rollout_ref.model.target_modules=[q_proj,k_proj,v_proj,o_proj]"
    whole = _config(data, model, only)
    assert check_config(whole).enable
    rows = dict(dry_run_rows(whole))
    assert rows["influence"] == "scores cover all trained parameters"
    rank = whole.actor_rollout_ref.model.lora_rank
    factors = num_lora_parameters(model_config, rank, ["q_proj", "k_proj", "v_proj", "o_proj"])
    assert rows[""].startswith(f"validation gradient: {size(4 * factors)} per rank")
    one_pass = ["tracin.one_pass=true", "actor_rollout_ref.actor.ppo_mini_batch_size=${data.train_batch_size}"]
    assert check_config(_config(data, model, only, *one_pass)).one_pass
    with pytest.raises(
        ConfigError, match=r"one_pass=true updates with the gradients that are scored.*% of the trained"
    ):
        check_config(_config(data, model, attention, *one_pass))


def test_the_gradient_of_whole_weights_is_sharded_and_that_of_lora_is_not(data: Path, tmp_path: Path):
    model_config = Qwen2Config(**SIZES)
    model_config.save_pretrained(tmp_path)
    ranks = [f"actor_rollout_ref.model.path={tmp_path}", "trainer.n_gpus_per_node=4"]
    full = ["actor_rollout_ref.model.lora_rank=0", "tracin.parameters=model.layers"]
    whole_weights = sum(
        weight.numel() for name, weight in Qwen2ForCausalLM(model_config).named_parameters() if "proj" in name
    )
    for overrides, expected in ((full, f"{size(whole_weights)} per rank"), ([], "one layer's at a time")):
        row = dict(dry_run_rows(_config(data, *ranks, *overrides)))[""]
        assert (expected in row) == bool(overrides), row


@pytest.mark.parametrize(
    ("overrides", "got"),
    [
        (["actor_rollout_ref.actor.optim.optimizer=SGD"], "torch.optim.SGD"),
        (
            [
                "actor_rollout_ref.actor.optim.optimizer=AdamW8bit",
                "actor_rollout_ref.actor.optim.optimizer_impl=bitsandbytes.optim",
            ],
            "bitsandbytes.optim.AdamW8bit",
        ),
    ],
)
def test_the_optimizers_direction_needs_adam(data: Path, overrides: list[str], got: str):
    with pytest.raises(ConfigError, match=rf"torch\.optim\.Adam, got {re.escape(got)}: set tracin.preconditioner=none"):
        check_config(_config(data, *overrides, "tracin.preconditioner=adam"))
    assert check_config(_config(data, *overrides, "tracin.preconditioner=none")).enable
