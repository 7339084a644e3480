"""Rows of the RL schema are made and written correctly, or not at all."""

import os

import pyarrow.parquet as pq
import pytest

from verl_ext.data.file_checks import check_files
from verl_ext.data.schema import ParquetError, make_row, write_parquet


def row(index=0, **changes):
    made = make_row("arithmetic", "1+1=", "2", index=index, split="train", ability="math", extra_info={"kind": "easy"})
    return {**made, **changes}


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
    assert check_files([path]).num_rows == 3
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


def test_other_suffixes_are_not_written(tmp_path):
    with pytest.raises(ParquetError, match=r"ends in \.parquet, got \.json"):
        write_parquet([row()], tmp_path / "a.json")
