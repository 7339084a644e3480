"""The script for SVAMP: its worked examples, its questions, and its equations as worked solutions."""

import json
import operator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from data_preprocess import svamp
from verl_ext.data.file_checks import check_files
from verl_ext.data.math_instructions import INSTRUCTION

ROW = {"Body": "Tom has 5 pens.", "Question": "How many pens?", "Answer": 5.0, "Type": "Common-Divison"}


def test_it_asks_behind_six_worked_examples(tmp_path: Path):
    rows = [{**ROW, "Body": f"Tom has {n} pens.", "Answer": float(n)} for n in range(20)]
    source = tmp_path / "svamp.json"
    source.write_text(json.dumps(rows))
    arguments = ["--input", str(source), "--local_save_dir", str(tmp_path), "--holdout_size", "5"]
    svamp.main(arguments)
    files = [tmp_path / "svamp.parquet", tmp_path / "svamp_test.parquet"]
    assert check_files(files).num_rows == 20
    made = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert {row["reward_model"]["ground_truth"] for row in made} == {str(n) for n in range(20)}
    *shown, question = made[0]["prompt"]
    assert [turn["role"] for turn in shown] == ["user", "assistant"] * 6
    assert question["content"] == f"Tom has {made[0]['reward_model']['ground_truth']} pens. How many pens?"
    assert made[0]["extra_info"]["subject"] == "Common-Division"
    svamp.main([*arguments, "--examples", "0"])
    (prompt,) = pq.read_table(files[0]).to_pylist()[0]["prompt"]
    assert prompt["content"].endswith(INSTRUCTION)


def test_examples_are_right_by_the_reward_that_judges_its_rows():
    """An answer that is off by one is wrong: they show a form that is judged."""
    from verl_ext.rewards.math_answer import compute_score, extract_answer, judges

    assert judges("svamp")
    for example in svamp.EXAMPLES:
        first, sign, second, _, result = example.answer.split("\n")[0].split()
        apply = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign]
        assert apply(int(first), int(second)) == int(result)
        assert extract_answer(example.answer) == result
        assert compute_score("svamp", example.answer, result)["score"] == 1.0
        assert compute_score("svamp", example.answer, str(int(result) + 1))["score"] == 0.0


@pytest.mark.parametrize(
    ("row", "question"),
    [
        (ROW, "Tom has 5 pens. How many pens?"),
        ({**ROW, "Body": "If Tom has 5 pens "}, "If Tom has 5 pens, how many pens?"),
    ],
)
def test_a_body_without_an_end_goes_on_in_the_question(row: dict[str, Any], question: str):
    assert svamp.DATASET.read(row).question == question


@pytest.mark.parametrize(
    ("equation", "answer", "solution"),
    [
        ("( 76.0 - 25.0 )", 51.0, "76 - 25 = 51"),
        ("( ( 8.0 + 10.0 ) / 3.0 )", 6.0, "(8 + 10) / 3 = 6"),
        ("( 10.0 * ( 9.5 - 2.0 ) )", 75.0, "10 * (9.5 - 2) = 75"),
        ("( 1.0 + 2.0 ) * ( 3.0 + 1.0 )", 12.0, "(1 + 2) * (3 + 1) = 12"),
        ("( 9.0 - ( 5.0 - 2.0 ) )", 6.0, "9 - (5 - 2) = 6"),
        ("7.0", 7.0, "7 = 7"),
        ("( 4.0 - 2.0 )", 1.0, None),  # another result
        ("( 4.0 / 0.0 )", 1.0, None),
        ("open('a')", 1.0, None),
        ("( 4.0 -", 4.0, None),
        (None, 4.0, None),
    ],
)
def test_an_equation_is_a_worked_solution_in_the_examples_form(
    equation: str | None, answer: float, solution: str | None
):
    problem = svamp.DATASET.read({**ROW, "Equation": equation, "Answer": answer})
    assert problem.solution == ("" if solution is None else f"{solution}\n\\boxed{{{answer:.0f}}}")


def test_solutions_are_written_on_request(tmp_path: Path):
    rows = [{**ROW, "Body": f"Tom has {n} pens.", "Answer": n + 1.0, "Equation": f"( {n}.0 + 1.0 )"} for n in range(9)]
    rows[4]["Equation"] = "( 1.0 + 1.0 )"
    (tmp_path / "svamp.json").write_text(json.dumps(rows))
    arguments = ["--input", str(tmp_path / "svamp.json"), "--local_save_dir", str(tmp_path), "--holdout_size", "2"]
    svamp.main([*arguments, "--solutions"])
    made = [row for name in ("svamp", "svamp_test") for row in pq.read_table(tmp_path / f"{name}.parquet").to_pylist()]
    truths = sorted(row["reward_model"]["ground_truth"] for row in made)
    assert truths == [str(n + 1) for n in range(9) if n != 4]
    for row in made:
        truth = int(row["reward_model"]["ground_truth"])
        assert row["golden_solution"] == f"{truth - 1} + 1 = {truth}\n\\boxed{{{truth}}}"
