"""What the docs quote and show is what the code says and does."""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from curriculum_play import add, make_settings, play_round

ROOT = Path(__file__).resolve().parents[2]
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
    """Every text of the code, with `…` for what it puts in."""
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


# ------------------------------ extending ------------------------------

EXAMPLES = dict(
    re.findall(r'^```python title="([\w/.]+)"\n(.+?)^```$', _page("extending.md"), re.MULTILINE | re.DOTALL)
)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A folder with the examples written out."""
    for name, code in EXAMPLES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    yield tmp_path
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    for name in ("uncut", "half_first"):
        TRAINER_REGISTRY.pop(name, None)


def _load(folder: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"mine_{name}", folder / "recipe" / "mine" / f"{name}.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_are_there():
    assert set(EXAMPLES) == {"recipe/mine/brief.py", "recipe/mine/uncut.py", "recipe/mine/half_first.py"}


def test_verl_finds_the_reward_and_hands_it_its_settings(mine: Path):
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {"path": str(mine / "recipe/mine/brief.py"), "name": "compute_score", "reward_kwargs": {"price": 0.1}}
    reward = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": function}}))
    exact = reward("arithmetic", "42<|endoftext|>", "42")
    assert exact == {"score": 1.0, "acc": 1.0, "spare": 0}
    assert reward("arithmetic", "42 is it", "42")["score"] == pytest.approx(0.4)
    assert reward("arithmetic", "41", "42") == {"score": 0.0, "acc": 0.0, "spare": 0}


def test_the_selection_is_a_trainer_that_leaves_cut_rollouts_out(mine: Path):
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.v1 import get_trainer_cls

    module = _load(mine, "uncut")
    trainer = object.__new__(get_trainer_cls("uncut"))
    trainer.config = SimpleNamespace(data=SimpleNamespace(max_response_length=10))
    tags = [{"response_len": 10, "is_padding": True}, {"response_len": 9}]
    batch, metrics = KVBatchMeta(partition_id="train", keys=["a", "b"], tags=tags), {}
    # Nothing is cut, so nothing is asked of TransferQueue; tests/integration has runs in which something is.
    assert trainer.select_samples(batch, metrics).keys == ["a", "b"]
    assert metrics == {"uncut/cut_share": 0.0}
    assert [module.is_cut(tag, 9) for tag in tags] == [False, True]


def test_the_controller_prefers_prompts_near_one_half_and_loses_none(mine: Path):
    from verl.trainer.ppo.v1 import get_trainer_cls

    _load(mine, "half_first")
    trainer = object.__new__(get_trainer_cls("half_first"))
    trainer.settings = SimpleNamespace(
        controller=make_settings(n=4, n_continue=1, train_batch_size=1, gen_batch_size=3)
    )
    controller = trainer.new_controller()
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
        ("[a](../../docs/benchmarks.md#the-pages)", "recipe/tracin/README.md"): "[a](../../benchmarks.md#the-pages)",
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


def test_a_picture_that_is_not_there_is_missed_aloud(site: Path, tmp_path: Path):
    pictures = importlib.import_module("pictures")
    text = "before\n\n<!-- screenshot: run.png | A `run` & more -->\n"
    assert pictures.MISSING in pictures.place_screenshots(text, "a/b.md", tmp_path)
    (tmp_path / "run.png").touch()
    shown = pictures.place_screenshots(text, "a/b.md", tmp_path)
    assert 'src="../screenshots/run.png"' in shown
    assert "A <code>run</code> &amp; more" in shown


def test_every_diagram_that_a_page_shows_is_there_and_readable_in_the_dark():
    shown = set(re.findall(r"\]\(diagrams/([\w-]+\.svg)\)", _page("concepts.md")))
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs/diagrams").glob("*.svg")}
    assert shown == set(files)
    for text in files.values():
        assert "<title>" in text
        assert "prefers-color-scheme: dark" in text
