"""`data_preprocess.math_file`: any file of questions and answers, by the columns that the command names."""

import json
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from data_preprocess import dapo_math_17k, math_file
from data_preprocess.math.columns import MISSING, column_names, value_at
from verl_ext.data.file_checks import check_files
from verl_ext.data.math_instructions import INSTRUCTION

ROOT = Path(__file__).resolve().parents[2]

# As in OlympiadBench, including its proofs.
OLYMPIAD = [
    {"question": "How many?", "final_answer": ["$166$"], "is_multiple_answer": False, "unit": "$cm^2$"},
    {"question": "Which two?", "final_answer": ["$69$,$84$"], "is_multiple_answer": True, "unit": None},
    {"question": "Which?", "final_answer": ["2", "$-2$"], "is_multiple_answer": True, "unit": None},
    {"question": "Prove it.", "final_answer": None, "is_multiple_answer": False, "unit": None},
    {"question": "Either?", "final_answer": ["1", "2"], "is_multiple_answer": False, "unit": None},
    {"question": "", "final_answer": ["1"], "is_multiple_answer": False, "unit": None},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(folder: Path, *arguments: str, name: str = "own", question: str = "question", answer: str = "answer") -> None:
    columns = ["--question", question, "--answer", answer]
    math_file.main(["--name", name, *columns, "--local_save_dir", str(folder), *arguments])


def rows_of(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def answers_of(path: Path) -> list[str]:
    return [row["reward_model"]["ground_truth"] for row in rows_of(path)]


def test_olympiad_benchs_lists_become_one_answer_each_and_the_rest_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = write(tmp_path / "olympiadbench.jsonl", OLYMPIAD)
    run(tmp_path, "--input", str(source), "--split", "test", name="olympiad_bench", answer="final_answer")
    path = tmp_path / "olympiad_bench.parquet"
    assert check_files([path]).num_rows == 3
    assert answers_of(path) == ["166", "69,84", "2, -2"]
    first = rows_of(path)[0]
    assert first["prompt"] == [{"role": "user", "content": f"How many?\n{INSTRUCTION}"}]
    assert (first["data_source"], first["extra_info"]["index"]) == ("math_file/olympiad_bench", "olympiad_bench/0")
    assert first["extra_info"]["split"] == "test"
    counts = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"rows read 6", "- no answer 1", "- several answers 1", "- no question 1", "= rows written 3"} <= {*counts}


def test_nested_columns_and_verls_own_files_are_read(tmp_path: Path):
    verls = "Let's think step by step and output the final answer within \\boxed{}."
    row = {
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"1+1? {verls}"}],
        "reward_model": {"ground_truth": "2"},
        "turns": [{"value": "2+2?"}, {"value": "First 3, then \\boxed{4}."}],
    }
    source = write(tmp_path / "in.jsonl", [row])
    run(tmp_path, "--input", str(source), question="prompt", answer="reward_model.ground_truth")
    assert rows_of(tmp_path / "own.parquet")[0]["prompt"][0]["content"] == f"1+1?\n{INSTRUCTION}"
    assert answers_of(tmp_path / "own.parquet") == ["2"]
    run(tmp_path, "--input", str(source), question="turns.0.value", answer="turns.1.value")
    assert rows_of(tmp_path / "own.parquet")[0]["prompt"][0]["content"] == f"2+2?\n{INSTRUCTION}"
    assert answers_of(tmp_path / "own.parquet") == ["4"]


def test_a_question_in_several_columns_is_put_together(tmp_path: Path):
    rows = [
        {"Body": "Ten birds.", "Question": "How many?", "answer": 10},
        {"Body": None, "Question": "1+1?", "answer": 2},
    ]
    arguments = ["--input", str(write(tmp_path / "in.jsonl", rows)), "--answer", "answer", "--name", "own"]
    math_file.main([*arguments, "--local_save_dir", str(tmp_path), "--question", "Body", "Question"])
    prompts = [row["prompt"][0]["content"] for row in rows_of(tmp_path / "own.parquet")]
    assert prompts == [f"Ten birds.\nHow many?\n{INSTRUCTION}", f"1+1?\n{INSTRUCTION}"]
    with pytest.raises(
        SystemExit, match=r"no row has the column of --question body\. It has: Body, Question, answer\."
    ):
        math_file.main([*arguments, "--local_save_dir", str(tmp_path), "--question", "body", "Question"])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(3, "3"), (2.0, "2"), ("so #### 1,000", "1,000"), ("\\boxed{1} no \\boxed{x}", "x"), (["5"], "5"), ("$7$", "7")],
)
def test_the_answer_is_what_a_box_is_compared_with(tmp_path: Path, answer: object, expected: str):
    run(tmp_path, "--input", str(write(tmp_path / "in.jsonl", [{"question": "q", "answer": answer}])))
    assert answers_of(tmp_path / "own.parquet") == [expected]


def test_spreadsheets_keep_their_leading_zeros(tmp_path: Path):
    (tmp_path / "in.csv").write_text('question,answer\n"One, or two?",025\n')
    run(tmp_path, "--input", str(tmp_path / "in.csv"))
    assert answers_of(tmp_path / "own.parquet") == ["025"]


def test_instruction_data_source_and_held_out_questions_are_the_users(tmp_path: Path):
    rows = [{"question": f"What is {n} plus {n * n}?", "answer": n} for n in range(20)]
    source = write(tmp_path / "in.jsonl", rows)
    run(tmp_path, "--input", str(source), "--instruction", "", "--data_source", "math500", "--holdout_size", "5")
    kept, held = rows_of(tmp_path / "own.parquet"), rows_of(tmp_path / "own_held_out.parquet")
    assert (len(kept), len(held)) == (15, 5)
    assert {row["data_source"] for row in kept + held} == {"math500"}
    texts = [row["prompt"][0]["content"] for row in kept + held]
    assert sorted(texts) == sorted(row["question"] for row in rows)
    assert [row["extra_info"]["split"] for row in kept[:1] + held[:1]] == ["train", "test"]


def test_only_a_reward_that_is_not_known_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = write(tmp_path / "in.jsonl", [{"question": "q", "answer": "1"}])
    for known in ([], ["--data_source", "math500"]):
        run(tmp_path, "--input", str(source), *known)
        assert "custom_reward_function" not in capsys.readouterr().out
    run(tmp_path, "--input", str(source), "--data_source", "somebody/else")
    assert "custom_reward_function.path=pkg://verl_ext.rewards.math_answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"question": "quesion", "answer": "final_anwser"},
            r"no row has the column of --question quesion and --answer final_anwser\. "
            r"It has: question, final_answer, is_multiple_answer, unit, more\.level\.$",
        ),
        ({"answer": "more"}, r"no row is usable .*more is a record, not an answer: 6.*Check --question and --answer"),
        ({"question": "unit"}, "no row is usable"),
    ],
)
def test_wrong_columns_end_with_the_columns_that_are_there(tmp_path: Path, arguments: dict[str, str], message: str):
    rows = [{**row, "question": "Why?", "unit": None, "more": {"level": 1}} for row in OLYMPIAD]
    source = write(tmp_path / "in.jsonl", rows)
    with pytest.raises(SystemExit, match=message):
        run(tmp_path / "out", "--input", str(source), **{"answer": "final_answer", **arguments})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "../own"], "--name '../own': expected letters"),
        (["--split", "test", "--holdout_size", "3"], "are for training files"),
        (["--holdout_size", "0"], "--holdout_size must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_said(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, "--input", "in.jsonl", *arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_help_has_a_command_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = (math_file.__doc__ or "").partition("    python -m data_preprocess.math_file ")[2].partition("\n\n")[0]
    arguments = shlex.split(text.replace("\\\n", " "))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "olympiadbench.jsonl", OLYMPIAD)
    math_file.main(arguments)
    assert answers_of(Path("outputs/data/math/olympiad_bench.parquet")) == ["166", "69,84", "2, -2"]


def test_a_column_is_found_by_its_own_name_first():
    row = {"a.b": 1, "a": {"b": 2, "c": [{"d": None}]}}
    assert value_at(row, "a.b") == 1
    assert value_at(row, "a.c.0.d") is None
    assert [value_at(row, name) for name in ("a.x", "a.c.1.d", "a.b.c", "b")] == [MISSING] * 4
    assert list(column_names({"x": 1, "a": {"b": 2, "c": {"d": 3}}, "e": {}})) == ["x", "a.b", "a.c.d", "e"]


def test_the_shipped_runs_name_files_that_the_scripts_write():
    folder = ROOT / "configs/experiment"
    data = yaml.safe_load((folder / "dapo17k_qwen2_5_1_5b.yaml").read_text())["data"]
    held_out, validation = dapo_math_17k.DATASET.held_out, dapo_math_17k.DATASET.validation
    assert held_out is not None
    assert validation is not None
    assert data["train_files"] == f"outputs/data/math/{dapo_math_17k.DATASET.name}.parquet"
    assert data["val_files"] == [
        f"outputs/data/math/{name}.parquet" for name in ("aime24", "aime25", "amc23", validation[0])
    ]
    models = [file for file in folder.glob("dapo17k_qwen*.yaml") if file.stem != "dapo17k_qwen2_5_1_5b"]
    assert len(models) >= 3
    for file in models:  # they start from that file, and keep its data
        config = yaml.safe_load(file.read_text())
        assert "dapo17k_qwen2_5_1_5b" in config["defaults"]
        assert "val_files" not in config["data"]
