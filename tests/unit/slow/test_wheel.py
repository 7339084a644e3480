"""The package as `pip install` leaves it: built from the tracked files, in an environment without the checkout."""

import json
import re
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from built_wheel import PACKAGES, build, run, tracked_files
from stand_ins import make_data, make_model

# Files that are only in the checkout: its own documents, and the lock of `make setup`.
LEFT_OUT = ("README.md", "cpu.in", "cpu.txt", "cpu-overrides.txt")

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    return tracked_files()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `python` and `verl-signal`. It sees only the libraries of this environment: the file that names
    the checkout is read only in a site's own folder."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))", cwd=folder).strip())
    (site / "libraries.pth").write_text(sysconfig.get_path("platlib") + "\n", encoding="utf-8")
    install = ("install", "-q", "--no-deps", "--no-index", "--ignore-installed", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=folder)
    return folder / "bin"


def test_everything_is_in_it(wheel: Path, tracked: list[Path]):
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {str(name) for name in tracked if name.parts[0] in PACKAGES and name.name not in LEFT_OUT}
    assert expected <= packed
    recipes = {name.rpartition("/")[0] for name in packed if re.fullmatch(r"recipe/\w+/__init__\.py", name)}
    assert len(recipes) >= 3
    assert {f"{package}/py.typed" for package in ("verl_ext", "data_preprocess", *recipes)} <= packed


def test_it_is_the_wheel_that_is_imported(programs: Path, tmp_path: Path):
    code = (
        "import data_preprocess.svamp, recipe.fast_dapo, verl_ext; print(verl_ext.__file__, recipe.fast_dapo.__file__)"
    )
    places = run(programs / "python", "-c", code, cwd=tmp_path).split()
    assert all(place.startswith(str(programs.parent)) for place in places)


def test_a_run_composes_and_is_checked_in_another_folder(programs: Path, tmp_path: Path):
    make_data(tmp_path / "train.parquet", range(600))
    make_data(tmp_path / "val.parquet", range(600, 664))
    make_model(tmp_path / "model")
    said = run(
        programs / "verl-signal",
        "fast_dapo",
        "+backend=cpu",
        "+experiment=arithmetic_two_phase",
        "data.train_files=train.parquet",
        "data.val_files=val.parquet",
        "actor_rollout_ref.model.path=model",
        "dry_run=true",
        cwd=tmp_path,
    )
    assert "rollouts" in said


def test_tools_and_data_sets_start(programs: Path, tmp_path: Path):
    assert "compare" in run(programs / "verl-signal", "report", "--help", cwd=tmp_path)
    assert "--local_save_dir" in run(programs / "verl-signal", "data.svamp", "--help", cwd=tmp_path)


@pytest.mark.timeout(1800)
def test_the_demo_trains_to_its_end_in_another_folder(programs: Path, tmp_path: Path):
    """What `make demo` runs, by the installed command, with the folders that are its defaults."""
    signal = programs / "verl-signal"
    sizes = ("--pool", "E", "--train_size", "1024", "--val_size", "512", "--seed", "0")
    run(signal, "data.arithmetic", "--local_save_dir", "outputs/data/arithmetic", *sizes, cwd=tmp_path)
    run(signal, "data.arithmetic_model", "--local_save_dir", "outputs/models/arithmetic_base", cwd=tmp_path)
    printed = run(signal, "fast_dapo", "+backend=cpu", "+experiment=arithmetic_demo", cwd=tmp_path)
    folder = tmp_path / "outputs/fast_dapo_demo"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["global_steps"] == summary["total_training_steps"] == 40
    assert summary["val_accuracy_after"] > summary["val_accuracy_before"] + 0.1
    assert str(folder / "report.html") in printed
    page = (folder / "report.html").read_text(encoding="utf-8")
    # Its data and the scripts that draw it, which are files of the package.
    assert "val-core" in page
    assert "runs.views[name].draw" in page
