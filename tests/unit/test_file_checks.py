"""Data files before a run: what verl trains on is accepted, and every fault is found, named and located."""

import json
import os
import time

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_preprocess import validate
from verl_ext.data.data_files import open_file, read_rows
from verl_ext.data.file_checks import check_files
from verl_ext.data.schema import DataFileError, make_row, write_parquet
from verl_ext.data.schema_rules import FileRules

OWN_REWARD = FileRules(needs_source_name=False)
REWARD_MODEL = FileRules(needs_ground_truth=False, needs_source_name=False)
PARTS = [{"type": "image", "text": None}, {"type": "text", "text": "What is this?"}]


def row(index=0, **changes):
    made = make_row("arithmetic", "1+1=", "2", index=index, split="train", ability="math", extra_info={"kind": "easy"})
    return {name: value for name, value in {**made, **changes}.items() if value is not ...}


def save(rows, path):
    """Write without any of our checks, in the format that the file name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    else:
        path.write_text(json.dumps(rows))
    return str(path)


def problems(*paths, rules=None):
    with pytest.raises(DataFileError) as caught:
        check_files(paths, rules)
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
    return caught.value.problems


# ------------------------------ what verl trains on ------------------------------


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reward_model": {"ground_truth": 2}},
        {"reward_model": {"style": "rule", "ground_truth": 2.5}},
        {"reward_model": {"style": "rule", "ground_truth": ["2", "two"]}},
        {"reward_model": {"style": "anything", "ground_truth": {"tests": [1], "entry": "f"}}},
        {"ability": ...},
        {"ability": None},
        {"prompt": [{"role": "user", "content": PARTS}]},
        {"prompt": [{"role": "user", "content": "<image>What?"}], "images": [{"path": "a.png"}]},
        {"prompt": [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": None}]},
        {"extra_info": {"index": "a", "split": None}},
    ],
)
def test_what_verl_trains_on_is_accepted(tmp_path, changes, ending):
    assert check_files([save([row(**changes)], tmp_path / f"a.{ending}")]).rows == {str(tmp_path / f"a.{ending}"): 1}


def test_values_of_several_types_in_one_json_file_are_accepted(tmp_path):
    rows = [row(0, reward_model={"ground_truth": 2}), row(1, reward_model={"ground_truth": "two"})]
    rows[1]["prompt"] = [{"role": "user", "content": PARTS}]
    assert check_files([save(rows, tmp_path / "a.jsonl")]).num_rows == 2


def test_the_prompt_may_have_another_name(tmp_path):
    path = save([row(prompt=..., question=row()["prompt"])], tmp_path / "a.parquet")
    assert check_files([path], FileRules(prompt_key="question")).num_rows == 1
    (problem,) = problems(path)
    assert problem.message.endswith("Set data.prompt_key to the column of the messages.")


def test_what_the_rewards_do_not_read_is_not_asked_for(tmp_path):
    number = save([row(data_source=3), row(data_source=None)], tmp_path / "a.parquet")
    assert check_files([number], OWN_REWARD).num_rows == 2
    assert {problem.column for problem in problems(number)} == {"data_source"}
    bare = save([{"prompt": row()["prompt"]}], tmp_path / "b.parquet")
    assert check_files([bare], REWARD_MODEL).num_rows == 1
    assert {problem.column for problem in problems(bare, rules=OWN_REWARD)} == {"data_source", "reward_model"}


def test_a_pattern_stands_for_its_files(tmp_path):
    paths = [save([row(i)], tmp_path / f"train-{i}.parquet") for i in range(3)]
    assert list(check_files([f"{tmp_path}/train-*.parquet"]).rows) == paths
    assert "no file matches" in problems(f"{tmp_path}/val-*.parquet")[0].message


def test_a_role_that_few_templates_know_is_a_note(tmp_path):
    rows = [row(0), row(1, prompt=[{"role": "human", "content": "x"}])]
    (note,) = check_files([save(rows, tmp_path / "a.parquet")]).notes
    assert "column prompt.role: is none of system, developer, user, assistant, tool in 1 row(s): 1." in note


def test_files_written_by_pandas_pass(tmp_path):
    pd.DataFrame([row(i) for i in range(3)]).to_parquet(tmp_path / "a.parquet")
    assert check_files([tmp_path / "a.parquet"]).num_rows == 3


def test_a_million_rows_take_seconds(tmp_path):
    table = pa.Table.from_pylist([row(i) for i in range(10_000)])
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for _ in range(100):
            writer.write_table(table)
    began = time.process_time()
    report = check_files([tmp_path / "a.parquet"])
    assert time.process_time() - began < 30
    assert report.num_rows == 1_000_000
    assert "10,000 value(s) of extra_info.index are repeated" in report.index_gap


# ------------------------------ rows as Python objects ------------------------------


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl"])
def test_prompts_are_read_in_order_and_decoded(tmp_path, ending):
    prompts = [[{"role": "user", "content": str(number)}] for number in range(5000)]
    path = save([row(i, prompt=prompt) for i, prompt in enumerate(prompts)], tmp_path / f"a.{ending}")
    with open_file(path) as file:
        assert [prompt for chunk in file.prompts("prompt") for prompt in chunk] == prompts


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
@pytest.mark.parametrize("limit", [None, 1, 9])
def test_rows_without_an_index_are_numbered_when_read(tmp_path, ending, limit):
    rows = [row(extra_info={"kind": "easy"}), row(extra_info={"kind": "hard"})]
    read = read_rows(save(rows, tmp_path / f"a.{ending}"), limit)
    expected = [{"kind": "easy", "index": 0}, {"kind": "hard", "index": 1}]
    assert [each["extra_info"] for each in read] == expected[:limit]


# ------------------------------ indices ------------------------------


def gap(*paths):
    return check_files(paths).index_gap


def test_an_index_that_tells_all_rows_apart_is_kept(tmp_path):
    first, second = (save([row(i) for i in part], tmp_path / f"{part[0]}.parquet") for part in ([0, 1], [2, 3]))
    assert gap(first, second) is None
    assert gap(save([row(i) for i in "ab"], tmp_path / "text.parquet")) is None


@pytest.mark.parametrize(
    ("extra_info", "words"),
    [
        (..., "has no extra_info.index"),
        ({"split": "train"}, "has no extra_info.index"),
        ({"index": 1.5}, "has no extra_info.index"),
        (None, "has no extra_info.index"),
    ],
)
def test_a_missing_index_is_said(tmp_path, extra_info, words):
    assert words in gap(save([row(extra_info=extra_info)], tmp_path / "a.parquet"))


def test_rows_without_an_index_are_counted(tmp_path):
    path = save([row(0), row(1, extra_info=None), row(2, extra_info=None)], tmp_path / "a.parquet")
    assert gap(path) == f"extra_info.index is missing in 2 row(s) of {path}"


def test_repeated_indices_are_named_with_their_rows(tmp_path):
    path = save([row(i) for i in (5, 6, 5, 7, 6, 5)], tmp_path / "a.parquet")
    found = gap(path)
    assert "2 value(s) of extra_info.index are repeated" in found
    assert f"5 (row 0 of {path}, row 2 of {path}, row 5 of {path})" in found


def test_a_file_that_is_given_twice_is_read_twice(tmp_path):
    path = save([row(i) for i in range(2)], tmp_path / "a.parquet")
    report = check_files([path, path])
    assert report.rows == {path: 4}
    assert "2 value(s) of extra_info.index are repeated" in report.index_gap


def test_files_that_are_numbered_from_0_each_repeat_their_indices(tmp_path):
    first, second = (save([row(i) for i in range(9)], tmp_path / f"{name}.parquet") for name in "ab")
    assert gap(first) is None
    assert "9 value(s) of extra_info.index are repeated" in gap(first, second)
    assert f"(row 0 of {first}, row 0 of {second})" in gap(first, second)
    assert gap(first, second).endswith("; and 6 more")


# ------------------------------ what is refused ------------------------------


def test_missing_files_folders_and_other_formats_are_told_apart(tmp_path):
    (tmp_path / "text.parquet").write_text("not parquet")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "a.csv").write_text("a,b")
    found = problems(*(tmp_path / name for name in ("no.parquet", "folder.parquet", "text.parquet", "a.csv")))
    assert ["found nothing" in found[0].message, "found a folder" in found[1].message] == [True, True]
    assert "not a readable parquet file" in found[2].message
    assert "ends in .parquet or .json or .jsonl, got .csv" in found[3].message


@pytest.mark.parametrize("content", ['{"prompt": [1\n{', "no json", '{"prompt": "x"}\n[1, 2]'])
def test_damaged_json_is_named(tmp_path, content):
    (tmp_path / "a.jsonl").write_text(content)
    (problem,) = problems(tmp_path / "a.jsonl")
    assert "not readable as JSON" in problem.message


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_short_is_named(tmp_path, kept: float):
    path = tmp_path / "a.parquet"
    write_parquet([row(i) for i in range(500)], path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    (problem,) = problems(path)
    assert "not a readable parquet file" in problem.message


@pytest.mark.parametrize("place", [0.05, 0.2, 0.5])
def test_a_byte_that_changed_on_the_disk_is_noticed(tmp_path, place: float):
    path = tmp_path / "a.parquet"
    write_parquet([row(i) for i in range(2000)], path)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0x10
    path.write_bytes(content)
    (problem,) = problems(path)
    assert "the file is damaged" in problem.message


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_every_missing_column_is_reported_at_once(tmp_path, ending):
    found = problems(save([{"question": "1+1="}], tmp_path / f"a.{ending}"))
    assert {p.column for p in found} == {"data_source", "prompt", "reward_model"}
    assert all("The file has: question." in p.message for p in found)


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("changes", "column", "message"),
    [
        ({"data_source": 3}, "data_source", "expected text, by which verl chooses its reward function, got int64"),
        ({"data_source": ""}, "data_source", "is null or empty in 1 row(s): 2."),
        ({"data_source": None}, "data_source", "is null or empty in 1 row(s): 2."),
        ({"prompt": "1+1="}, "prompt", "Wrap plain text as one user message"),
        ({"prompt": []}, "prompt", "has no messages in 1 row(s): 2."),
        ({"prompt": None}, "prompt", "has no messages in 1 row(s): 2."),
        ({"prompt": [{"role": None, "content": "x"}]}, "prompt.role", "is null in 1 row(s): 2."),
        ({"prompt": [{"role": "user", "content": None}]}, "prompt.content", "is null in 1 row(s): 2."),
        ({"reward_model": {"style": "rule"}}, "reward_model", "a field ground_truth"),
        ({"reward_model": {"style": "rule", "ground_truth": None}}, "reward_model.ground_truth", "is null"),
        ({"reward_model": None}, "reward_model.ground_truth", "is null in 1 row(s): 2."),
        ({"extra_info": '{"index": 0}'}, "extra_info", "expected a struct, got string"),
    ],
)
def test_a_fault_is_located_by_column_and_row(tmp_path, changes, column, message, ending):
    # A wrong type is a fault of the whole column, so there every row has it.
    everywhere = "expected" in message or "Wrap" in message or "a field" in message
    rows = [row(i, **(changes if everywhere or i == 2 else {})) for i in range(4)]
    path = save(rows, tmp_path / f"a.{ending}")
    found = [p for p in problems(path) if p.column == column]
    assert len(found) == 1
    assert message in found[0].message
    assert found[0].file == path


def test_a_ground_truth_that_is_null_is_found_among_values_of_several_types(tmp_path):
    truths = [2, "two", None, [2]]
    rows = [row(i, reward_model={"ground_truth": truth}) for i, truth in enumerate(truths)]
    (problem,) = problems(save(rows, tmp_path / "a.jsonl"))
    assert str(problem).endswith("column reward_model.ground_truth: is null in 1 row(s): 2.")


def test_content_that_is_null_is_found_beside_text_and_parts(tmp_path):
    contents = ["x", PARTS, None]
    rows = [row(i, prompt=[{"role": "user", "content": content}]) for i, content in enumerate(contents)]
    (problem,) = problems(save(rows, tmp_path / "a.jsonl"))
    assert str(problem).endswith("column prompt.content: is null in 1 row(s): 2.")


def test_rows_are_numbered_through_the_batches_of_a_large_file(tmp_path):
    rows = [row(i) for i in range(70_000)]
    rows[66_000]["data_source"] = ""
    (problem,) = problems(save(rows, tmp_path / "a.parquet"))
    assert problem.message == "is null or empty in 1 row(s): 66000."


def test_only_the_first_few_rows_are_named_and_the_rest_counted(tmp_path):
    path = save([row(i, data_source="") for i in range(12)], tmp_path / "a.parquet")
    assert problems(path)[0].message == "is null or empty in 12 row(s): 0, 1, 2, 3, 4, ... (7 more)."


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl"])
def test_a_file_without_rows_is_a_problem(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist([row()]).slice(0, 0), path)
    else:
        path.write_text("")
    assert "no rows" in problems(path)[0].message


def test_files_that_verl_cannot_join_are_refused(tmp_path):
    first = save([row(0)], tmp_path / "a.parquet")
    more = save([row(1, golden="g")], tmp_path / "b.parquet")
    fewer = save([row(2, extra_info={"index": 2})], tmp_path / "c.parquet")
    other = save([row("d")], tmp_path / "d.parquet")
    assert check_files([first, more, fewer]).num_rows == 3  # missing columns and fields are filled in
    (problem,) = problems(first, more, other, fewer)
    assert problem.file == other
    assert "the key index" in problem.message
    assert "Write them with the same fields" in problem.message


# ------------------------------ the command ------------------------------


def test_the_command_line_prints_rows_and_returns_zero(tmp_path, capsys):
    path = save([row(0), row(1)], tmp_path / "a.parquet")
    assert validate.main([path]) == 0
    printed = capsys.readouterr().out
    assert f"{path}: 2 rows" in printed
    assert "every extra_info.index is unique" in printed


def test_the_command_line_says_that_an_index_will_be_made(tmp_path, capsys):
    path = save([row(0, prompt=..., question=row()["prompt"])] * 2, tmp_path / "a.jsonl")
    assert validate.main([path, "--prompt_key", "question"]) == 0
    assert "an index will be made for each from its content" in capsys.readouterr().out


def test_the_command_line_prints_every_problem_and_returns_one(tmp_path, capsys):
    path = save([row(0, data_source=""), row(0, prompt=[])], tmp_path / "a.parquet")
    assert validate.main([path, str(tmp_path / "no.parquet")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "3 problem(s)" in printed.err
    assert os.listdir(tmp_path) == ["a.parquet"]
