"""What recipes declare about themselves, and that they are found without being named."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl_ext.core.errors import ConfigError
from verl_ext.launch import recipe as recipe_module
from verl_ext.launch.recipe import (
    Recipe,
    all_figures,
    all_paths,
    all_phases,
    check_settings,
    glossaries,
    own_prefixes,
    recipes,
)
from verl_ext.run.progress import FIGURES, texts
from verl_ext.run.summary import PHASES, join_phases

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("ray", "scipy", "torch", "transfer_queue", "transformers", "verl", "vllm")
MINE = """
from verl_ext.launch.recipe import Recipe
RECIPE = Recipe(name={name!r}, title="Mine", node="mine", check_settings=print, paths=("mine.folder",))
"""


def _discover(folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """What a process that starts in `folder` finds."""
    code = (
        "import sys; from verl_ext.launch.recipe import all_paths, recipes; "
        "print(*[recipe.name for recipe in recipes()], 'mine.folder' in all_paths(), "
        f"sorted(set({HEAVY}) & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def _write(folder: Path, text: str) -> None:
    (folder / "recipe" / "mine").mkdir(parents=True)
    (folder / "recipe" / "mine" / "recipe.py").write_text(text)


# ------------------------------ finding them ------------------------------


def test_every_folder_with_a_command_is_a_recipe():
    assert [recipe.name for recipe in recipes()] == sorted(path.parent.name for path in ROOT.glob("recipe/*/main.py"))


def test_they_are_found_from_any_folder_and_without_the_heavy_libraries(tmp_path: Path):
    found = _discover(tmp_path, ROOT)
    assert found.stdout.split() == [*(recipe.name for recipe in recipes()), "False", "[]"], found.stderr


def test_a_folder_of_somebody_else_is_found_without_a_change_here(tmp_path: Path):
    _write(tmp_path, MINE.format(name="mine"))
    found = _discover(tmp_path, tmp_path, ROOT)
    assert found.stdout.split()[:-2] == sorted([*(recipe.name for recipe in recipes()), "mine"]), found.stderr
    assert found.stdout.split()[-2:] == ["True", "[]"]


@pytest.mark.parametrize("text", [MINE.format(name="other"), "RECIPE = 'mine'", ""])
def test_a_folder_that_says_something_else_is_named(text: str, tmp_path: Path):
    _write(tmp_path, text)
    found = _discover(tmp_path, tmp_path, ROOT)
    assert "expected RECIPE = Recipe(name='mine', …) in " in found.stderr
    assert str(tmp_path) in found.stderr


# ------------------------------ what they say together ------------------------------


def test_names_of_metrics_belong_to_one_recipe_each():
    groups = [group for recipe in recipes() for group in recipe.groups]
    assert len(groups) == len(set(groups)) >= len(recipes())
    assert not {"engine_guard", "timing_s", "training"} & set(groups)
    assert {f"{group}/" for group in groups} < set(own_prefixes())
    assert next(iter(glossaries())) == "All recipes"


def test_a_timer_belongs_to_one_phase():
    timers = [timer for names in all_phases().values() for timer in names]
    assert len(timers) == len(set(timers)) > sum(map(len, PHASES.values()))


def test_timers_of_recipes_join_a_phase_or_make_one_before_the_update():
    joined = join_phases([{"generation": ("b",), "mine": ("c",)}, {"mine": ("d",), "update": ("e",)}])
    assert list(joined) == ["generation", "log-probs", "mine", "update", "weight sync", "checkpoints"]
    assert joined["generation"] == ("gen", "b")
    assert joined["mine"] == ("c", "d")
    assert joined["update"] == (*PHASES["update"], "e")


def test_paths_of_every_recipe_are_made_absolute():
    assert len(all_paths()) == len(set(all_paths())) >= 5


def test_the_bar_shows_the_figures_that_a_step_has():
    figures = {**FIGURES, **all_figures()}
    record = {"critic/score/mean": 0.25, **{metric: 0.5 for metric, _ in all_figures().values()}}
    assert set(texts(record, figures)) == {"reward", *all_figures()}
    assert texts({"val-core/set/acc/mean@1": 0.5, "critic/score/mean": 0.25}, figures) == {
        "val acc": "0.500",
        "reward": "0.25",
    }


def test_settings_of_another_recipe_are_checked_where_they_are_there(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def make(name: str) -> Recipe:
        def check(config: object) -> None:
            asked.append(name)
            if name == "second":
                raise ConfigError("second.size must be positive")

        return Recipe(name=name, title=name, node=name, check_settings=check)

    first, second, third = map(make, ("first", "second", "third"))
    monkeypatch.setattr(recipe_module, "recipes", lambda: (first, second, third))
    check_settings(OmegaConf.create({"first": {}, "verl": {}}), first)
    assert asked == ["first"]
    with pytest.raises(ConfigError, match="must be positive"):
        check_settings(OmegaConf.create({"first": {}, "second": {}}), first)
    assert asked == ["first", "first", "second"]


# ------------------------------ what is shared names none ------------------------------

SHARED = [
    path
    for path in sorted((ROOT / "verl_ext").rglob("*"))
    if path.suffix in (".py", ".js", ".css", ".j2") and (ROOT / "verl_ext/arc/golden") not in path.parents
]


def _imports(path: Path) -> set[str]:
    """First parts of the modules that a file imports, also in functions."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_shared_code_imports_no_recipe():
    files = [path for path in SHARED if path.suffix == ".py"]
    assert len(files) > 100
    assert [str(path) for path in files if {"recipe", "data_preprocess"} & _imports(path)] == []


def test_shared_code_names_no_recipe_and_no_metric_or_setting_of_one():
    words = [rf"\b{recipe.name}\b" for recipe in recipes()]
    # A metric, or a key of the configuration. golden/ is also a folder of ARC's solutions.
    words += [rf"[\"'{{]{group}/" for recipe in recipes() for group in recipe.groups]
    words += [rf"\b(?:config|run)\.{recipe.node}\b|[\"']{recipe.node}\." for recipe in recipes()]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in SHARED
        for line in path.read_text(encoding="utf-8").splitlines()
        # The docs of a command may show a command of a recipe.
        if re.search("|".join(words), line) and "python -m recipe." not in line
    ]
    assert found == []
