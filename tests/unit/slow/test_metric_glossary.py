"""Each of our metrics has an entry that says what it means, and every entry belongs to a metric."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recipe.fast_dapo.curriculum.metrics import METRICS as CURRICULUM
from recipe.golden_redaction.loss.tensor_statistics import NAMES, statistics_metrics
from recipe.golden_redaction.method.movement import Movement, movement_metrics
from recipe.tracin.method.selection import SelectionSettings, select, selection_metrics
from verl_ext.core.metric_glossary import find_entry
from verl_ext.launch.recipe import glossaries, own_prefixes, recipes, undocumented
from verl_ext.run.run_totals import RunTotals

ROOT = Path(__file__).resolve().parents[3]
CODE = [path for folder in ("recipe", "verl_ext") for path in sorted((ROOT / folder).rglob("*.py"))]
# Pages read metrics and the glossaries describe them; neither logs one.
LOGGING = [
    path
    for path in CODE
    if path.name not in ("metric_glossary.py", "recipe.py")
    and not {"report", "pages"} & set(path.relative_to(ROOT).parts)
]
TIMERS = ("marked_timer", "_timed", "timed", "_timed_within")
# Names that cannot be found by reading the code's text; the runs of tests/integration find them (`Lab.step`).
BUILT_ELSEWHERE = {
    *(f"timing_s/{name}" for name in ("step", "save_checkpoint", "testing", "engine_before", "engine_after")),
    # verl's own, and what `SignalTrainer` makes of its `gen`.
    *(f"timing_s/{name}" for name in ("collect", "gen", "reward", "old_log_prob", "ref", "values", "adv")),
    *(f"timing_s/{name}" for name in ("update_critic", "update_actor")),
    *(f"tracin/validation_{name}" for name in ("gradient_norm", "half_agreement")),
    "tracin/preconditioned",
}
# Literals that prefix all names of a mapping.
FRAGMENTS = {"timing_s/{}", "tracin/{}", "curriculum/{}", "curriculum/total/{}", "training/total/{}",
             "curriculum/total/{}_{}", "golden/movement/{}"}  # fmt: skip


def _text(node: ast.AST) -> str:
    """The text of a literal; values inserted by an f-string are written `{}`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    return ""


def _names_in(path: Path) -> Iterator[str]:
    """Every metric that a file names in full: literals that begin as ours do, and the names of timers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        text = _text(node) if node not in inside else ""
        # A bare prefix, such as `f"golden/movement/{where}"`, is completed elsewhere in the file.
        if re.fullmatch(r"[\w{}/@]+", text) and text.startswith(own_prefixes()) and not text.endswith("/"):
            yield text
        if isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in TIMERS and _text(node.args[0]):
                yield f"timing_s/{_text(node.args[0])}"


def _logged() -> set[str]:
    """The metrics that the code names, and those of pure functions that put names together."""
    names = {name for path in LOGGING for name in _names_in(path)}
    moved = Movement(
        kinds=("intended", None), moved=np.array([1.0, np.nan]), asked=np.array([2.0, np.nan]),
        drift=np.array([np.nan, 0.1]), others=0.1,
    )  # fmt: skip
    names |= set(movement_metrics([moved], "trainer"))
    names |= set(statistics_metrics({"weight": dict.fromkeys(NAMES, 1.0)}))
    names |= set(RunTotals().metrics())
    scores = np.array([1.0, -1.0])
    names |= set(selection_metrics(scores, select(scores, SelectionSettings(), 1), np.array([1.0, 0.0])))
    return names


def _belong_together(name: str, entry: str) -> bool:
    """Whether a name in the code, with `{}` for inserted values, can be that of an entry."""
    if "{}" not in name:
        return find_entry(name, {entry: ("", "")}) is not None
    return re.fullmatch(re.escape(name).replace(r"\{\}", r"(?:\w+|\{\w+\})"), entry) is not None


def _entries() -> list[str]:
    return [entry for glossary in glossaries().values() for entry in glossary]


def test_every_metric_in_the_code_has_an_entry():
    names = {name for name in _logged() if name not in FRAGMENTS}
    assert len(names) > 100
    assert [name for name in sorted(names) if not any(_belong_together(name, entry) for entry in _entries())] == []


def test_every_entry_belongs_to_a_metric():
    names = {name for name in _logged() if name not in FRAGMENTS}
    # The curriculum's own test compares the controller's metrics with its entries, both ways.
    others = [entry for entry in _entries() if entry not in CURRICULUM]
    unused = {entry for entry in others if not any(_belong_together(name, entry) for name in names)}
    assert unused - BUILT_ELSEWHERE == set()


def test_every_entry_has_a_unit_and_a_sentence():
    for glossary in glossaries().values():
        for name, (unit, meaning) in glossary.items():
            assert all(text.strip() for text in (unit, meaning)), name
            assert name.startswith(own_prefixes())


def test_no_metric_has_two_entries():
    assert len(_entries()) == len(set(_entries()))


@pytest.mark.parametrize("name", ["golden/k/new", "tracin/score", "timing_s/nap", "engine_guard/x/y/z"])
def test_a_metric_without_an_entry_is_found(name: str):
    assert undocumented([name, "critic/score/mean", "golden/sandbox/ok"]) == [name]


ROWS = re.compile(r"^\| `((?:" + "|".join(own_prefixes()) + r")[^`]*)`", re.MULTILINE)


@pytest.mark.parametrize("recipe", [recipe.name for recipe in recipes()])
def test_the_recipes_readme_names_metrics_that_exist(recipe: str):
    rows = ROWS.findall((ROOT / "recipe" / recipe / "README.md").read_text(encoding="utf-8"))
    assert len(rows) >= 8
    for row in rows:
        for name in _expanded(row):
            assert name in _entries() or not undocumented([name]), f"{row} is in no glossary"


def _expanded(name: str) -> list[str]:
    """`a/{b,c}` is `a/b` and `a/c`; a `*` is any part of a name."""
    choice = re.search(r"\{(\w+(?:,\w+)+)\}", name)
    if choice is None:
        return [name.replace("*", "engine" if "movement" in name else "mean")]
    return [full for part in choice[1].split(",") for full in _expanded(name.replace(choice[0], part, 1))]


@pytest.mark.parametrize("recipe", ["fast_dapo"])
def test_where_a_readme_repeats_an_entry_it_says_the_same(recipe: str):
    text = (ROOT / "recipe" / recipe / "README.md").read_text(encoding="utf-8")
    repeated = [name for name in ROWS.findall(text) if name in CURRICULUM]
    assert len(repeated) >= 10
    for name in repeated:
        unit, meaning = CURRICULUM[name]
        assert f"| `{name}` | {unit} | {meaning} |" in text
