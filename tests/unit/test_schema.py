"""Parquet files of the RL schema: what is accepted, and that every fault is found, named and located."""

import os

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_preprocess import validate
from verl_ext.data.schema import ParquetError, check_parquet, check_parquets, make_row, write_parquet


def row(index=0, **changes):
    made = make_row("arithmetic", "1+1=", "2", index=index, split="train", ability="math", extra_info={"kind": "easy"})
    return {**made, **changes}


def save(rows, path):
    """Write without any check of ours."""
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def problems(*paths):
    with pytest.raises(ParquetError) as caught:
        check_parquets(paths)
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
    return caught.value.problems


def test_a_string_prompt_becomes_one_user_message():
    assert row()["prompt"] == [{"role": "user", "content": "1+1="}]


def test_messages_and_further_columns_are_kept():
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1="}]
    made = make_row("d", messages, "2", index="a", split="val", ability="math", extra_info={"kind": "easy"}, golden="g")
    assert made["prompt"] == messages
    assert made["golden"] == "g"
    assert made["extra_info"] == {"kind": "easy", "index": "a", "split": "val"}


def test_ground_truth_that_is_not_text_is_refused_when_the_row_is_made():
    with pytest.raises(TypeError, match="ground_truth must be a str, got list"):
        make_row("d", "p", [1, 2], index=0, split="train", ability="math")


@pytest.mark.parametrize("index", [None, 1.0, True])
def test_index_that_is_neither_int_nor_text_is_refused_when_the_row_is_made(index):
    with pytest.raises(TypeError, match="index must be an int or a str"):
        make_row("d", "p", "2", index=index, split="train", ability="math")


@pytest.mark.parametrize("indices", [[0, 1, 2], ["a", "b", "c"]])
def test_written_rows_pass_the_check_and_read_back_equal(tmp_path, indices):
    rows = [row(index) for index in indices]
    path = tmp_path / "deep" / "train.parquet"
    write_parquet(rows, path)
    assert check_parquet(path).num_rows == 3
    assert pq.read_table(path).to_pylist() == rows


def test_a_column_that_only_later_rows_have_is_not_lost(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet([row(0), row(1, golden="g")], path)
    assert pq.read_table(path)["golden"].to_pylist() == [None, "g"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    write_parquet([row(0)], path)
    before = path.read_bytes()

    def half_write(table, target, **_):
        with open(target, "wb") as file:
            file.write(b"PAR1 half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", half_write)
    with pytest.raises(ParquetError, match="disk full"):
        write_parquet([row(1)], path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.parquet"]


def test_a_folder_that_is_a_file_is_an_error_of_one_line(tmp_path):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ParquetError, match=r"train\.parquet: cannot be written \(File exists\)"):
        write_parquet([row(0)], tmp_path / "data" / "train.parquet")


def test_rows_that_mix_types_in_a_column_are_not_written(tmp_path):
    with pytest.raises(ParquetError, match=r"column extra_info: the rows do not share one type"):
        write_parquet([row(0), row("b")], tmp_path / "a.parquet")
    assert os.listdir(tmp_path) == []


def test_other_suffixes_are_refused_when_writing_and_checking(tmp_path):
    with pytest.raises(ParquetError, match=r"ends in \.parquet, got \.json"):
        write_parquet([row()], tmp_path / "a.json")
    (tmp_path / "a.jsonl").write_text("{}")
    assert "ends in .parquet, got .jsonl" in problems(tmp_path / "a.jsonl")[0].message


def test_missing_files_folders_and_other_formats_are_told_apart(tmp_path):
    (tmp_path / "text.parquet").write_text("not parquet")
    (tmp_path / "folder.parquet").mkdir()
    found = problems(tmp_path / "no.parquet", tmp_path / "folder.parquet", tmp_path / "text.parquet")
    assert ["found nothing" in found[0].message, "found a folder" in found[1].message] == [True, True]
    assert "not a readable parquet file" in found[2].message


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


def test_every_missing_column_is_reported_at_once(tmp_path):
    path = save([{"question": "1+1="}], tmp_path / "a.parquet")
    found = problems(path)
    assert {p.column for p in found} == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert all("The file has: question." in p.message for p in found)


@pytest.mark.parametrize(
    ("changes", "column", "message"),
    [
        ({"data_source": 3}, "data_source", "expected text, got int64"),
        ({"data_source": ""}, "data_source", "is null or empty in 1 row(s): 2."),
        ({"prompt": "1+1="}, "prompt", "Wrap plain text as one user message"),
        ({"prompt": []}, "prompt", "has no messages in 1 row(s): 2."),
        ({"prompt": [{"role": "human", "content": "x"}]}, "prompt.role", "in 1 row(s): 2."),
        ({"prompt": [{"role": "user", "content": None}]}, "prompt.content", "is null in 1 row(s): 2."),
        ({"ability": None}, "ability", "is null or empty in 1 row(s): 2."),
        ({"reward_model": {"style": "rule", "ground_truth": 2}}, "reward_model", "Store ground truths as text"),
        ({"reward_model": {"style": "rule", "ground_truth": None}}, "reward_model.ground_truth", "is null"),
        ({"reward_model": {"style": "magic", "ground_truth": "2"}}, "reward_model.style", "is not one of rule, model"),
        ({"reward_model": None}, "reward_model.ground_truth", "is null in 1 row(s): 2."),
        ({"extra_info": {"kind": "easy", "index": None}}, "extra_info.index", "is missing in 1 row(s): 2."),
        ({"extra_info": None}, "extra_info.index", "is missing in 1 row(s): 2."),
        ({"extra_info": {"kind": "easy", "index": 2.5}}, "extra_info", "index must be int or text, got double"),
    ],
)
def test_a_fault_is_located_by_column_and_row(tmp_path, changes, column, message):
    # A fault of the type is a fault of the whole column, so there every row has it.
    everywhere = "expected" in message or "must be" in message or "Wrap" in message or "Store" in message
    rows = [row(i, **(changes if everywhere or i == 2 else {})) for i in range(4)]
    path = save(rows, tmp_path / "a.parquet")
    found = [p for p in problems(path) if p.column == column]
    assert len(found) == 1
    assert message in found[0].message
    assert found[0].file == path


def test_rows_are_numbered_through_the_batches_of_a_large_file(tmp_path):
    rows = [row(i) for i in range(70_000)]
    rows[66_000]["ability"] = ""
    (problem,) = problems(save(rows, tmp_path / "a.parquet"))
    assert problem.message == "is null or empty in 1 row(s): 66000."


def test_only_the_first_few_rows_are_named_and_the_rest_counted(tmp_path):
    path = save([row(i, ability="") for i in range(12)], tmp_path / "a.parquet")
    assert problems(path)[0].message == "is null or empty in 12 row(s): 0, 1, 2, 3, 4, ... (7 more)."


def test_an_extra_info_without_index_says_what_to_add(tmp_path):
    path = save([row(extra_info={"split": "train"})], tmp_path / "a.parquet")
    (problem,) = problems(path)
    assert problem.column == "extra_info"
    assert "extra_info.index = 0, 1, 2" in problem.message


def test_repeated_indices_are_named_with_their_rows_and_number(tmp_path):
    path = save([row(i) for i in (5, 6, 5, 7, 6, 5)], tmp_path / "a.parquet")
    (problem,) = problems(path)
    assert problem.column == "extra_info.index"
    assert "2 value(s) are repeated" in problem.message
    assert "5 (3 times: rows 0, 2, 5)" in problem.message
    assert "6 (2 times: rows 1, 4)" in problem.message


def test_missing_indices_do_not_count_as_repeated(tmp_path):
    rows = [row(0), row(1), row(2, extra_info=None), row(3, extra_info=None)]
    (problem,) = problems(save(rows, tmp_path / "a.parquet"))
    assert problem.message == "is missing in 2 row(s): 2, 3."


def test_an_index_may_not_be_used_by_two_training_files(tmp_path):
    first = save([row(0), row(1)], tmp_path / "a.parquet")
    second = save([row(2), row(1)], tmp_path / "b.parquet")
    assert check_parquet(first).num_rows == check_parquet(second).num_rows == 2
    (problem,) = problems(first, second)
    assert problem.file == second
    assert f"1 (2 times: rows 1 of {first}, 1)" in problem.message


def test_an_integer_and_its_text_are_the_same_index(tmp_path):
    paths = save([row(1)], tmp_path / "a.parquet"), save([row("1")], tmp_path / "b.parquet")
    assert "1 (2 times" in problems(*paths)[0].message


def test_a_file_without_rows_is_a_problem(tmp_path):
    pq.write_table(pa.Table.from_pylist([row()]).slice(0, 0), tmp_path / "a.parquet")
    assert "no rows" in problems(tmp_path / "a.parquet")[0].message


def test_files_written_by_pandas_pass(tmp_path):
    pd.DataFrame([row(i) for i in range(3)]).to_parquet(tmp_path / "a.parquet")
    assert check_parquet(tmp_path / "a.parquet").num_rows == 3


def test_the_command_line_prints_rows_and_returns_zero(tmp_path, capsys):
    path = save([row(0), row(1)], tmp_path / "a.parquet")
    assert validate.main([path]) == 0
    assert f"{path}: 2 rows" in capsys.readouterr().out


def test_the_command_line_prints_every_problem_and_returns_one(tmp_path, capsys):
    path = save([row(0, ability=""), row(0)], tmp_path / "a.parquet")
    assert validate.main([path, str(tmp_path / "no.parquet")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "3 problem(s)" in printed.err
