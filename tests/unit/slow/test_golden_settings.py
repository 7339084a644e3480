"""Golden redaction's settings: the configuration's keys are those of the settings, and errors name key and remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.golden_redaction.checks import check_config
from recipe.golden_redaction.settings import GoldenSettings, read_settings
from verl_ext.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


def _as_dict(settings: GoldenSettings) -> dict[str, Any]:
    """As in the configuration: nodes as dictionaries, tuples as lists."""
    return json.loads(settings.model_dump_json())


@pytest.fixture(scope="module")
def configs():
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        yield


def _config(*overrides: str) -> DictConfig:
    return compose(overrides=["+signal=golden", *overrides])


@pytest.mark.usefixtures("configs")
def test_the_configurations_keys_and_defaults_are_those_of_the_settings():
    config = _config()
    assert OmegaConf.to_container(config.golden) == _as_dict(GoldenSettings())
    assert read_settings(config) == GoldenSettings()


VOCABULARY = 151_936  # of Qwen3


@pytest.mark.usefixtures("configs")
def test_the_engine_computes_the_log_probs_of_long_texts_in_chunks():
    """Otherwise the logits of 8,192 tokens are in memory at once, and no memory is reserved for them."""
    given = ("data.train_files=tasks.parquet", "actor_rollout_ref.model.path=/nowhere/model")
    rollout = compose("golden_redaction", overrides=[*given]).actor_rollout_ref.rollout
    assert rollout.enable_chunked_prefill
    assert rollout.max_num_batched_tokens * VOCABULARY * 4 < 1.3e9
    off = "actor_rollout_ref.rollout.enable_chunked_prefill=false"
    with pytest.raises(ConfigError, match=r"no memory for the logits of a whole prompt .*enable_chunked_prefill=true"):
        check_config(compose("golden_redaction", overrides=[*given, off]))
    without = ("golden.redaction.decided_above=null", "golden.records.prompt_log_probs=false")
    with pytest.raises(ConfigError, match="found no model with a tokenizer"):  # the next problem
        check_config(compose("golden_redaction", overrides=[*given, off, *without]))


def test_without_the_node_the_defaults_hold():
    assert read_settings(OmegaConf.create({"data": {}})) == GoldenSettings()


def test_every_setting_is_read():
    values = {
        "verifier": "reward",
        "entries_per_update": 8, "sync_every": 2, "visit_ahead": True, "max_new_tokens": 64, "num_prompts": 3,
        "movement_tolerance": 0.01,
        "reference": False, "attention_dtype": "bf16", "tensor_statistics_every": 0,
        "redaction": {
            "initial_k": 3, "grow_above": 0.9, "shrink_below": 0.1, "patience": 2, "growth": 2.0,
            "decided_above": None, "retire_after": None, "check_after": 3, "order": "random", "seed": 4,
        },
        "credit": {"num_next_tokens": 4, "max_actions": 3, "rollouts_per_action": 8, "min_labels": 2, "alpha": 0.1},
        "targets": {
            "mass_from_others": 0.25, "balanced": False, "steps": 3, "aim": 0.8, "scale_lr": False, "reduction": "sum",
        },
        "prompt": {"grid": "spaced", "test_inputs": True},
        "limits": {"max_cells": 100, "max_prompt_tokens": 200, "max_golden_tokens": 300},
        "records": {
            "enable": False, "outputs": False, "prompt_log_probs": False, "warm_start": "entries.jsonl",
            "max_staleness": None, "max_log_prob_gap": None,
        },
        "reward": {"test_pairs": False, "fresh_pairs": "fresh.jsonl", "num_fresh": 2},
        "sandbox": {
            "executor": "sandbox_fusion", "url": "http://host/run_code", "workers": 3, "cpu_seconds": 1.0,
            "wall_seconds": 5.0, "memory_mib": 64, "require": "minimum",
        },
        "probe": {"shares": [0.1, 1], "rollouts": 2},
    }  # fmt: skip
    settings = read_settings(OmegaConf.create({"golden": values}))
    assert _as_dict(settings) == values
    assert settings.probe.shares == (0.1, 1)
    defaults = _as_dict(GoldenSettings())
    for name, value in values.items():
        if isinstance(value, dict):
            assert all(value[key] != defaults[name][key] for key in defaults[name] if key != "require")
        else:
            assert value != defaults[name]


@pytest.mark.usefixtures("configs")
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("golden.sync_every=0", "golden.sync_every must be an int >= 1, got 0"),
        ("golden.movement_tolerance=-1", "golden.movement_tolerance must be a number >= 0, got -1"),
        ("golden.reference=null", "golden.reference must be true or false, got None"),
        ("golden.attention_dtype=fp8", "golden.attention_dtype must be one of bf16 or null, got 'fp8'"),
        ("golden.tensor_statistics_every=-1", "golden.tensor_statistics_every must be an int >= 0, got -1"),
        ("golden.tensor_statistics_every=true", "golden.tensor_statistics_every must be an int >= 0, got True"),
        ("golden.redaction.growth=0.5", "golden.redaction.growth must be a number >= 1, got 0.5"),
        ("golden.credit.alpha=2", "golden.credit.alpha must be a number in (0, 1), got 2"),
        ("golden.targets.reduction=mean", "golden.targets.reduction must be one of state_mean"),
        ("golden.prompt.grid=dense", "golden.prompt.grid must be one of compact, spaced, got 'dense'"),
        ("golden.limits.max_cells=0", "golden.limits.max_cells must be an int >= 1 or null, got 0"),
        ("golden.records.enable=maybe", "golden.records.enable must be true or false, got 'maybe'"),
        ("golden.records.outputs=1", "golden.records.outputs must be true or false, got 1"),
        ("golden.records.prompt_log_probs=1", "golden.records.prompt_log_probs must be true or false, got 1"),
        ("golden.records.warm_start=3", "golden.records.warm_start must be a text or null, got 3"),
        ("golden.records.max_staleness=-1", "golden.records.max_staleness must be an int >= 0 or null, got -1"),
        ("golden.records.max_log_prob_gap=-1", "golden.records.max_log_prob_gap must be a number >= 0 or null, got -1"),
        (
            "golden.sandbox.executor=docker",
            "golden.sandbox.executor must be one of local, sandbox_fusion, got 'docker'",
        ),
        ("golden.sandbox.executor=sandbox_fusion", "needs the url of a server's run_code"),
        ("golden.sandbox.url=http://host", "has no effect with executor=local"),
        ("golden.sandbox.workers=0", "golden.sandbox.workers must be an int >= 1 or null, got 0"),
        ("golden.sandbox.require=some", "golden.sandbox.require must be one of minimum, full, got 'some'"),
        ("golden.sandbox.cpu_seconds=0", "golden.sandbox.cpu_seconds must be a number > 0, got 0"),
        ("golden.sandbox.wall_seconds=x", "golden.sandbox.wall_seconds must be a number > 0, got 'x'"),
        ("golden.sandbox.memory_mib=1.5", "golden.sandbox.memory_mib must be an int >= 1, got 1.5"),
        ("golden.probe.shares=[]", "golden.probe.shares must be a list, each a number in (0, 1], got []"),
        ("golden.probe.shares=1", "golden.probe.shares must be a list, each a number in (0, 1], got 1"),
        ("golden.probe.shares=[0.5,0]", "golden.probe.shares must be a list, each a number in (0, 1], got 0"),
        ("golden.probe.shares=[1.5]", "golden.probe.shares must be a list, each a number in (0, 1], got 1.5"),
        ("golden.probe.shares=[true]", "golden.probe.shares must be a list, each a number in (0, 1], got True"),
        ("golden.probe.shares=[1,0.5]", "golden.probe: shares must be strictly increasing, got [1.0, 0.5]"),
        ("golden.probe.shares=[0.5,0.5]", "golden.probe: shares must be strictly increasing, got [0.5, 0.5]"),
        ("golden.probe.rollouts=0", "golden.probe.rollouts must be an int >= 1, got 0"),
        ("golden.credit=null", "golden.credit must be a mapping of settings, got None: see configs/signal/golden.yaml"),
        ("+golden.entries_per_updat=1", "did you mean golden.entries_per_update?"),
        ("+golden.credit.zzz=1", "golden.credit.zzz does not exist; known: num_next_tokens"),
        ("golden.sync_every=???", "golden cannot be read"),
    ],
)
def test_errors_name_the_key_the_value_and_the_remedy(override: str, words: str):
    with pytest.raises(ConfigError) as caught:
        read_settings(_config(override))
    assert words in str(caught.value)


@pytest.mark.usefixtures("configs")
def test_a_servers_isolation_cannot_be_promised():
    server = ("golden.sandbox.executor=sandbox_fusion", "golden.sandbox.url=http://host:8080/run_code")
    assert read_settings(_config(*server)).sandbox.url == "http://host:8080/run_code"
    assert read_settings(_config("golden.sandbox.require=full")).sandbox.require == "full"
    with pytest.raises(ConfigError, match="a server cannot guarantee require=full"):
        read_settings(_config(*server, "golden.sandbox.require=full"))


@pytest.mark.usefixtures("configs")
def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        read_settings(_config("golden.sync_every=0", "golden.credit.alpha=2", "+golden.x=1"))
    for words in ("sync_every must", "alpha must", "golden.x does not exist"):
        assert words in str(caught.value)


def test_a_node_that_is_no_mapping_is_refused():
    with pytest.raises(ConfigError, match="golden must be a mapping of settings"):
        read_settings(OmegaConf.create({"golden": True}))
