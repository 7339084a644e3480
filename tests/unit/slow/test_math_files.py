"""The scripts on the real files of the development data: how many rows stay, and which overlaps are found."""

import importlib
from collections import Counter
from pathlib import Path

import pytest

from data_preprocess.math.command import compare
from data_preprocess.math.data import CONFLICT, REPEATED, collect
from data_preprocess.math.overlap import OverlapIndex, fingerprint
from data_preprocess.math.source import read_questions
from verl_ext.data.row_source import read_file

MATH = Path(__file__).resolve().parents[4] / "shared" / "data" / "math"

pytestmark = pytest.mark.skipif(not MATH.is_dir(), reason=f"no development data: {MATH.name}/ is missing")


def read(name: str, file: str, split: str):
    return collect(importlib.import_module(f"data_preprocess.{name}").DATASET, split, read_file(MATH / file))


@pytest.mark.parametrize(
    ("name", "file", "split", "rows"),
    [
        ("math500", "math500_test.jsonl.gz", "test", 500),
        ("aime24", "aime24.jsonl", "test", 30),
        ("aime25", "aime25.jsonl", "test", 30),
        ("amc23", "amc23.jsonl", "test", 40),
        ("gsm8k", "gsm8k_test.jsonl.gz", "test", 1319),
        ("gsm8k", "gsm8k_train.jsonl.gz", "train", 7473),
    ],
)
def test_these_sets_stay_whole(name: str, file: str, split: str, rows: int):
    entries, counts = read(name, file, split)
    assert len(entries) == rows
    assert counts == {"rows read": rows}
    if name in ("gsm8k", "aime24", "aime25", "amc23"):
        assert all(entry.problem.answer.lstrip("-").isdigit() for entry in entries)
    if name == "math500":
        assert {entry.problem.difficulty for entry in entries} == set("12345")


def test_math_train_loses_its_rows_without_an_answer():
    entries, counts = read("math_train", "math_train_rllm7474.jsonl.gz", "train")
    assert len(entries) == 7463
    assert counts == {"rows read": 7474, "no answer": 4, CONFLICT: 4, REPEATED: 3}
    assert {entry.problem.difficulty for entry in entries} <= {f"{n / 2:g}" for n in range(20)}


@pytest.fixture(scope="module")
def dapo():
    return read("dapo_math_17k", "dapo_math_17k_dedup.jsonl.gz", "train")


def test_dapo_loses_repeats_contradictions_and_the_rounded_double(dapo):
    entries, counts = dapo
    assert len(entries) == 16532
    assert counts == {"rows read": 17243, REPEATED: 692, CONFLICT: 18, "answer is a rounded double": 1}


def test_dapos_overlap_with_the_test_sets_is_found(dapo):
    # (same text, reworded); the data's README counts 25 of AMC23 and 25 of MATH-500.
    expected = {
        "amc23.jsonl": (6, 21),
        "math500_test.jsonl.gz": (6, 17),
        "aime24.jsonl": (0, 0),
        "aime25.jsonl": (0, 0),
    }
    tests = {file: OverlapIndex(read_questions(MATH / file)) for file in expected}
    overlaps = compare(dapo[0], tests, set(), Counter())[1]
    assert {file: (overlap.same_text, overlap.reworded) for file, overlap in overlaps.items()} == expected


def test_gsm8k_does_not_train_on_its_test_questions():
    test = OverlapIndex(read_questions(MATH / "gsm8k_test.jsonl.gz"))
    assert not any(test.find(fingerprint(question)) for question in read_questions(MATH / "gsm8k_train.jsonl.gz"))
