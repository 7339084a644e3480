"""The GPU kit packs small made-up wheels, a model's folder and data, and assembles them in an empty folder."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).resolve().parents[2] / "gpu/kit")]

import assemble
import download
import pack
from kit_wheels import make_wheel
from pieces import MANIFEST, PieceError
from wheels import closure, read_present, read_wheel, read_wheels, to_carry

SETUP = "from setuptools import setup\nsetup(name='verl-signal', version='0.3.0', py_modules=['own_made'])\n"


def commit(root: Path) -> None:
    """A small checkout in place of this one, whose wheel takes long to build."""
    root.mkdir()
    (root / "setup.py").write_text(SETUP)
    (root / "own_made.py").write_text("VERSION = 1\n")
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is packed: sources, wheels, a model, data, and the machine's own packages."""
    folder = tmp_path_factory.mktemp("inputs")
    commit(folder / "root")
    wheels = folder / "wheels"
    make_wheel(wheels, "verl", "0.9.1", ["ray>=2", "torch", "numpy>=2", 'vllm==0.24.0; extra == "vllm"'])
    make_wheel(wheels, "TransferQueue", "0.1.11")
    make_wheel(wheels, "ray", "2.60.0")
    make_wheel(wheels, "numpy", "2.3.5")
    make_wheel(wheels, "vllm", "0.24.0", ["torch==2.11.0", "nvidia-cublas"])
    make_wheel(wheels, "torch", "2.11.0", ["nvidia-cublas"])
    make_wheel(wheels, "nvidia-cublas", "13.1")
    (folder / "present.txt").write_text("torch==2.11.0+cu130\nnumpy==2.3.5\nray==2.1.0\n# a comment\n")
    for name in ("svamp.parquet", "svamp_test.parquet"):
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / name).write_bytes(b"rows of " + name.encode())
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    (folder / "model/weights").write_bytes(bytes(range(256)) * 8192)  # two mebibytes
    return folder


def words_of(inputs: Path, out: Path, **changes: Path) -> list[str]:
    """pack.py's arguments."""
    given = {name: inputs / name for name in ("root", "wheels", "data", "model")}
    given |= {"present": inputs / "present.txt", "out": out} | changes
    return ["--piece_mebibytes", "1", *(word for name, path in given.items() for word in (f"--{name}", str(path)))]


def hashes(pieces: Path) -> list[str]:
    return [piece["sha256"] for piece in json.loads((pieces / MANIFEST).read_text())["pieces"]]


@pytest.fixture(scope="module")
def pieces(inputs: Path) -> Path:
    assert pack.main(words_of(inputs, inputs / "pieces")) == 0
    return inputs / "pieces"


def test_the_machines_own_packages_and_pytorch_stay_out_and_the_engine_comes_last(pieces: Path):
    members = json.loads((pieces / MANIFEST).read_text())["members"]
    parts = {member["name"]: member["part"] for member in members}
    assert parts == {
        "sources.tar": "plain",
        "wheels/verl_signal-0.3.0-py3-none-any.whl": "plain",
        "wheels/TransferQueue-0.1.11-py3-none-any.whl": "plain",
        "wheels/ray-2.60.0-py3-none-any.whl": "plain",  # the machine has another version
        "wheels/verl-0.9.1-py3-none-any.whl": "plain",
        "model/smollm2_135m/config.json": "plain",
        "model/smollm2_135m/weights": "plain",
        "data/svamp.parquet": "plain",
        "data/svamp_test.parquet": "plain",
        "wheels/vllm-0.24.0-py3-none-any.whl": "engine",
    }
    assert members[-1]["part"] == "engine"
    assert all(path.stat().st_size <= 2**20 for path in pieces.glob("piece-*"))


def test_packing_again_gives_the_same_pieces(inputs: Path, pieces: Path, tmp_path: Path):
    assert pack.main(words_of(inputs, tmp_path / "again")) == 0
    assert hashes(tmp_path / "again") == hashes(pieces)


def test_pieces_in_two_visits_are_assembled_into_an_empty_folder(
    pieces: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    visits = [tmp_path / "first", tmp_path / "second"]
    for folder in visits:
        folder.mkdir()
        shutil.copy(pieces / MANIFEST, folder)
    for number, path in enumerate(sorted(pieces.glob("piece-*"))):
        shutil.copy(path, visits[number % 2])
    words = ["--to", str(tmp_path / "kit"), "--pieces"]
    assert assemble.main([*words, str(visits[0])]) == assemble.UNFINISHED
    assert "pieces are missing: piece-001. Bring them." in capsys.readouterr().out
    shutil.rmtree(visits[0])  # the second visit has none of the first's pieces
    assert assemble.main([*words, str(visits[1])]) == 0
    printed = capsys.readouterr().out
    assert "'verl': '0.9.1', 'TransferQueue': '0.1.11', 'vllm': '0.24.0'" in printed
    kit = tmp_path / "kit"
    assert {path.name for path in (kit / "packages").glob("*.dist-info")} == {
        "verl-0.9.1.dist-info",
        "TransferQueue-0.1.11.dist-info",
        "ray-2.60.0.dist-info",
        "vllm-0.24.0.dist-info",
        "verl_signal-0.3.0.dist-info",
    }
    assert (kit / "sources/outputs/models/smollm2_135m/weights").stat().st_size == 2**21
    assert (kit / "sources/outputs/data/svamp/svamp.parquet").read_bytes() == b"rows of svamp.parquet"
    assert (kit / "sources/own_made.py").exists()


def test_another_version_of_verl_is_refused_by_the_projects_own_check(tmp_path: Path):
    assemble.install([make_wheel(tmp_path, "verl", "0.8.0")], tmp_path / "packages", "plain")
    with pytest.raises(PieceError, match=r"verl 0.8.0 is installed; tested with 0.9.1"):
        assemble.check(tmp_path / "packages", tmp_path, with_engine=False)


def test_what_is_installed_is_installed_once_and_a_damaged_wheel_is_named(tmp_path: Path):
    wheel = make_wheel(tmp_path, "verl", "0.9.1")
    assemble.install([wheel], tmp_path / "packages", "plain")
    wheel.write_bytes(b"damaged")
    assemble.install([wheel], tmp_path / "packages", "plain")
    with pytest.raises(PieceError, match=r"pip could not install the wheels: .*verl-0.9.1"):
        assemble.install([wheel], tmp_path / "packages", "engine")


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("data", "svamp.parquet, found nothing"),
        ("model", "expected a model's folder or a GGUF file"),
        ("wheels", "expected wheels in"),
        ("root", "git"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture, missing: str, sentence: str
):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert pack.main(words_of(inputs, tmp_path / "out", **{missing: empty})) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert sentence in printed
    assert printed.count("\n") == 1


def test_a_wheel_twice_another_torch_and_no_manifest_are_refused(inputs: Path, tmp_path: Path):
    wheels = read_wheels(inputs / "wheels")
    assert closure(["verl"], wheels) == {"verl", "ray", "torch", "numpy", "nvidia-cublas"}
    with pytest.raises(PieceError, match=r"the machine has torch 2.10.0, but the wheels need 2.11.0"):
        to_carry(wheels, read_present("torch==2.10.0"))
    with_unused = shutil.copytree(inputs / "wheels", tmp_path / "with_unused")
    make_wheel(with_unused, "flashinfer-cubin", "0.6.12")
    carried = to_carry(read_wheels(with_unused), {})
    assert {wheel.name for wheel in carried} == set(wheels) - {"torch", "nvidia-cublas"}
    make_wheel(tmp_path, "ray", "2.60.0")
    make_wheel(tmp_path, "ray", "2.61.0")
    with pytest.raises(PieceError, match=r"ray-2.61.0-.* and ray-2.60.0-.* belong to the same package"):
        read_wheels(tmp_path)
    with pytest.raises(PieceError, match=r"expected one manifest.json in .*, found none"):
        assemble.keep_pieces([tmp_path], tmp_path / "kept")


def test_pip_is_asked_only_for_what_neither_the_machine_nor_the_folder_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []

    def pip(*words: str) -> None:
        asked.append(" ".join([words[0], words[-1]]))
        if words[0] == "wheel":
            make_wheel(tmp_path, *words[-1].split("=="))
        elif words[0] == "install":
            found = [("verl", "0.9.1"), ("ray", "2.60.0"), ("numpy", "2.3.5"), ("torch", "2.11.0")]
            found.append(("flashinfer-cubin", "0.6.12"))
            items = [{"metadata": {"name": name, "version": version}} for name, version in found]
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": items}))

    monkeypatch.setattr(download, "_pip", pip)
    make_wheel(tmp_path, "ray", "2.60.0")
    target = download.Target("3.12", ("manylinux_2_28_x86_64",))
    left_out = download.download(["verl"], target, tmp_path, {"numpy": "2.3.5"})
    assert left_out == ["torch==2.11.0"]
    sources = [f"wheel {requirement}" for requirement in download.ONLY_SOURCES]
    assert asked == [*sources, "install verl", "download verl==0.9.1"]
    asked.clear()
    download.download(["verl"], target, tmp_path, {"numpy": "2.3.5"})
    assert asked == ["install verl", "download verl==0.9.1"]  # pip wrote nothing here, so it is still missing


def test_a_name_without_a_version_stays_out_in_any(tmp_path: Path):
    wheels = {name: read_wheel(make_wheel(tmp_path, name, "1.0")) for name in ("scipy", "ray", "pyarrow", "av")}
    carried = to_carry(wheels, read_present("# pip list\nscipy\nray==2.0\npyarrow==1.0\n"))
    assert [wheel.name for wheel in carried] == ["ray"]
