r"""The math reward: which text is the answer, what equals what, and that no answer can hang or break it."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_preprocess import deepscaler
from verl_ext.rewards import math_answer
from verl_ext.rewards.math_answer import compute_score, extract_answer, is_correct, normalize, refusal
from verl_ext.rewards.math_self_check import REQUIRED_SHARE, alterations, check_file, main, read_answers

MATH_DATA = Path(__file__).resolve().parents[3] / "shared/data/math"

# Far longer than any of them takes: it fails when something hangs, and measures nothing.
NO_HANG_SECONDS = 20.0


def score(response: str, gold: str = "5") -> float:
    return compute_score("math500", response, gold)["acc"]


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    """Start-up of the first worker is not part of any bound below."""
    assert is_correct(r"\frac{2}{4}", r"\frac{1}{2}")


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{5}", "5"),
        (r"first \boxed{4}, no: \boxed{5}. Bye", "5"),
        (r"\boxed{\frac{1}{2}} \text{done}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{1\right.}", r"\left\{1\right."),
        (r"\fbox{ 5 }", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        ("\\boxed{5}\nAnswer: 6", "5"),
        ("x\nAnswer: 5", "5"),
        ("**Answer:** $5$.", "5"),
        ("Answer: 4\nAnswer: \\(5\\)", "5"),
        ("the answer is 5", ""),
        (r"\boxed{4} and then \boxed{5", ""),
        (r"\boxed{}", ""),
        ("", ""),
    ],
)
def test_the_answer_is_the_last_box_or_else_the_last_answer_line(response: str, answer: str):
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1,234", "1234"),
        (r"1{,}234", "1234"),
        (r"1,\!234", "1234"),
        ("033", "33"),
        ("+5", "5"),
        ("5.0", "5"),
        ("-0", "0"),
        (r"$\dfrac{1}{2}$", r"\frac12"),
        ("0.5", r"\frac{1}{2}"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"),
        ("2x+1", "1 + 2x"),
        ("(1,2)", r"\left( 1, 2 \right)"),
        ("x=5", "5"),
        (r"5\text{ cm}", "5"),
        (r"\text{Monday}", "Monday"),
        (r"(-\infty,2)\cup(3,\infty)", r"(-\infty, 2) \cup (3, \infty)"),
        ("52_{8}", "52_8"),
        ("28 %", r"28\%"),
        (r"28\ \%", "28%"),
        ("185", "185\\"),
        ("69, 84", "$69$,$84$"),
        ("84, 69", "69, 84"),
        ("7" * 600, "7" * 600),
    ],
)
def test_equal_answers_are_right(answer: str, gold: str):
    assert score(f"\\boxed{{{answer}}}", gold) == 1.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("6", "5"),
        ("-5", "5"),
        ("", "5"),
        ("5 or 6", "5"),
        ("5, 6", "5"),
        (r"\pm 5", "5"),
        ("1, 200", "1200"),
        (r"2 1/3", "21/3"),
        ("1 2", "12"),
        (r"\frac{1}{3}", r"\frac{1}{2}"),
        ("2x+1", "2y+1"),
        ("(2,1)", "(1,2)"),
        (r"\text{Tuesday}", r"\text{Monday}"),
        ("52_9", "52_8"),
        ("-37_9", "-37_8"),
        ("28 %", r"29\%"),
        (r"28\%", "28"),
        ("69", "69, 84"),
        ("69, 84, 85", "69, 84"),
        ("7" * 600, "7" * 599 + "8"),
    ],
)
def test_different_answers_are_wrong(answer: str, gold: str):
    assert score(f"\\boxed{{{answer}}}", gold) == 0.0


def test_a_right_number_outside_of_the_answer_counts_for_nothing():
    assert score("The answer is 5, since 2 + 3 = 5.") == 0.0


def test_the_result_has_the_fields_that_verl_reports():
    assert compute_score("gsm8k", r"\boxed{ 6 }", "5", {"index": 1}, other=2) == {"score": 0.0, "acc": 0.0, "pred": "6"}


@given(st.text(alphabet=list("0123456789.,{}\\$ -+x()!"), max_size=12))
def test_normalizing_twice_changes_nothing_more_for_integers(text: str):
    once = normalize(text)
    if math_answer.is_integer(once):
        assert normalize(once) == once
        assert str(int(once)) == once


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_integers_are_decided_without_a_process(first: int, second: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(math_answer, "verify", None)
        assert is_correct(f"{first:,}", f"{second}") == (first == second)
        assert is_correct(f"{first:,}", f"{first}.0")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("9^{9^{9^9}}", "a power"),
        ("10^{10^{10}}", "a power"),
        ("10**(10**10)", "a power"),
        ("2^{-1000000}", "a power"),
        ("1+" * 600, "characters"),
        ("(" * 40 + "1" + ")" * 40, "nested"),
        ("5\0", "control"),
    ],
)
def test_absurd_answers_are_refused_before_they_are_parsed(answer: str, reason: str):
    assert reason in refusal(answer)


@pytest.mark.parametrize("answer", ["2^{2010}", "1024^{1024}", "2^{2^{10}}", "x^{y^{z^w}}", "e^{-x^2}", "10^{-6}"])
def test_large_but_sensible_powers_are_not_refused(answer: str):
    assert refusal(answer) == ""


HOSTILE = {
    "braces": "\\boxed{" + "{" * 100_000 + "}" * 100_000 + "}",
    "parentheses": "\\boxed{" + "(" * 450 + "1" + ")" * 450 + "}",
    "power tower": "\\boxed{9^{9^{9^9}}}",
    "power in symbols": "\\boxed{(9^9)^{(9^9)^{(9^9)}}}",
    "fast growing": "\\boxed{((((9!)!)!)!)!}",
    "binomial": "\\boxed{\\binom{10^{9}}{10^{8}}}",
    "sum": "\\boxed{\\sum_{n=1}^{10^{9}} \\frac{1}{n^{n}}}",
    "integral": "\\boxed{\\int_0^1 \\sin(\\cos(\\tan(e^{x^{x}}))) dx}",
    "nested fractions": "\\boxed{" + "\\frac{1}{" * 1000 + "2" + "}" * 1000 + "}",
    "nested roots": "\\boxed{" + "\\sqrt{2+" * 25 + "2" + "}" * 25 + "}",
    "5 MB without a box": "so we get 3 " * 430_000,
    "5 MB, box first": "\\boxed{6}" + "so we get 3 " * 430_000,
    "5 MB in a box": "\\boxed{" + "1+" * 2_500_000 + "1}",
    "5 MB of boxes": "\\boxed{" * 700_000,
    "answer lines": "Answer" + " " * 100_000 + "\nAnswer: " * 1000,
    "million digits": "\\boxed{" + "7" * 1_000_000 + "}",
    "many digits": "\\boxed{" + "7" * 900 + ".5}",
    "null bytes": "\\boxed{5\0}\0",
    "unicode": "\\boxed{５²√٣\U0001f600\u202e\ud800}",
    "unbalanced": "}}}{{{\\boxed{5{{}",
    "empty box": "\\boxed{}",
    "python": "\\boxed{__import__('os').system('touch hacked')}",
    "python in text": "Answer: (lambda: open('hacked', 'w'))() + 5",
    "regular expressions": "\\boxed{" + "1 + ( " * 160 + "}",
    "latex bomb": "\\boxed{" + "\\text{a " * 24 + "}" * 24 + "=" * 300 + "}",
    "spaces": "\\boxed{5" + " " * 900 + "x}",
    "commas": "\\boxed{" + "1," * 480 + "1}",
    "absolute values": "\\boxed{" + "|" * 400 + "}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_answer_hangs_or_runs_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    result = compute_score("math500", HOSTILE[name], r"\frac{5}{7}")
    assert time.monotonic() - started < NO_HANG_SECONDS
    assert result["acc"] == 0.0
    assert len(result["pred"]) <= math_answer.MAX_ANSWER_CHARACTERS
    assert not list(tmp_path.iterdir())
    assert is_correct("0.5", r"\frac{1}{2}")


def test_alterations_change_the_value():
    assert dict(alterations("0.5")) == {"next": "1.5", "sign": "-0.5", "scaled": "05"}
    assert [text for _, text in alterations("0")] == ["1"]
    assert [text for _, text in alterations(r"\sqrt{3}-x")] == [r"\sqrt{4}-x"]


@pytest.mark.parametrize(
    ("file", "every"),
    [
        ("math500_test.jsonl.gz", 2),
        ("gsm8k_test.jsonl.gz", 4),
        ("aime24.jsonl", 1),
        ("aime25.jsonl", 1),
        ("amc23.jsonl", 1),
        ("dapo_math_17k_dedup.jsonl.gz", 50),
        ("math_train_rllm7474.jsonl.gz", 50),
    ],
)
def test_gold_answers_are_right_and_altered_ones_wrong(file: str, every: int):
    if not (MATH_DATA / file).is_file():
        pytest.skip(f"{MATH_DATA / file} is not here")
    check = check_file(MATH_DATA / file, every)
    assert check.checks >= 3 * check.answers
    assert check.share >= REQUIRED_SHARE, check.failures


def test_the_self_check_reads_what_the_scripts_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    raw = tmp_path / "raw.csv"
    raw.write_text("problem,answer\nOne?,1\nHalf?,\\frac{1}{2}\nNone?,\n")
    deepscaler.main(["--input", str(raw), "--local_save_dir", str(tmp_path)])
    assert read_answers(tmp_path / "deepscaler.parquet") == ["1", "\\frac{1}{2}"] == read_answers(raw)
    main(["--input", str(tmp_path / "deepscaler.parquet"), str(raw)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["deepscaler.parquet", "2", "8", "0", "100.00", "%"] in [line[:6] for line in lines]


def test_an_alteration_stays_inside_of_the_dollar_signs():
    assert [text for _, text in alterations("$N=n$")] == ["N=n+1"]
    assert [text for _, text in alterations("\\[ v \\]")] == ["v+1"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"final": "3"}\n', r"no row has an answer.*reward_model\.ground_truth"),
        ("a.jsonl", "", "no row has an answer"),
        ("a.jsonl", "{", "line 1: expected one JSON object"),
        ("a.parquet", "PAR1", r"not readable as \.parquet"),
        ("a.txt", "3", "expected a file ending in"),
    ],
)
def test_the_self_check_says_what_it_cannot_read(tmp_path: Path, name: str, content: str, message: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(SystemExit, match=message):
        main(["--input", str(tmp_path / name)])


def test_the_self_check_reports_failures_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "answers.jsonl"
    file.write_text('{"answer": "864 \\\\mbox{ inches}^2"}\n{"answer": null}\n{"answer": "so #### 1,000"}\n')
    with pytest.raises(SystemExit) as raised:
        main(["--input", str(file)])
    assert raised.value.code == 1
    assert "inches}^3'" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"none\.jsonl: no such file"):
        main(["--input", str(tmp_path / "none.jsonl")])
