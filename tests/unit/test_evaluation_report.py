"""Results of scored samples, and that table, JSON and picture show them."""

import json
import statistics
from pathlib import Path

import pytest

from verl_ext.evaluation.statistics.report import combine, render, summarize_data_set, write_json, write_plot
from verl_ext.evaluation.statistics.samples import ScoredResponse


def samples(*preds: str | None, right: str = "1") -> list[ScoredResponse]:
    return [ScoredResponse(f"so {pred}", float(pred == right), pred == right, pred, pred == "", 5) for pred in preds]


VAL = [
    samples("1", "1", "2", "1"),
    samples("2", "2", "2", "2"),
    samples("1", "1", "1", "1"),
    samples("1", "2", "2", ""),
]


def val(name: str = "val", **kwargs):
    return summarize_data_set(name, f"{name}.parquet", [10, 11, 12, 13], VAL, (1, 4), **kwargs)


def test_every_metric_is_a_mean_over_prompts_with_an_interval():
    result = val()
    assert {metric: estimate.value for metric, estimate in result.estimates.items()} == pytest.approx(
        {
            "pass@1": (0.75 + 0 + 1 + 0.25) / 4,
            "pass@4": 0.75,
            "maj@4": 0.5,
            "avg@4": 0.5,
            "response_length": 5.0,
            "truncated": 1 / 16,
            "0/n": 0.25,
            "n/n": 0.25,
        }
    )
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in result.estimates.values())
    assert result.mean_score == result.summary.pass_rate == 0.5
    assert [prompt["index"] for prompt in result.prompts] == [10, 11, 12, 13]
    assert result.prompts[0]["maj@4"] == 1.0
    assert result.prompts[3]["truncated"] == 0.25


def graded(*values: float, acc: bool = False) -> list[ScoredResponse]:
    return [
        ScoredResponse("", -value if acc else value, False, None, False, 1, value if acc else None) for value in values
    ]


@pytest.mark.parametrize("acc", [False, True])
def test_the_success_threshold_is_for_pass_rates_and_the_average_is_of_rewards(acc: bool):
    samples_P = [graded(0.2, 0.8, acc=acc), graded(0.5, 0.9, acc=acc)]
    for threshold, rate in ((1.0, 0.0), (0.8, 0.5), (0.5, 0.75)):
        result = summarize_data_set("a", "a.parquet", [0, 1], samples_P, (1,), success_threshold=threshold)
        assert result.summary.pass_rate == result.estimates["pass@1"].value == rate
        assert result.estimates["avg@2"].value == pytest.approx(0.6)
        assert result.prompts[0]["avg@2"] == pytest.approx(0.5)


def test_the_error_over_repeats_is_that_of_the_repeats_means():
    result = val()
    means = [sum(prompt[repeat].correct for prompt in VAL) / 4 for repeat in range(4)]
    assert result.repeat_errors["avg@4"] == pytest.approx(statistics.stdev(means) / 2)
    assert result.repeat_errors["response_length"] == 0.0
    once = summarize_data_set("once", "o.parquet", [0], [samples("1")], (1,))
    assert once.repeat_errors["avg@1"] is None


def test_without_extracted_answers_there_is_no_majority():
    result = summarize_data_set("val", "val.parquet", [0], [samples(None, "1")], (1, 2))
    assert set(result.estimates) == {
        "pass@1",
        "pass@2",
        "avg@2",
        "response_length",
        "truncated",
        "0/n",
        "n/n",
    }


def test_groups_are_summarized_by_their_label():
    groups = val(groups_P=["hard", "easy", "easy", "hard"]).groups
    assert {label: (group.num_prompts, group.pass_rate) for label, group in groups.items()} == {
        "easy": (2, 0.5),
        "hard": (2, 0.5),
    }


def test_the_macro_average_weighs_data_sets_alike_and_needs_two():
    other = summarize_data_set("other", "o.parquet", [0, 1], [samples("2", "2"), samples("2", "1")], (1, 2))
    result = combine([val(), other])
    assert set(result.macro_average) == {"pass@1", "response_length", "truncated", "0/n", "n/n"}
    assert result.macro_repeat_errors.keys() == {"response_length", "truncated"}
    assert result.macro_average["pass@1"].value == pytest.approx((0.5 + 0.25) / 2)
    assert result.macro_average["0/n"].value == pytest.approx((0.25 + 0.5) / 2)
    assert combine([val()]).macro_average == {}


def test_the_table_shows_each_metric_of_each_data_set():
    text = render(combine([val("val"), val("much_longer_name")]), by=None)
    table = text.split("\n\n")[0].splitlines()
    assert len(table) == 1 + 3 * 8
    assert table[1].split()[:3] == ["val", "pass@1", "0.5000"]
    assert table[9].split()[0] == "much_longer_name"
    assert table[17].startswith("macro average")
    assert len({line.index("pass@1") for line in table if "pass@1" in line}) == 1
    assert text.count("[0.9, 1.0)") == 2
    assert "mean length 5.0 tokens, 6.2 % of the responses cut off" in text
    column = table[0].index("error over repeats")
    assert [line[column:] for line in table if "avg@4" in line] == ["0.1021", "0.1021", "0.0722"]
    assert all(not line[column:] for line in table if "pass@" in line)


def test_groups_are_named_by_their_field():
    assert "kind=a: 4 prompts, pass@1 0.5000" in render(combine([val(groups_P=["a"] * 4)]), by="kind")


def test_the_json_is_strict_even_for_one_prompt(tmp_path: Path):
    def refuse(constant: str):
        raise AssertionError(f"{constant} is not JSON")

    path = tmp_path / "new/result.json"
    one = summarize_data_set("one", "one.parquet", ["x"], [samples("1", "2")], (1, 2))
    write_json(combine([one, val()]), {"n": 2}, path)
    content = json.loads(path.read_text(), parse_constant=refuse)
    assert content["settings"] == {"n": 2}
    first = content["data_sets"][0]
    assert first["estimates"]["pass@1"] == {"value": 0.5, "low": None, "high": None}
    assert first["summary"]["standard_error"] is None
    assert first["summary"]["pass_at"] == {"1": 0.5, "2": 1.0}
    assert content["macro_average"]["pass@1"]["value"] == 0.5


@pytest.mark.parametrize("number", [1, 4])
def test_the_picture_is_a_png(tmp_path: Path, number: int):
    path = tmp_path / "new/pass_rates.png"
    write_plot(combine([val(f"set_{n}") for n in range(number)]), path)
    assert path.read_bytes().startswith(b"\x89PNG")
