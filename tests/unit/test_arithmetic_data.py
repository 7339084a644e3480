"""The arithmetic data set: right answers, the promised mix, no prompt twice."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_preprocess import arithmetic
from data_preprocess.arithmetic import (
    POOLS,
    PoolSettings,
    Shares,
    answer,
    build_rows,
    draw_pairs,
    kind_of,
    main,
    num_carries,
)
from verl_ext.data.file_checks import check_files

SETTINGS = PoolSettings(train_size=300, val_size=100, seed=3)


def _files(settings: PoolSettings) -> tuple[list[dict], ...]:
    return tuple(build_rows(settings).values())


@pytest.fixture(scope="module")
def pool():
    return _files(SETTINGS)


def text(row):
    return row["prompt"][0]["content"]


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_answer_read_backwards_is_the_sum(a, b):
    assert int(answer(a, b)[::-1]) == a + b


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_each_carry_costs_nine_in_the_sum_of_digits(a, b):
    def digit_sum(number):
        return sum(map(int, str(number)))

    assert digit_sum(a) + digit_sum(b) - digit_sum(a + b) == 9 * num_carries(a, b)


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (4, 5, "easy"),
        (5, 5, "core"),
        (123, 321, "easy"),
        (1234, 1, None),
        (99999, 1, "core"),
        (123456, 12345, None),
        (123456, 123456, "hopeless"),
        (99999999, 1, None),
        (123456789, 123456, None),
    ],
)
def test_kinds_follow_from_digits_and_carries(a, b, kind):
    assert kind_of(a, b) == kind


def test_every_answer_is_exactly_the_sum_of_its_prompt(pool):
    for row in pool[0] + pool[1]:
        a, b = text(row).removesuffix("=").split("+")
        assert row["reward_model"]["ground_truth"] == str(int(a) + int(b))[::-1]


def test_extra_info_describes_the_prompt(pool):
    for row in pool[0] + pool[1]:
        a, b = text(row).removesuffix("=").split("+")
        info = row["extra_info"]
        assert (info["digits_first"], info["digits_second"]) == (len(a), len(b))
        assert info["kind"] == kind_of(int(a), int(b))
        assert info["carries"] == num_carries(int(a), int(b))


def test_no_prompt_appears_twice_in_or_across_the_files(pool):
    prompts = [text(row) for row in pool[0] + pool[1]]
    assert len(set(prompts)) == len(prompts) == 400


def test_no_index_appears_twice_in_or_across_the_files(pool):
    assert [row["extra_info"]["index"] for row in pool[0] + pool[1]] == list(range(400))


def test_training_and_validation_have_the_promised_mix(pool):
    for rows, size in zip(pool, (300, 100), strict=True):
        kinds = Counter(row["extra_info"]["kind"] for row in rows)
        assert kinds == POOLS["E"].counts(size)


def test_kinds_are_shuffled(pool):
    kinds = [row["extra_info"]["kind"] for row in pool[0]]
    assert sum(a != b for a, b in pairwise(kinds)) > 100


def test_the_few_short_prompts_reach_training_and_validation_in_proportion():
    train, val = _files(PoolSettings(train_size=4096, val_size=4096, shares=POOLS["C"]))

    def shortest(rows):
        return sum(len(text(row)) == 4 and row["extra_info"]["kind"] == "easy" for row in rows)

    # 55 sums of single digits have no carry; a validation file drawn after the training file would get none of them.
    assert min(shortest(train), shortest(val)) >= 10


def test_equal_seeds_give_equal_rows_and_other_seeds_others(pool):
    assert _files(SETTINGS) == pool
    other = _files(PoolSettings(train_size=300, val_size=100, seed=4))
    assert {text(row) for row in other[0]} != {text(row) for row in pool[0]}


@given(st.integers(1, 5000), st.sampled_from(sorted(POOLS)))
def test_counts_sum_to_the_size_and_are_off_by_less_than_one(size, name):
    counts = POOLS[name].counts(size)
    assert sum(counts.values()) == size
    assert all(abs(count - size * getattr(POOLS[name], kind)) < 1 for kind, count in counts.items())


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.5), (1.2, -0.2, 0.0)])
def test_shares_that_are_no_shares_are_refused(shares):
    with pytest.raises(ValueError, match="sum to 1"):
        Shares(*shares)


def test_asking_for_more_prompts_than_a_kind_has_is_an_error(monkeypatch):
    monkeypatch.setitem(arithmetic._DIGITS, "easy", range(1, 2))
    rng = np.random.default_rng(0)
    assert len(draw_pairs("easy", 55, rng)) == 55
    with pytest.raises(ValueError, match="found only 55 different easy prompts, expected 56"):
        draw_pairs("easy", 56, rng)


def test_the_command_line_writes_files_that_pass_the_check(tmp_path, capsys):
    main(["--local_save_dir", str(tmp_path), "--train_size", "50", "--val_size", "20", "--shares", ".5", ".3", ".2"])
    paths = [tmp_path / "train.parquet", tmp_path / "val.parquet"]
    assert check_files(paths).num_rows == 70
    assert set(pq.read_table(paths[0])["data_source"].to_pylist()) == {"arithmetic"}
    assert "25 hopeless, 15 easy, 10 core" in capsys.readouterr().out


def test_influence_prompts_are_a_third_file_that_shares_nothing():
    files = build_rows(PoolSettings(train_size=300, val_size=100, influence_size=80, seed=3))
    assert {name: len(rows) for name, rows in files.items()} == {"train": 300, "val": 100, "influence": 80}
    everything = [row for rows in files.values() for row in rows]
    assert len({row["prompt"][0]["content"] for row in everything}) == 480
    assert len({row["extra_info"]["index"] for row in everything}) == 480
