"""The data scripts on outputs and inputs that cannot work: one line, exit code 1, no traceback, nothing written."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_preprocess.ending import OutputError, check_output, errors_in_one_line
from verl_ext.data.arc_tasks import read_tasks
from verl_ext.data.row_report import SourceError
from verl_ext.data.schema import ParquetError, write_parquet

MATH = {"problem": "What?", "answer": "3"}
TOXICITY = [{"prompt": text, "prompt_toxicity": 0.5, "challenging": False} for text in "ABCDEFGH"]
PAIR = {"input": [[1]], "output": [[2]]}
ARC = {"00d62c1b": {"train": [PAIR], "test": [PAIR]}}

# Script, content of its input, and the arguments that name it.
SCRIPTS = {
    "deepscaler": (json.dumps(MATH), ["--input"]),
    "math_file": (json.dumps(MATH), ["--name", "own", "--question", "problem", "--answer", "answer", "--input"]),
    "svamp": (
        json.dumps({"Body": "One.", "Question": "How many?", "Answer": 1.0})
        + "\n"
        + json.dumps({"Body": "Two.", "Question": "How many?", "Answer": 2.0}),
        ["--holdout_size", "1", "--input"],
    ),
    "real_toxicity_prompts": ("\n".join(map(json.dumps, TOXICITY)), ["--input"]),
    "arc": (json.dumps(ARC), ["--arc1_training"]),
}


def ending(capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> str:
    """What a script says when given what cannot work."""
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"data_preprocess.{name}").main(arguments)
    message = str(ended.value.code)
    assert message.startswith("error: ")
    assert "\n" not in message
    assert capsys.readouterr().out == ""
    return message


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("output", ["file", "file/below"])
def test_an_output_that_is_a_file_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, output: str
):
    content, arguments = SCRIPTS[name]
    (tmp_path / "in.jsonl").write_text(content)
    (tmp_path / "file").write_text("mine")
    message = ending(capsys, name, *arguments, str(tmp_path / "in.jsonl"), "--local_save_dir", str(tmp_path / output))
    assert message.endswith(f"{tmp_path / 'file'} is not a folder. Name another folder.")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_output_that_nobody_can_write_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str):
    if not Path("/proc/self").is_dir():
        pytest.skip("needs a folder in which not even root can write: no /proc here")
    content, arguments = SCRIPTS[name]
    (tmp_path / "in.jsonl").write_text(content)
    message = ending(capsys, name, *arguments, str(tmp_path / "in.jsonl"), "--local_save_dir", "/proc/nope")
    assert "/proc/nope" in message
    assert "Name a folder" in message


def test_arithmetic_has_no_input_and_the_same_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("mine")
    size = ["--train_size", "8", "--val_size", "8"]
    assert "is not a folder" in ending(capsys, "arithmetic", "--local_save_dir", str(tmp_path / "file"), *size)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("missing.jsonl", None),
        ("empty.jsonl", b""),
        ("other.jsonl", b'{"text": "x"}'),
        ("list.jsonl", b"[[1]]"),
        ("deep.jsonl", b"[" * 100_000),
        ("bytes.jsonl", b"\xff\xfe\x00"),
        ("damaged.json.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff"),
        ("cut.parquet", b"PAR1xx"),
    ],
)
def test_a_wrong_input_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, file: str, content: bytes | None
):
    if content is not None:
        (tmp_path / file).write_bytes(content)
    path = str(tmp_path / file)
    message = ending(capsys, name, *SCRIPTS[name][1], path, "--local_save_dir", str(tmp_path / "out"))
    assert path in message
    assert not (tmp_path / "out").exists()


def test_a_file_of_arc_tasks_may_hold_anything(tmp_path: Path):
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps({"a": 3, "b": {"train": [{"input": 1}]}, "c": None}))
    with pytest.raises(SourceError, match="no task is usable"):
        read_tasks(path)


def test_a_folder_may_be_new_or_a_link_but_no_link_to_nothing(tmp_path: Path):
    check_output(tmp_path / "new" / "below")
    (tmp_path / "link").symlink_to(tmp_path)
    check_output(tmp_path / "link")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    with pytest.raises(OutputError, match="broken is not a folder"):
        check_output(tmp_path / "broken" / "below")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "link"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_said(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="is not writable"):
        check_output(tmp_path / "out")


def test_all_problems_of_a_file_are_one_line_and_other_errors_keep_their_traceback(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"^error: .*there are no rows to write\.$"), errors_in_one_line(tmp_path):
        write_parquet([], tmp_path / "a.parquet")
    with pytest.raises(ParquetError):
        write_parquet([], tmp_path / "a.parquet")
    with pytest.raises(ZeroDivisionError), errors_in_one_line(tmp_path):
        raise ZeroDivisionError
    with pytest.raises(SystemExit, match="error: steps"), errors_in_one_line(tmp_path, ValueError):
        raise ValueError("steps must be positive")


def test_the_help_needs_no_torch():
    """All scripts except those that train a model."""
    names = sorted(path.stem for path in Path(__file__).parents[2].glob("data_preprocess/*.py"))
    light = [name for name in names if not name.startswith("_") and "model" not in name and "classifier" not in name]
    assert len(light) >= 16
    code = (
        "import importlib, sys\n"
        f"for name in {light}:\n"
        "    module = importlib.import_module(f'data_preprocess.{name}')\n"
        "    if hasattr(module, 'main'):\n"
        "        try:\n            module.main(['--help'])\n"
        "        except SystemExit as ended:\n            assert ended.code == 0, name\n"
        "found = [name for name in ('torch', 'verl', 'ray', 'vllm', 'transformers') if name in sys.modules]\n"
        "sys.exit(f'loaded: {found}' if found else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage:") == len(light) - 1  # `ending` is no script
