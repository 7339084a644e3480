"""The version, the licence and the supported Python and verl are the same wherever they are stated."""

import ast
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _setup() -> dict[str, Any]:
    """The plain arguments of `setup` in setup.py."""
    calls = [node for node in ast.walk(ast.parse(_read("setup.py"))) if isinstance(node, ast.Call)]
    (setup,) = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "setup")
    return {word.arg: word.value.value for word in setup.keywords if word.arg and isinstance(word.value, ast.Constant)}


def test_the_version_is_the_same_everywhere():
    version = _setup()["version"]
    citation = yaml.safe_load(_read("CITATION.cff"))
    released = re.findall(r"^## \[(\d[^]]*)\] - (\d{4}-\d\d-\d\d)$", _read("docs/CHANGELOG.md"), re.MULTILINE)
    assert released[0] == (version, str(citation["date-released"]))
    assert citation["version"] == version
    assert citation["license"] == _setup()["license"]


def test_the_badges_say_what_setup_says():
    shown = {
        name: re.findall(r"<title>(.+): (.+)</title>", _read(f"docs/assets/badge_{name}.svg"))[0]
        for name in re.findall(r"docs/assets/badge_(\w+)\.svg", _read("README.md"))
    }
    (verl,) = re.findall(r'"verl==([\d.]+)"', _read("setup.py"))
    assert shown["license"] == ("license", _setup()["license"])
    assert shown["verl"] == ("verl", verl)
    assert shown["python"][1].split(" | ")[0] == _setup()["python_requires"].removeprefix(">=")
    assert set(shown) == {"license", "python", "verl"}


def test_a_badge_shows_its_title():
    for path in (ROOT / "docs/assets").glob("badge_*.svg"):
        text = path.read_text(encoding="utf-8")
        label, value = re.findall(r"<title>(.+): (.+)</title>", text)[0]
        assert re.findall(r"<text [^>]+>(.+)</text>", text) == [label, value]
        assert f'aria-label="{label}: {value}"' in text
