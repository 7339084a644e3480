"""One browser for all tests, pages made once, and a check that no page makes requests or logs console errors.

Debian's chromium, driven by Playwright. Without it the tests are skipped, or fail if REQUIRE_BROWSER is set, as in
`.ci/run`.
"""

import functools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_run import MadeRun, write_influence
from made_trace import realistic_trace
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from verl_ext.arc.prompts import encode_golden, user_message
from verl_ext.arc.solutions import read_solution
from verl_ext.data.arc_tasks import Pair, Task

SCREENSHOTS = Path(__file__).resolve().parents[2] / "outputs" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Their rules hold for any square grid, so tasks for them can be generated.
TASKS = ("67a3c6ac", "74dd1130", "6150a2bd", "a416b8f3")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        message = "no chromium on this machine (Debian: apt-get install chromium): pages cannot be looked at"
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


class Viewer:
    """One page of one test."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self._context = browser.new_context(viewport={"width": 1440, "height": 900}, **options)
        self.page = self._context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.opened: set[str] = set()
        self.page.on(
            "console", lambda message: message.type in ("error", "warning") and self.errors.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, file: Path, query: str = "") -> Any:
        """Open the page; returns it when its first view is drawn."""
        self.opened.add(file.resolve().as_uri())
        self.page.goto(f"{file.resolve().as_uri()}{query}")
        self.page.wait_for_selector("html[data-drawn]")
        return self.page

    def shot(self, name: str) -> None:
        """Take a screenshot for the docs, written atomically because the test of the site may read it meanwhile."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.new"
        self.page.screenshot(path=path, type="png")
        path.replace(path.with_suffix(".png"))

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def viewer(browser: Any) -> Iterator[Callable[..., Viewer]]:
    """Makes viewers; at the end, none may have requested anything but its file or logged an error."""
    made: list[Viewer] = []

    def make(**options: Any) -> Viewer:
        made.append(Viewer(browser, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert [error for one in made for error in one.errors] == []
    assert [url for one in made for url in one.requests if not _is_allowed(url, one)] == []


def _is_allowed(url: str, viewer: Viewer) -> bool:
    return url.partition("?")[0] in viewer.opened or url.startswith(("data:,", "http://127.0.0.1:"))


@pytest.fixture(scope="session")
def tasks() -> dict[str, Task]:
    """ARC tasks that golden solutions solve, with random grids."""
    chance = random.Random(0)
    made = {}
    for name in TASKS:
        space: dict[str, Any] = {}
        exec(read_solution(name), space)
        pairs = []
        for _ in range(4):
            given = [[chance.randrange(10) for _ in range(3)] for _ in range(3)]
            result = space["solve"]([list(row) for row in given])
            pairs.append(Pair(tuple(map(tuple, given)), tuple(map(tuple, result))))
        made[name] = Task(name, tuple(pairs[:3]), tuple(pairs[3:]))
    return made


@pytest.fixture(scope="session")
def task_file(tasks: dict[str, Task], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tasks as an ARC collection."""
    path = tmp_path_factory.mktemp("arc") / "tasks.json"
    raw = {
        name: {
            part: [{"input": pair.input, "output": pair.output} for pair in pairs]
            for part, pairs in (("train", task.train), ("test", task.test))
        }
        for name, task in tasks.items()
    }
    path.write_text(json.dumps(raw))
    return path


@pytest.fixture(scope="session")
def model(tasks: dict[str, Task], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level BPE tokenizer whose tokens are words, as in a real one."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [*map(read_solution, tasks), *map(user_message, tasks.values())]
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)
    return folder


@functools.cache
def _tokenizer(folder: Path) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture(scope="session")
def golden_lengths(tasks: dict[str, Task], model: Path) -> dict[str, int]:
    """Golden tokens of each task."""
    return {name: len(encode_golden(read_solution(name), _tokenizer(model))) for name in tasks}


@pytest.fixture(scope="session")
def entries(tasks: dict[str, Task], model: Path) -> list[dict[str, Any]]:
    """A realistic trace."""
    return realistic_trace(_tokenizer(model), tasks)


@pytest.fixture(scope="session")
def run_folder(entries: list[dict[str, Any]], model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with the trace, and Hydra's configuration that names the model."""
    from recipe.golden_redaction.records.records import TrainingRecords
    from recipe.golden_redaction.run_files import ENTRIES

    folder = tmp_path_factory.mktemp("golden_demo")
    TrainingRecords(folder / ENTRIES).append(entries)
    (folder / "hydra").mkdir()
    (folder / "hydra" / "config.yaml").write_text(json.dumps({"actor_rollout_ref": {"model": {"path": str(model)}}}))
    return folder


@pytest.fixture(scope="session")
def trace_page(run_folder: Path, task_file: Path) -> Path:
    """The trace viewer of that run."""
    from verl_ext.report.__main__ import main

    page = run_folder / "trace.html"
    assert main(["trace", str(run_folder), "--tasks", str(task_file), "--output", str(page)]) == 0
    return page


@pytest.fixture(scope="session")
def golden_page(task_file: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden viewer."""
    from verl_ext.report.__main__ import main

    page = tmp_path_factory.mktemp("golden") / "golden.html"
    assert main(["golden", "--tasks", str(task_file), "--tokenizer", str(model), "--output", str(page)]) == 0
    return page


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with everything that a run records."""
    folder = tmp_path_factory.mktemp("clicks") / "run"
    folder.mkdir()
    run = MadeRun(folder)
    run.write_settings()
    run.train(40).finish()
    write_influence(folder, steps=6, size=60, with_text=True)
    return folder


@pytest.fixture(scope="session")
def report_page(run_dir: Path) -> Path:
    """The run's page, at its default path."""
    from verl_ext.report.__main__ import main

    assert main(["run", str(run_dir)]) == 0
    return run_dir / "report.html"


@pytest.fixture(scope="session")
def seeds_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of one configuration next to another configuration."""
    from verl_ext.report.__main__ import main

    base = tmp_path_factory.mktemp("seeds")
    for place in range(3):
        (base / f"fast-seed{place}").mkdir()
        run = MadeRun(base / f"fast-seed{place}", seed=place, slow=1 + place / 10)
        run.write_settings(trainer={"seed": place, "experiment_name": f"fast-seed{place}"})
        run.train(30)
    (base / "other").mkdir()
    run = MadeRun(base / "other", slow=1.5)
    run.write_settings(curriculum={"enable": False})
    run.train(30)
    runs = map(str, sorted(base.iterdir()))
    assert main(["compare", *runs, "--output", str(base / "seeds.html")]) == 0
    return base / "seeds.html"
