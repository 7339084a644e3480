"""Settings as models: errors in the configuration's words, and YAML files that are written from them."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from omegaconf import OmegaConf
from pydantic import Field, ValidationError

from verl_ext.core.errors import ConfigError
from verl_ext.core.settings import Settings, describe, read_node
from verl_ext.core.settings_file import SettingsFile
from verl_ext.launch.settings_files import ROOT, settings_files
from verl_ext.serving.settings import read_guards


class Inner(Settings):
    """A node in a node."""

    rate: float = Field(default=0.5, gt=0, le=1)
    """Share that is kept."""


class Outer(Settings):
    """A node of a configuration."""

    name: Literal["fast", "slow"] = "fast"
    """fast: at once.
    slow: later."""

    count: int | None = Field(default=3, ge=1)
    """How many. null: all."""

    shares: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.5, 1.0)
    """Of the whole."""

    inner: Inner = Inner()

    hidden: int = Field(default=0, exclude=True)
    """Not for a user."""


def _read(**values: object) -> Outer:
    return read_node(OmegaConf.create({"outer": values}), "outer", Outer, "configs/outer.yaml")


def test_what_is_given_is_read_and_lists_become_tuples():
    settings = _read(name="slow", count=None, shares=[1], inner={"rate": 1})
    assert settings == Outer(name="slow", count=None, shares=(1.0,), inner=Inner(rate=1.0))
    assert read_node(OmegaConf.create({}), "outer", Outer, "configs/outer.yaml") == Outer()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "fats"}, "outer.name must be one of fast, slow, got 'fats': the default is fast"),
        ({"count": 0}, "outer.count must be an int >= 1 or null, got 0: the default is 3"),
        ({"count": True}, "outer.count must be an int >= 1 or null, got True"),
        ({"count": "3"}, "outer.count must be an int >= 1 or null, got '3'"),
        ({"shares": [0.5, 2]}, "outer.shares must be a list, each a number in (0, 1], got 2"),
        ({"inner": {"rate": 0}}, "outer.inner.rate must be a number in (0, 1], got 0"),
        ({"inner": {"rat": 1}}, "outer.inner.rat does not exist; did you mean outer.inner.rate?"),
        ({"zzz": 1}, "outer.zzz does not exist; known: name, count, shares, inner"),
        ({"inner": 3}, "outer.inner must be a mapping of settings, got 3: see configs/outer.yaml"),
        ({"count": "???"}, "outer cannot be read"),
    ],
)
def test_errors_name_the_key_the_value_and_what_is_expected(values: dict, message: str):
    with pytest.raises(ConfigError) as caught:
        _read(**values)
    assert message in str(caught.value)


def test_all_problems_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        _read(name="x", count=0, inner={"rate": 7})
    assert str(caught.value).count("\n  - ") == 3


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Outer().count = 4


def test_a_field_is_described_in_words():
    words = {name: describe(field) for name, field in Outer.model_fields.items()}
    assert words["name"] == "one of fast, slow"
    assert words["count"] == "an int >= 1 or null"


def test_the_file_has_every_key_its_default_and_its_description():
    text = SettingsFile("outer.yaml", "outer", Outer, "For tests.").render()
    assert yaml.safe_load(text) == {"name": "fast", "count": 3, "shares": [0.5, 1.0], "inner": {"rate": 0.5}}
    assert text.startswith("# @package outer\n# For tests.\n\n# fast: at once.\n# slow: later.\nname: fast\n")
    assert "\ninner:\n  # Share that is kept.\n  rate: 0.5\n" in text


def test_the_committed_files_are_what_the_settings_say():
    files = settings_files()
    assert {file.path for file in files} >= {"signal/curriculum.yaml", "signal/golden.yaml", "signal/tracin.yaml"}
    for file in files:
        committed = Path(ROOT / "configs" / file.path).read_text(encoding="utf-8")
        assert committed == file.render(), f"configs/{file.path}: run python -m verl_ext.launch.settings_files"


def test_every_setting_has_a_description():
    def undescribed(kind: type[Settings]) -> list[str]:
        found = []
        for name, field in kind.model_fields.items():
            default = field.get_default(call_default_factory=True)
            if isinstance(default, Settings):
                found += undescribed(type(default))
            elif not field.description:
                found.append(f"{kind.__name__}.{name}")
        return found

    assert [name for file in settings_files() for name in undescribed(file.kind)] == []


def test_guards_name_what_is_wrong_with_them():
    config = OmegaConf.create({"watchdog": {"hang_timeout": 9}, "engine_guard": {"max_probs_diff": None}})
    with pytest.raises(
        ConfigError, match=r"watchdog.hang_timeout does not exist; did you mean watchdog.hang_timeout_s"
    ):
        read_guards(config)
    del config.watchdog
    guards = read_guards(config)
    assert guards.engine_guard.max_probs_diff is None
    assert guards.watchdog.interval_s == 5
