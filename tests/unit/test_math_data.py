"""The scripts for mathematics data sets: which rows they keep, what they report, and the files they write."""

import gzip
import hashlib
import importlib
import json
import random
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_preprocess.math.data import CONFLICT, REPEATED, MathSet, collect
from verl_ext.data.file_checks import check_files
from verl_ext.data.math_instructions import INSTRUCTION
from verl_ext.data.row_choice import draw
from verl_ext.data.row_report import UnusableRow
from verl_ext.data.row_source import SUFFIXES, HubSource, SourceError, read_file
from verl_ext.data.schema import make_row, write_parquet

TRAINING = ["dapo_math_17k", "numina_math", "openmath_reasoning", "gsm8k", "math_train", "deepscaler"]
WRITTEN = ["dapo_1000.parquet", "dapo_1000_val.parquet", "dapo_math_17k.parquet"]
TESTING = ["math500", "aime24", "aime25", "amc23"]


def script(name: str) -> ModuleType:
    return importlib.import_module(f"data_preprocess.{name}")


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prompts(path: Path) -> list[str]:
    return [row["prompt"][0]["content"] for row in pq.read_table(path).to_pylist()]


def questions(count: int) -> list[dict[str, Any]]:
    return [{"problem": f"What is {n} plus {n * n}?", "answer": str(n + n * n)} for n in range(count)]


@pytest.mark.parametrize("name", TRAINING + TESTING)
def test_a_row_is_verls_schema_with_the_instruction(name: str, tmp_path: Path):
    answer = "so #### 1,025" if name == "gsm8k" else "025"
    source = write_jsonl(tmp_path / "in.jsonl", [{"problem": " What? ", "answer": answer}, *questions(0)])
    extra = ["--holdout_size", "1"] if name == "dapo_math_17k" else []
    if extra:
        source = write_jsonl(tmp_path / "in.jsonl", questions(2))
    script(name).main(["--input", str(source), "--local_save_dir", str(tmp_path), *extra])
    path = tmp_path / f"{name}.parquet"
    assert check_files([path]).num_rows == 1
    row = pq.read_table(path).to_pylist()[0]
    assert row["data_source"] == script(name).DATASET.name == name
    assert row["extra_info"]["split"] == ("test" if name in TESTING else "train")
    if not extra:
        assert row["prompt"] == [{"role": "user", "content": f"What?\n{INSTRUCTION}"}]
        assert row["extra_info"]["index"] == f"{name}/0"
        expected = {"gsm8k": "1025", "aime24": "25", "aime25": "25", "amc23": "25"}.get(name, "025")
        assert row["reward_model"] == {"style": "rule", "ground_truth": expected}


def test_all_sets_can_be_trained_on_together(tmp_path: Path):
    import datasets

    for name in ("deepscaler", "math_train"):
        rows = [{**row, "level": "Level 5", "type": "Algebra"} for row in questions(3)]
        source = write_jsonl(tmp_path / "in.jsonl", rows if name == "math_train" else questions(3))
        script(name).main(["--input", str(source), "--local_save_dir", str(tmp_path)])
    files = [tmp_path / "deepscaler.parquet", tmp_path / "math_train.parquet"]
    assert check_files(files).num_rows == 6
    parts = [datasets.Dataset.from_parquet(str(f), cache_dir=str(tmp_path / "cache")) for f in files]
    details = datasets.concatenate_datasets(parts)[3]["extra_info"]
    assert (details["difficulty"], details["subject"]) == ("5", "Algebra")


def test_repeats_go_and_contradictions_go_with_all_their_copies():
    rows = [
        {"problem": "What is $x$?", "answer": "1"},
        {"problem": "what  is x?", "answer": " 1 "},
        {"problem": "Odd one", "answer": "1"},
        {"problem": "odd one", "answer": "2"},
        {"problem": "odd ONE", "answer": "1"},
        {"problem": "", "answer": "1"},
        {"problem": "No answer", "answer": None},
        {"problem": "Noise", "answer": "22099999999999998951424"},
        {"problem": "Boxed", "solution": "\\boxed{\\frac{1}{2}}"},
    ]
    entries, counts = collect(script("deepscaler").DATASET, "train", rows)
    assert [(e.index, e.problem.answer) for e in entries] == [("deepscaler/0", "1"), ("deepscaler/8", "\\frac{1}{2}")]
    assert counts == {
        "rows read": 9,
        REPEATED: 1,
        CONFLICT: 3,
        "no question": 1,
        "no answer": 1,
        "answer is a rounded double": 1,
    }


def test_broken_unicode_is_a_reason_to_go():
    rows = [{"problem": "\ud800", "answer": "1"}, *questions(1)]
    entries, counts = collect(script("deepscaler").DATASET, "train", rows)
    assert len(entries) == 1
    assert counts["broken Unicode"] == 1


def test_test_sets_keep_their_repeats():
    entries, counts = collect(script("amc23").DATASET, "test", questions(2) * 2)
    assert [entry.index for entry in entries] == [f"amc23/{n}" for n in range(4)]
    assert counts == {"rows read": 4}


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("numina_math", {"question_type": "proof", "answer": "proof"}, "proof"),
        ("numina_math", {"question_type": "MCQ", "answer": "C"}, "multiple choice"),
        ("numina_math", {"answer": "notfound"}, "no answer"),
        ("numina_math", {"answer": "3", "problem_is_valid": "Incomplete"}, "not problem_is_valid"),
        ("numina_math", {"solution": "Hence the claim."}, "no answer"),
        ("openmath_reasoning", {"expected_answer": "3", "problem_type": "no_answer_extracted"}, "majority vote"),
        ("openmath_reasoning", {"expected_answer": "3", "problem_type": "converted_proof"}, "converted proof"),
        ("gsm8k", {"answer": "so 42"}, "no answer after ####"),
        ("gsm8k", {"answer": None}, "no answer after ####"),
        ("svamp", {"Body": "Tom.", "Question": ""}, "no question"),
        ("svamp", {"Body": "Tom.", "Question": "How many?", "Answer": None}, "no answer"),
        ("math_train", {"final_answer": ["3", "4"]}, "several answers"),
        ("math_train", {"final_answer": [], "solution": ["Hence the claim."]}, "no answer"),
        ("math_train", {"final_answer": ["3", "4"], "is_multiple_answer": False}, "several answers"),
        ("deepscaler", {"answer": "\\frac{1}{2"}, "braces of the answer do not match"),
        ("deepscaler", {"answer": "because " * 200}, "answer has more than 1,000 characters"),
    ],
)
def test_rows_without_a_checkable_answer_go_with_their_reason(name: str, row: dict[str, Any], reason: str):
    with pytest.raises(UnusableRow, match=reason):
        script(name).DATASET.read({"problem": "What?", **row})


@pytest.mark.parametrize(
    ("name", "row", "answer"),
    [
        ("numina_math", {"question_type": "math-word-problem", "problem_is_valid": "Yes", "answer": "3"}, "3"),
        ("numina_math", {"solution": "\\boxed{x^{2}}"}, "x^{2}"),
        ("openmath_reasoning", {"expected_answer": "3", "problem_type": "has_answer_extracted"}, "3"),
        ("openmath_reasoning", {"generated_solution": "\\boxed{4}"}, "4"),
        ("gsm8k", {"answer": "2 #### is wrong\n#### -1,234"}, "-1234"),
        ("dapo_math_17k", {"reward_model": {"ground_truth": "34"}}, "34"),
        # As in OlympiadBench.
        ("math_train", {"final_answer": ["5"], "solution": ["First,", "then \\boxed{6}."]}, "5"),
        ("math_train", {"final_answer": None, "solution": ["First,", "then \\boxed{6}."]}, "6"),
        ("math_train", {"final_answer": ["$69$,$84$"], "is_multiple_answer": True, "unit": None}, "69,84"),
        ("math_train", {"final_answer": ["$-2$", "2"], "is_multiple_answer": True}, "-2, 2"),
        ("math_train", {"final_answer": ["$166$"], "is_multiple_answer": False, "unit": "$cm^2$"}, "166"),
        ("math_train", {"final_answer": ["3", "3"]}, "3"),
        ("math_train", {"answer": "\\$5 and $x$"}, "\\$5 and $x$"),
        ("math_train", {"answer": 0}, "0"),
    ],
)
def test_the_answer_comes_from_the_proper_field(name: str, row: dict[str, Any], answer: str):
    assert script(name).DATASET.read({"problem": "What?", **row}).answer == answer


def test_worked_solutions_are_written_on_request_and_agree_with_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = [
        {"question": "What is 3 x 4?", "answer": "It is 3 x 4 = <<3*4=12>>12.\n#### 12"},
        {"question": "What is 999 + 1?", "answer": "#### 1,000"},
    ]
    arguments = ["--input", str(write_jsonl(tmp_path / "in.jsonl", rows)), "--local_save_dir", str(tmp_path)]
    script("gsm8k").main([*arguments, "--solutions"])
    written = pq.read_table(tmp_path / "gsm8k.parquet").to_pylist()
    assert [row["golden_solution"] for row in written] == [
        "It is 3 x 4 = 12.\nThe answer is \\boxed{12}.",
        "The answer is \\boxed{1000}.",
    ]
    script("gsm8k").main(arguments)
    assert "golden_solution" not in pq.read_table(tmp_path / "gsm8k.parquet").column_names

    solutions = [r"So \boxed{\frac12}.", r"So \boxed{\frac13}.", "One half."]
    rows = [{"problem": f"Half of {n}?", "answer": "0.5", "solution": text} for n, text in enumerate(solutions)]
    arguments[1] = str(write_jsonl(tmp_path / "in.jsonl", rows))
    script("math_train").main([*arguments, "--solutions"])
    written = pq.read_table(tmp_path / "math_train.parquet").to_pylist()
    assert [row["golden_solution"] for row in written] == [solutions[0]]
    printed = capsys.readouterr().out
    assert re.search(r"its worked solution has another answer +1\n", printed)
    assert re.search(r"no worked solution +1\n", printed)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_test_set(tmp_path: Path):
    source = write_jsonl(tmp_path / "in.jsonl", questions(60))
    digests, held = [], []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        args = ["--input", str(source), "--local_save_dir", str(tmp_path / folder), "--seed", str(seed)]
        script("dapo_math_17k").main([*args, "--holdout_size", "20", "--validation_size", "7"])
        files = sorted((tmp_path / folder).glob("*.parquet"))
        assert [file.name for file in files] == WRITTEN
        assert check_files([files[0], files[2]]).num_rows == 60
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
        held.append(set(prompts(files[0])))
        assert len(held[-1]) == 20
        assert not held[-1] & set(prompts(files[2]))
        assert set(prompts(files[1])) < held[-1]
        assert len(prompts(files[1])) == 7
    assert digests[0] == digests[1]
    assert held[0] != held[2]


def test_what_is_held_out_does_not_depend_on_the_order_of_the_rows():
    rows = questions(50)
    shuffled = random.Random(0).sample(rows, len(rows))
    dataset = MathSet("m", {"train": HubSource("a/b", "train")})
    drawn = [{e.key for e in draw(collect(dataset, "train", r)[0], 10, seed=3)[0]} for r in (rows, shuffled)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 10


def test_questions_of_a_test_set_are_reported_and_on_request_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = write_jsonl(tmp_path / "in.jsonl", questions(10))
    raw = write_jsonl(tmp_path / "raw.jsonl", [{"question": "what is $3$ plus 9 ?"}, {"question": "Other?"}])
    script("amc23").main(
        ["--input", str(write_jsonl(tmp_path / "t.jsonl", questions(2))), "--local_save_dir", str(tmp_path)]
    )
    arguments = ["--input", str(source), "--local_save_dir", str(tmp_path)]
    capsys.readouterr()
    script("deepscaler").main([*arguments, "--report_overlap", str(raw), str(tmp_path / "amc23.parquet")])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [str(raw), "2", "1", "0"] in lines
    assert [str(tmp_path / "amc23.parquet"), "2", "2", "0"] in lines
    assert len(prompts(tmp_path / "deepscaler.parquet")) == 10
    script("deepscaler").main([*arguments, "--exclude_overlap", str(raw), str(tmp_path / "amc23.parquet")])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [str(raw), "2", "1", "0", "left", "out"] in lines
    assert not any("What is 3 plus" in prompt for prompt in prompts(tmp_path / "deepscaler.parquet"))
    assert len(prompts(tmp_path / "deepscaler.parquet")) == 7


@pytest.mark.parametrize(
    "instruction",
    [
        "Let's think step by step and output the final answer within \\boxed{}.",
        'Let\'s think step by step and output the final answer after "####".',
    ],
)
def test_a_file_of_verls_examples_overlaps_with_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], instruction: str
):
    """Files as verl's examples/data_preprocess write them, against our raw questions, and the other way round."""
    texts = [(f"{row['problem']} {instruction}", row["answer"]) for row in questions(4)]
    rows = [make_row("openai/gsm8k", *text, index=n, split="test", ability="math") for n, text in enumerate(texts)]
    theirs, ours = tmp_path / "verl.parquet", write_jsonl(tmp_path / "in.jsonl", questions(10))
    write_parquet(rows, theirs)
    arguments = ["--local_save_dir", str(tmp_path)]
    script("deepscaler").main(["--input", str(ours), *arguments, "--exclude_overlap", str(theirs)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [str(theirs), "4", "4", "0", "left", "out"] in lines
    assert len(prompts(tmp_path / "deepscaler.parquet")) == 6
    script("deepscaler").main(["--input", str(theirs), *arguments])
    assert prompts(tmp_path / "deepscaler.parquet")[0] == f"What is 0 plus 0?\n{INSTRUCTION}"


def test_a_reworded_copy_of_a_held_out_question_is_not_trained_on(tmp_path: Path):
    text = "Nina has {n} red and {n} blue marbles in a bag and draws two of them. How many ways are there"
    rows = [{"problem": text.format(n=n) + end, "answer": "1"} for n in range(3, 23) for end in ("?", " to do so?")]
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    script("dapo_math_17k").main(["--input", str(source), "--local_save_dir", str(tmp_path), "--holdout_size", "8"])
    numbers = [
        {prompt.split()[2] for prompt in prompts(tmp_path / f"{name}.parquet")}
        for name in ("dapo_1000", "dapo_math_17k")
    ]
    assert not numbers[0] & numbers[1]
    assert numbers[1]


def test_max_rows_draws_by_the_seed(tmp_path: Path):
    source = write_jsonl(tmp_path / "in.jsonl", questions(30))
    script("deepscaler").main(["--input", str(source), "--local_save_dir", str(tmp_path), "--max_rows", "5"])
    assert len(prompts(tmp_path / "deepscaler.parquet")) == 5


def test_every_format_is_read_alike(tmp_path: Path):
    rows = questions(3)
    write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "a.json").write_text(json.dumps(rows))
    for name in ("a.jsonl", "a.json"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("problem,answer\n" + "".join(f'"{r["problem"]}",{r["answer"]}\n' for r in rows))
    lines = "".join(f"{row['problem']}\t{row['answer']}\n" for row in rows)
    (tmp_path / "a.tsv").write_text(f"\ufeffproblem\tanswer\n{lines}")  # as Excel begins its files
    for name in ("a.csv", "a.tsv"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    for name in [f"a{suffix}" for suffix in SUFFIXES]:
        assert list(read_file(tmp_path / name)) == rows


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a"', "line 2: expected one JSON object per line"),
        ("a.jsonl", b"[1]", "line 1: expected a JSON object, got list"),
        ("a.json", b'{"a": 1}', "expected a list of JSON objects, got dict"),
        ("a.json", b'{"a": 1}\n{"a": 2}', r"Name it \.jsonl"),
        ("a.jsonl.gz", b"plain", r"not readable as \.jsonl\.gz"),
        ("a.parquet", b"plain", r"not readable as \.parquet"),
        ("a.txt", b"a,b", r"expected a file ending in \.jsonl"),
        ("a.csv", b"a,b\n1", "line 2: expected 2 values, as the first line has names, got 1"),
        ("a.csv", b"a,a\n1,2", "names 'a' twice"),
        ("a.jsonl", b'{"a": "\xe9"}', r"not readable as \.jsonl"),
        ("a.jsonl", b"[" * 100_000, "line 1: expected one JSON object per line"),
        ("a.json", b'[{"a": ' + b"9" * 5000 + b"}]", "Exceeds the limit"),
        ("a.json.gz", gzip.compress(b"[]", mtime=0)[:10] + b"\xff" * 9, r"not readable as \.json\.gz"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message) as error:
        list(read_file(tmp_path / name))
    assert str(tmp_path / name) in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--input", "{dir}"], "expected a file ending in"),
        (["--input", "{dir}/empty.jsonl"], "no row is usable .*no answer: 1.* columns: problem. Is it dapo_math_17k?"),
        (["--input", "{dir}/nothing.jsonl"], "the file has no rows"),
        (["--input", "{dir}/in.jsonl", "--holdout_size", "9"], "--holdout_size 9 of 5 usable questions leaves none"),
        (["--input", "{dir}/in.jsonl", "--report_overlap", "{dir}/none.jsonl"], "no row has a question"),
    ],
)
def test_errors_end_with_their_message_and_write_nothing(tmp_path: Path, arguments: list[str], message: str):
    write_jsonl(tmp_path / "in.jsonl", questions(5))
    write_jsonl(tmp_path / "empty.jsonl", [{"problem": "What?"}])
    write_jsonl(tmp_path / "nothing.jsonl", [])
    write_jsonl(tmp_path / "none.jsonl", [{"text": "What?"}])
    arguments = [argument.format(dir=tmp_path) for argument in arguments]
    with pytest.raises(SystemExit, match=message):
        script("dapo_math_17k").main([*arguments, "--local_save_dir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_an_unreachable_hub_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import datasets

    def offline(name: str, config: str | None, split: str) -> None:
        assert (name, config, split) == ("openai/gsm8k", "main", "test")
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(SystemExit, match=r"openai/gsm8k: neither a local file.*no route.*--input FILE"):
        script("gsm8k").main(["--local_save_dir", str(tmp_path)])
