"""TracIn's settings: every key of the configuration is known, and contradictions are refused with the remedy."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.tracin.method.selection import SelectionSettings
from recipe.tracin.method.validation import ValidationSettings
from recipe.tracin.settings import TracInSettings, read_settings
from verl_ext.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
FILES = "tracin.validation_files=influence.parquet"


def _config(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("fast_dapo", overrides=["+signal=tracin", *overrides])


def test_the_configurations_keys_and_defaults_are_those_of_the_settings():
    node = OmegaConf.to_container(_config().tracin)
    assert node == TracInSettings().model_dump()
    assert read_settings(_config()) == TracInSettings()


def test_a_recipe_includes_it_under_the_name_tracin(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(
        f"defaults:\n  - signal/tracin@tracin\n  - _self_\nhydra:\n  searchpath:\n    - file://{ROOT}/configs\n"
    )
    with initialize_config_dir(str(tmp_path), version_base=None):
        config = compose("mine", overrides=["tracin.enable=true", FILES, "tracin.selection.rule=soft"])
    settings = read_settings(config)
    assert settings.enable
    assert settings.selection.rule == "soft"


def test_without_the_node_tracin_is_off():
    assert read_settings(OmegaConf.create({"data": {}})) == TracInSettings()
    assert not TracInSettings().enable


def test_every_setting_is_read():
    overrides = {
        "enable": True,
        "part": "my_package.MyTracIn",
        "parameters": "layers.*down_proj",
        "preconditioner": "none",
        "validation_files": ["a.parquet", "b.parquet"],
        "check_identity_every": 3,
        "record_scores": False,
        "record_texts": 2,
        "selection": {
            "rule": "top_fraction", "unit": "prompt", "top_fraction": 0.25, "soft_scale": 0.9, "min_keep": 3,
            "baseline": "after", "denominator": "all", "divisibility": "drop", "seed": 5,
        },
        "validation": {
            "strategy": "top", "pool_size": 50, "k": 8, "refresh_every": 2, "rollouts_per_prompt": 4, "cached": True,
            "field": "toxicity", "descending": False, "ties": "random", "min_reward": None, "seed": 6,
        },
    }  # fmt: skip
    settings = read_settings(OmegaConf.create({"tracin": overrides}))
    assert settings.model_dump() == {
        **overrides,
        "validation_files": ("a.parquet", "b.parquet"),
        "one_pass": False,
    }
    defaults = TracInSettings().model_dump()
    for kind in ("selection", "validation"):
        assert all(overrides[kind][name] != defaults[kind][name] for name in defaults[kind])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["tracin.selection.rule=best"], ["tracin.selection.rule must be one of positive", "got 'best'"]),
        (["tracin.selection.top_fraction=0"], ["top_fraction must be a number in (0, 1], got 0"]),
        (["tracin.validation.k=0"], ["tracin.validation.k must be an int >= 1, got 0"]),
        (["tracin.enable=maybe"], ["tracin.enable must be true or false, got 'maybe'"]),
        (["tracin.parameters='('"], ["parameters must be lora or a regular expression", "'('"]),
        (["tracin.parameters=null"], ["parameters must be a text, got None"]),
        (["tracin.selection=null"], ["tracin.selection must be a mapping", "configs/signal/tracin.yaml"]),
        (["+tracin.one_pas=true"], ["tracin.one_pas does not exist; did you mean tracin.one_pass?"]),
        (["+tracin.selection.min_kept=1"], ["tracin.selection.min_kept", "did you mean tracin.selection.min_keep?"]),
        (["+tracin.validation.zzz=1"], ["tracin.validation.zzz does not exist; known: strategy, pool_size"]),
        (["tracin.validation.k=???"], ["tracin cannot be read", "k"]),
    ],
)
def test_errors_name_the_key_the_value_and_the_remedy(overrides: list[str], words: list[str]):
    with pytest.raises(ConfigError) as caught:
        read_settings(_config(*overrides))
    for word in words:
        assert word in str(caught.value)


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        read_settings(_config("tracin.selection.rule=best", "tracin.validation.k=0", "+tracin.x=1"))
    for word in ("rule must be", "k must be", "tracin.x does not exist"):
        assert word in str(caught.value)


def test_a_node_that_is_no_mapping_is_refused():
    with pytest.raises(ConfigError, match="tracin must be a mapping of settings"):
        read_settings(OmegaConf.create({"tracin": True}))


# ------------------------------ one pass ------------------------------


@pytest.mark.parametrize("rule", ["positive", "none"])
@pytest.mark.parametrize("denominator", ["kept", "all"])
def test_one_pass_takes_rules_that_look_at_one_sample(rule: str, denominator: str):
    selection = SelectionSettings(rule=rule, denominator=denominator)
    assert TracInSettings(one_pass=True, selection=selection).one_pass


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"rule": "top_fraction"}, "selection.rule=top_fraction needs those of the whole batch first: use positive"),
        ({"rule": "soft"}, "selection.rule=soft needs"),
        ({"rule": "random"}, "selection.rule=random needs"),
        ({"unit": "prompt"}, "one_pass needs selection.unit=rollout, got prompt"),
        ({"min_keep": 1}, "one_pass needs selection.min_keep=0, got 1"),
        ({"baseline": "after"}, "one_pass needs selection.baseline=before, got after"),
        ({"divisibility": "drop"}, "one_pass needs selection.divisibility=pad, got drop"),
    ],
)
def test_one_pass_refuses_what_needs_all_scores_first(selection: dict, words: str):
    chosen = SelectionSettings(**selection)
    TracInSettings(selection=chosen)
    with pytest.raises(ValueError, match="one_pass") as caught:
        TracInSettings(one_pass=True, selection=chosen)
    assert words in str(caught.value)
    assert "one_pass=false" in str(caught.value)


def test_one_pass_refuses_leave_one_out():
    validation = ValidationSettings(strategy="in_batch")
    TracInSettings(validation=validation)
    with pytest.raises(ValueError, match=r"strategy=in_batch takes it from that batch: .*one_pass=false"):
        TracInSettings(one_pass=True, validation=validation)


def test_validation_prompts_need_files_unless_the_batch_is_its_own_validation():
    with pytest.raises(ConfigError, match="validation_files is not set"):
        read_settings(_config("tracin.enable=true"))
    assert read_settings(_config("tracin.enable=true", "tracin.validation.strategy=in_batch")).enable
    assert read_settings(_config("tracin.enable=true", FILES)).validation_files == "influence.parquet"


def test_the_identity_check_is_every_so_many_steps():
    with pytest.raises(ConfigError, match="check_identity_every must be an int >= 0, got -1"):
        read_settings(_config("tracin.check_identity_every=-1"))
