"""What the docs quote and show is what the code says and does."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from curriculum_play import add, make_settings, play_round
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from verl_ext.core.errors import ConfigError
from verl_ext.launch.recipe import recipes

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "docs" / "site"
ELLIPSIS = "…"


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


# ------------------------------ troubleshooting ------------------------------


def _literals(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literals(part) or ELLIPSIS for part in node.values)
    return ""


def _messages() -> set[str]:
    """Every text in the code, with `…` for what it inserts."""
    texts = set()
    for folder in ("recipe", "verl_ext", "data_preprocess"):
        for path in (ROOT / folder).rglob("*.py"):
            texts |= {_literals(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))}
    return {text for text in texts if len(text) > 10}


QUOTED = re.findall(r"^```text\n(.+?)\n```$", _page("troubleshooting.md"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def messages() -> set[str]:
    return _messages()


@pytest.mark.parametrize("quoted", QUOTED)
def test_every_quoted_message_is_in_the_code(quoted: str, messages: set[str]):
    parts = [part for part in quoted.split(ELLIPSIS) if part.strip()]
    pattern = re.compile(".*?".join(map(re.escape, parts)), re.DOTALL)
    assert sum(len(part) for part in parts) > 12
    assert any(pattern.search(message) for message in messages), quoted


def test_there_are_messages_to_look_for():
    assert len(QUOTED) >= 17


# ------------------------------ concepts ------------------------------


def test_every_file_of_a_recipe_is_in_the_table_of_what_a_run_leaves_behind():
    table = _page("concepts.md").partition("## Files of a run")[2]
    files = [name for recipe in recipes() for name in recipe.files]
    assert len(files) >= 5
    assert [name for name in files if f"`{name}`" not in table] == []


# ------------------------------ extending ------------------------------

EXAMPLES = dict(
    re.findall(r'^```(?:python|yaml) title="([\w/.]+)"\n(.+?)^```$', _page("extending.md"), re.MULTILINE | re.DOTALL)
)


THE_TEST = "tests/unit/slow/test_half_first.py"
A_RECIPE = {"configs/mine.yaml", *(f"recipe/mine/{name}.py" for name in ("recipe", "trainer", "pages", "main"))}


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A folder with the examples written out."""
    for name, code in EXAMPLES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    yield tmp_path
    # A test that runs its own process has not loaded verl in this one.
    base = sys.modules.get("verl.trainer.ppo.v1.trainer_base")
    for name in ("half_first", "mine"):
        if base is not None:
            base.TRAINER_REGISTRY.pop(name, None)


def _load(folder: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"mine_{name}", folder / "recipe" / "mine" / f"{name}.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_are_there():
    pieces = {f"recipe/mine/{name}.py" for name in ("brief", "uncut", "half_first")}
    assert set(EXAMPLES) == pieces | A_RECIPE | {THE_TEST}


def test_verl_finds_the_reward_and_hands_it_its_settings(mine: Path):
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {"path": str(mine / "recipe/mine/brief.py"), "name": "compute_score", "reward_kwargs": {"price": 0.1}}
    reward = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": function}}))
    exact = reward("arithmetic", "42<|endoftext|>", "42")
    assert exact == {"score": 1.0, "acc": 1.0, "spare": 0}
    assert reward("arithmetic", "42 is it", "42")["score"] == pytest.approx(0.4)
    assert reward("arithmetic", "41", "42") == {"score": 0.0, "acc": 0.0, "spare": 0}


def test_the_selector_leaves_cut_rollouts_out_of_the_update(mine: Path, monkeypatch: pytest.MonkeyPatch):
    import torch

    from verl_ext.serving import data_plane
    from verl_ext.trainer.parts import Selector

    module = _load(mine, "uncut")
    assert Selector in module.Uncut.__mro__
    stored = data_plane.as_columns({"advantages": [torch.ones(9)]})
    written: dict[str, Any] = {}
    monkeypatch.setattr(data_plane, "read", lambda keys, partition, columns: stored)
    monkeypatch.setattr(data_plane, "write", lambda keys, partition, columns: written.update({keys[0]: columns}))
    selector = module.Uncut(SimpleNamespace(config=SimpleNamespace(data=SimpleNamespace(max_response_length=9))))
    tags = [{"response_len": 9, "is_padding": True}, {"response_len": 9}, {"response_len": 8}, {"response_len": 7}]
    batch = data_plane.KVBatchMeta(partition_id="train", keys=["padding", "cut", "a", "b"], tags=tags)
    assert selector.select(batch) is batch
    assert list(written) == ["cut"]
    assert not written["cut"]["advantages"].values().any()
    assert selector.metrics() == {"uncut/cut_share": 0.25}


def test_the_controller_prefers_prompts_near_one_half_and_loses_none(mine: Path):
    from recipe.fast_dapo.collector import Curriculum

    module = _load(mine, "half_first")
    curriculum = object.__new__(module.HalfFirstCurriculum)
    assert isinstance(curriculum, Curriculum)
    assert module.HalfFirstTrainer.in_mode("sync").new_collector.__qualname__.startswith("HalfFirst")
    curriculum.settings = SimpleNamespace(
        controller=make_settings(n=4, n_continue=1, train_batch_size=1, gen_batch_size=3)
    )
    controller = curriculum.new_controller()
    add(controller, "rare", "even", "frequent")
    play_round(controller, {"rare": 1, "even": 2, "frequent": 3})
    play_round(controller)  # every continuation passes: 2, 3 and 4 of 5
    order = [controller.get_training_data()[0].prompt.uid for _ in range(3)]
    assert order == ["rare", "even", "frequent"]
    assert controller.metrics()["curriculum/unaccounted_rollouts"] == 0
    add(controller, "late", "half")
    play_round(controller, {"late": 3, "half": 2})
    play_round(controller)
    assert controller.get_training_data()[0].prompt.uid == "half"


def test_the_controllers_own_test_passes(mine: Path):
    done = _python(mine, "-m", "pytest", "-q", "-p", "no:cacheprovider", THE_TEST)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_table_has_the_whole_interface_of_the_controller():
    from recipe.fast_dapo.data_controller import DataController

    table = _page("extending.md").partition("### The interface of `DataController`")[2].partition("TrainingGroup")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)", cell)}
    assert named == {name for name in vars(DataController) if not name.startswith("_")}


def _with_assets(folder: Path) -> list[str]:
    """This checkout's configurations next to the example's, and options that name a model and two rows of data."""
    from stand_ins import make_data, make_model

    for entry in (ROOT / "configs").iterdir():
        (folder / "configs" / entry.name).symlink_to(entry)
    make_model(folder / "model")
    for place, name in enumerate(("train", "val")):
        make_data(folder / f"{name}.parquet", [place])
    return [
        "actor_rollout_ref.model.path=model",
        "data.train_files=train.parquet",
        "data.val_files=val.parquet",
        "data.train_batch_size=1",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1",
    ]


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_recipe_is_short():
    lines = [line for name in A_RECIPE if "pages" not in name for line in EXAMPLES[name].splitlines()]
    assert len([line for line in lines if line.strip()]) <= 60


def test_the_recipes_dry_run_composes_checks_and_counts(mine: Path):
    options = ["+backend=cpu", "dry_run=true", *_with_assets(mine)]
    done = _python(mine, "-m", "recipe.mine.main", *options)
    assert done.returncode == 0, done.stderr
    assert "Brief answers" in done.stdout
    assert "1 prompts x 8 rollouts = 8 rollouts" in done.stdout


def test_the_recipe_refuses_a_price_that_makes_no_sense(mine: Path):
    recipe = _load(mine, "recipe").RECIPE
    recipe.check_settings(OmegaConf.create({"mine": {"price": 0.5}}))
    with pytest.raises(ConfigError, match=r"expected mine.price from 0 to below 1, got 2: try 0.02"):
        recipe.check_settings(OmegaConf.create({"mine": {"price": 2}}))


def test_pages_glossary_and_submission_find_the_recipe(mine: Path):
    folder = mine / "run"
    folder.mkdir()
    records = [{"training/global_step": step, "mine/length_share": 0.95, "actor/entropy": 1.0} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    code = """
import json
from pathlib import Path
from verl_ext.launch.recipe import all_paths, glossaries, undocumented
from verl_ext.report.blocks import unpack
from verl_ext.report.run import RunSource
source = RunSource(Path("run"))
source.refresh()
index = unpack(source.page().blocks["index"])
print(json.dumps({
    "meaning": glossaries()["Brief answers"]["mine/length_share"],
    "unknown": undocumented(["mine/length_share", "mine/other", "actor/entropy"]),
    "groups": list(index["groups"]),
    "headlines": index["headlines"],
    "warnings": [one["title"] for one in index["warnings"]],
    "has_path": "reward.custom_reward_function.path" in all_paths(),
}))
"""
    done = _python(mine, "-c", code)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("meaning")[0] == "fraction"
    assert found == {
        "unknown": ["mine/other"],
        "groups": ["mine", "actor", "training"],
        "headlines": ["mine/length_share", "actor/entropy"],
        "warnings": ["answers at the limit"],
        "has_path": True,
    }


def test_the_recipes_trainer_says_how_long_the_answers_are(mine: Path):
    from verl_ext.serving.data_plane import KVBatchMeta

    trainer = object.__new__(_load(mine, "trainer").MineTrainer.in_mode("sync"))
    trainer.config = SimpleNamespace(data=SimpleNamespace(max_response_length=10))
    (observer,) = trainer.new_observers()
    tags = [{"response_len": 10, "is_padding": True}, {"response_len": 4}, {"response_len": 6}]
    observer.observe(KVBatchMeta(partition_id="train", keys=["a", "b", "c"], tags=tags))
    assert observer.metrics() == {"mine/length_share": 0.5}


# ------------------------------ the options of Fast DAPO ------------------------------


def test_the_defaults_in_the_options_table_are_those_of_the_configuration():
    page = (ROOT / "recipe/fast_dapo/README.md").read_text(encoding="utf-8").partition("Sizes and limits.")[2]
    rows = re.findall(r"^\| `([\w.]+)` \| (\S+) \|", page.partition("\n### ")[0], re.MULTILINE)
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        config = compose("fast_dapo")
    assert len(rows) >= 12
    defaults = {key: yaml.safe_load(value) for key, value in rows if not value.endswith(ELLIPSIS)}
    assert defaults == {key: OmegaConf.select(config, key, throw_on_missing=True) for key in defaults}


# ------------------------------ the site's own code ------------------------------


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(SITE), *sys.path])
    return SITE


def test_every_key_of_our_groups_is_in_the_configuration_reference(site: Path):
    reference = importlib.import_module("configuration_reference")
    page = reference.page(ROOT / "configs")
    keys = [key for file in reference.FILES for key in reference.read_keys(ROOT / "configs" / file)]
    values = [key for key in keys if not key.is_group]
    assert len(values) > 150
    for key in values:
        assert f"`{key.path}`" in page
    ours = [key for key in values if re.match(r"curriculum|golden\.|tracin\.|engine_guard|watchdog", key.path)]
    assert len(ours) > 70
    # A recipe may set another default for a key that its own file describes.
    described = {key.path for key in ours if key.comment}
    assert {key.path for key in ours} - described == set()


def test_the_reference_says_what_a_file_says(site: Path, tmp_path: Path):
    reference = importlib.import_module("configuration_reference")
    file = tmp_path / "new.yaml"
    file.write_text(
        "# @package golden\n# The file.\n\n"
        "new:\n\n  # none: nothing.\n  # all: a|b <all>.\n  rule: none\n\nbare: [1, 2]\n"
    )
    keys = reference.read_keys(file)
    assert [(key.path, key.comment) for key in keys] == [
        ("golden.new", ()),
        ("golden.new.rule", ("none: nothing.", "all: a|b <all>.")),
        ("golden.bare", ()),
    ]
    assert reference._sentence(keys[1].comment, "<br>") == r"none: nothing.<br>all: a\|b &lt;all>."


def test_links_of_the_repository_lead_to_pages_of_the_site(site: Path):
    rewrite = importlib.import_module("repository_links").rewrite
    cases = {
        ("[a](../recipe/tracin/README.md#run-it)", "index.md"): "[a](recipe/tracin/README.md#run-it)",
        ("[a](../../docs/benchmarks/a.md#b)", "recipe/tracin/README.md"): "[a](../../benchmarks/a.md#b)",
        ("[`a`](trainer.py#L3)", "recipe/tracin/README.md"): "[`a`](../../source/recipe/tracin/trainer.py.md)",
        ("[a](../configs/signal)", "index.md"): "[a](source/configs/signal/index.md)",
        ("[a](../README.md)", "quickstart.md"): "[a](index.md)",
        ("[a](https://example.com/a.md)", "index.md"): "[a](https://example.com/a.md)",
        ("[a](#here) [b](nowhere.py)", "index.md"): "[a](#here) [b](nowhere.py)",
        (
            "```\n[a](../Makefile)\n```\n[a](../Makefile)",
            "index.md",
        ): "```\n[a](../Makefile)\n```\n[a](source/Makefile.md)",
    }
    for (text, uri), expected in cases.items():
        assert rewrite(text, uri, ROOT) == expected


def test_the_first_page_has_the_introduction_of_the_readme(site: Path):
    links = importlib.import_module("repository_links")
    marker = "<!-- the introduction of the README -->"
    assert marker in _page("index.md")
    assert marker in (SITE / "hooks.py").read_text(encoding="utf-8")
    shown = links.rewrite(links.introduction(ROOT), "index.md", ROOT)
    assert shown.startswith("Most rollouts")
    assert "\n## " not in shown
    assert "](recipe/fast_dapo/README.md)" in shown
    assert "](assets/leaderboard.svg)" in shown
    assert "](https://github.com/verl-project/verl)" in shown


def test_a_picture_that_is_not_there_is_missed_aloud(site: Path):
    pictures = importlib.import_module("pictures")
    text = "before\n\n<!-- screenshot: run.png | A `run` & more -->\n"
    assert pictures.MISSING in pictures.place_screenshots(text, "a/b.md", {"other.png"})
    shown = pictures.place_screenshots(text, "a/b.md", {"run.png"})
    assert 'src="../screenshots/run.png"' in shown
    assert "A <code>run</code> &amp; more" in shown


def test_every_screenshot_of_the_docs_is_made_before_the_site_is_built():
    rule = re.search(r"tests/browser/test_,([^)]+)\)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert rule is not None
    tests = [(ROOT / f"tests/browser/test_{name}").read_text(encoding="utf-8") for name in rule[1].split()]
    made = {name for text in tests for name in re.findall(r'\.shot\("([\w-]+)"\)', text)}
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    asked_for = {name for text in pages for name in re.findall(r"<!-- screenshot: ([\w-]+)\.png", text)}
    assert len(asked_for) >= 12
    assert asked_for - made == set()


def test_every_diagram_that_a_page_shows_is_there_and_readable_in_the_dark():
    shown = set(re.findall(r"\]\(diagrams/([\w-]+\.svg)\)", _page("concepts.md")))
    assert "](diagrams/house.svg)" in _page("CONTRIBUTING.md")
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs/diagrams").glob("*.svg")}
    assert shown == set(files)
    for text in files.values():
        assert "<title>" in text
        assert "prefers-color-scheme: dark" in text
