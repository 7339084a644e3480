"""Figures of tests/benchmarks/svamp_answers.py, from made-up answers."""

import json
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from svamp_answers import Answer, count, main, value

RIGHT = Answer("9", "15 - 6 = 9\n\\boxed{9}", "9", True)
WRONGLY_CALCULATED = Answer("9", "15 - 6 = 8\n\\boxed{8}", "8", False)
GUESSED = Answer("2", "Alan - 1 = 2\n\\boxed{2}", "2", True)
SILENT = Answer("4", "I like", "", False)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("15 - 6 = 9\n\\boxed{9}", 9),
        ("15 - 6 = 1\n\\boxed{1}", 9),  # what the numbers give, not what its writer made of them
        ("7 / 2 = 3\n\\boxed{3}", Fraction(7, 2)),
        ("2 - 5 = 3\n\\boxed{3}", -3),
        ("7 / 0 = 7\n\\boxed{7}", None),
        ("So 15 - 6 = 9\n\\boxed{9}", None),
        ("15 - 6 = 9", None),
        ("15 - 6 = 9\n\\boxed{9} and more", None),
    ],
)
def test_the_value_of_a_calculation(response: str, expected: Fraction | int | None):
    assert value(response) == expected


def test_shares_by_the_problems_answer():
    shares = count([RIGHT, WRONGLY_CALCULATED, GUESSED, SILENT])
    assert shares.correct == pytest.approx(1 / 2)
    assert shares.correct_frequent == 1
    assert shares.correct_other == pytest.approx(1 / 3)
    assert shares.in_form == pytest.approx(1 / 2)
    assert shares.right_calculation == pytest.approx(1 / 2)
    assert count([GUESSED, GUESSED, RIGHT]).most_frequent == "2"
    assert count([GUESSED, GUESSED, RIGHT]).most_frequent_share == pytest.approx(2 / 3)


def test_the_command_prints_a_row_per_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = tmp_path / "data.parquet"
    pq.write_table(pa.table({"reward_model": [{"ground_truth": "9"}, {"ground_truth": "2"}]}), data)
    evaluation = tmp_path / "arm_seed0" / "evaluation"
    evaluation.mkdir(parents=True)
    records = [{"evaluation_settings": {}}]
    for row, answer in enumerate([WRONGLY_CALCULATED, GUESSED]):
        sample = {"response": answer.response, "pred": answer.pred, "correct": answer.correct}
        records.append({"row": row, "samples": [sample]})
    samples = evaluation / "samples.jsonl"
    samples.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    main([str(evaluation), "--data", str(data)])
    assert "| arm_seed0 | 0.500 | 1.000 | 0.000 | 50 % | 50 % | 8, 50 % |" in capsys.readouterr().out
    samples.write_text(json.dumps({"evaluation_settings": {}}))
    with pytest.raises(SystemExit, match="expected samples of an evaluation, found none"):
        main([str(evaluation), "--data", str(data)])
