"""The tutorial notebooks as they are kept: without outputs, readable, with links that lead somewhere.

tests/unit/slow/test_tutorials.py runs them.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from verl_ext.launch.recipe import recipes

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def _cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_every_recipe_has_a_tutorial_that_the_overview_names():
    overview = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in NOTEBOOKS} == {recipe.name for recipe in recipes()}
    assert all(f"]({path.name})" in overview for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path):
    code = [cell for cell in _cells(path) if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_its_links_lead_somewhere(path: Path):
    cells = _cells(path)
    lines = ["".join(cell["source"]).count("\n") + 1 for cell in cells if cell["cell_type"] == "code"]
    assert sum(lines) < 260
    assert max(lines) < 90
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose)]
    assert len(links) >= 2
    assert [link for link in links if ":" not in link and not (FOLDER / link).is_file()] == []
    assert prose.startswith("# ")
    assert "What this does not show" in prose
