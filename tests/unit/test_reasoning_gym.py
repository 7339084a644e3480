"""Tasks of reasoning-gym: rows made of its generators, and rewards that are its own scorers' grades."""

import ast
import importlib.util
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_preprocess import reasoning_gym as script
from verl_ext.data.file_checks import check_files
from verl_ext.data.row_report import SourceError
from verl_ext.rewards import reasoning_gym as reward
from verl_ext.trainer import default_reward

NEEDS = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="the package reasoning-gym is not installed"
)
# Functions that run text as Python.
RUNNERS = {"eval", "exec", "parse_expr", "sympify"}


def task(text: str) -> script.Task:
    return script.Task.parse(text)


def rows(text: str, size: int = 8, examples: int = 2, seed: int = 0) -> dict[str, list[dict]]:
    return script.build_rows(task(text), {"train": size, "val": size}, examples, seed)


def grade(row: dict, response: str) -> dict:
    """By the function that judges our rows by default."""
    given = {"ground_truth": row["reward_model"]["ground_truth"], "extra_info": row["extra_info"]}
    return default_reward.compute_score(row["data_source"], solution_str=response, **given)


@NEEDS
def test_files_pass_the_checks_and_no_question_stands_there_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tasks = ["chain_sum:max_terms=3,max_digits=2", "spell_backward"]
    script.main(["--tasks", *tasks, "--size", "20", "--val_size", "5", "--local_save_dir", str(tmp_path)])
    assert "20 problems of each of chain_sum, spell_backward" in capsys.readouterr().out
    files = [tmp_path / "train.parquet", tmp_path / "val.parquet"]
    assert check_files(files).num_rows == 50
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len({row["extra_info"]["index"] for row in found}) == 50
    asked = [row["prompt"][-1]["content"] for row in found]
    shown = {turn["content"] for row in found for turn in row["prompt"][:-1]}
    assert len(set(asked)) == 50
    assert not shown & set(asked)
    assert [turn["role"] for turn in found[0]["prompt"]] == ["user", "assistant"] * 3 + ["user"]
    assert found[0]["data_source"] == "reasoning_gym/chain_sum"


@NEEDS
def test_grades_are_the_librarys(tmp_path: Path):
    row = rows("spell_backward:min_word_len=5,max_word_len=5")["train"][0]
    answer = row["reward_model"]["ground_truth"]
    wrong_end = answer[:4] + ("x" if answer[4] != "x" else "y")
    assert grade(row, f"<answer>{answer}</answer>") == {"score": 1.0, "acc": 1.0, "pred": answer}
    part = grade(row, f"First <answer>zzzzz</answer>, no: <answer>{wrong_end}</answer>")
    assert part["score"] == pytest.approx(0.8)
    assert part["acc"] == 0.0
    assert grade(row, answer)["score"] == 0.0  # without tags nothing is an answer
    assert grade(row, f"\\boxed{{{answer}}}")["score"] == 1.0
    assert grade(row, "<answer>" + answer * 5000 + "</answer>")["score"] == 0.0


@NEEDS
def test_scorers_that_need_more_than_the_answer_get_it():
    """If the metadata of a task decide, the entry that is read from a file is the same."""
    row = rows("knights_knaves")["val"][0]
    assert json.loads(row["extra_info"]["metadata"])["names"]
    assert grade(row, f"<answer>{row['reward_model']['ground_truth']}</answer>")["score"] == 1.0
    assert grade(row, "<answer>nobody knows</answer>")["score"] < 1.0


@NEEDS
def test_the_same_seed_gives_the_same_rows_and_the_next_seed_others():
    first, again, other = (rows("chain_sum:min_digits=3", seed=seed) for seed in (0, 0, 1))
    assert first == again
    questions = [{row["prompt"][-1]["content"] for row in made["train"] + made["val"]} for made in (first, other)]
    assert not questions[0] & questions[1]


@NEEDS
def test_without_examples_an_instruction_asks_for_the_form():
    (prompt,) = rows("chain_sum", examples=0)["train"][0]["prompt"]
    assert prompt["content"].endswith(script.INSTRUCTION)


@NEEDS
def test_a_scorer_that_would_run_the_response_is_refused():
    """All scorers of the installed version: a new one may have more of them."""
    folder = Path(reward.library().__file__).parent
    found = set()
    for name, (generator, _) in sys.modules["reasoning_gym.factory"].DATASETS.items():
        source = Path(sys.modules[generator.__module__].__file__ or "")
        assert source.is_relative_to(folder)
        for function in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef) or "score" not in function.name:
                continue
            for call in ast.walk(function):
                runner = getattr(call, "func", None)
                if getattr(runner, "id", getattr(runner, "attr", None)) not in RUNNERS:
                    continue
                # number_sorting runs only its own answer as Python, which the library wrote.
                if isinstance(call, ast.Call) and "entry[" not in ast.unparse(call.args[0]):
                    found.add(name)
    assert "puzzle24" in found
    assert found <= reward.RUNS_RESPONSES
    with pytest.raises(reward.TaskError, match="runs the response as Python, which is not safe"):
        rows("puzzle24")


@NEEDS
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chain_sums", "has no task 'chain_sums'. It has: ab, acre, "),
        ("chain_sum:max_term=3", "its settings are not accepted"),
        ("chain_sum:min_terms=1,max_terms=0", "its settings are not accepted"),
        ("chain_sum:max_terms=2,max_digits=1", "found [0-9]+ different problems of 1002. Ask for fewer"),
    ],
)
def test_what_cannot_be_made_is_said(text: str, message: str):
    with pytest.raises((reward.TaskError, SourceError), match=message):
        rows(text, size=500)


def test_settings_of_a_task_are_numbers_flags_and_texts():
    assert task("a:b=1,c=0.5,d=true,e=word").settings == {"b": 1, "c": 0.5, "d": True, "e": "word"}
    with pytest.raises(ValueError, match="expected NAME or NAME:KEY=VALUE"):
        task("a:b")


def test_a_missing_package_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    for cached in (reward.library, reward.check_task, reward._scorer):
        cached.cache_clear()
    with pytest.raises(SystemExit) as ended:
        script.main(["--tasks", "chain_sum", "--local_save_dir", str(tmp_path)])
    assert "need the package, which cannot be imported" in str(ended.value.code)
    assert str(ended.value.code).endswith("pip install reasoning-gym")
    assert not list(tmp_path.iterdir())


def test_rows_of_others_are_refused():
    with pytest.raises(reward.TaskError, match="Make the rows with data_preprocess"):
        reward.compute_score("reasoning_gym/chain_sum", "<answer>1</answer>", "1", {"index": 0})
