"""RealToxicityPrompts: both forms of its rows, the two splits, what the report counts. Made-up rows are harmless."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_preprocess.real_toxicity_prompts import (
    REPEATED,
    VAL_STRATEGIES,
    Filter,
    ScoredPrompt,
    as_query,
    choose_influence,
    collect,
    digest,
    main,
    read_prompt,
    read_prompts,
    split,
)
from verl_ext.data.file_checks import check_files
from verl_ext.data.row_report import UnusableRow

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "toxicity" / "rtp_quark_val.jsonl.gz"


def flat(text, toxicity, challenging=False):
    return {"prompt": text, "prompt_toxicity": toxicity, "challenging": challenging}


def nested(text, toxicity, challenging=False):
    scores = {"text": text, "toxicity": toxicity, "insult": 0.9, "flirtation": None}
    return {"filename": "0001.txt", "prompt": scores, "continuation": {"toxicity": 0.9}, "challenging": challenging}


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def make_prompts(count):
    return [ScoredPrompt(f"rtp/{n}", f"The number {n} is", n / count, n % 7 == 0) for n in range(count)]


def read_files(folder):
    return {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("train", "influence", "val")}


class Letters:
    """A tokenizer whose tokens are letters."""

    def encode(self, text, *, add_special_tokens):
        assert not add_special_tokens
        return [ord(letter) for letter in text]

    def decode(self, token_ids):
        return "".join(map(chr, token_ids))


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "rtp.jsonl", [flat(f"The number {n} is", n / 50, n % 7 == 0) for n in range(50)])


@pytest.mark.parametrize("form", [flat, nested])
def test_both_forms_of_a_row_give_the_same_prompt(form):
    prompt = read_prompt(form(" The cat sat ", 0.25, True), "rtp/3")
    assert prompt == ScoredPrompt("rtp/3", "The cat sat", 0.25, True)


def test_the_continuation_is_kept_for_queries():
    row = nested("The cat", 0.25) | {"continuation": {"text": " sat down.\n", "toxicity": 0.9}}
    assert read_prompt(row, "x").continuation == " sat down."


def test_the_score_of_a_nested_row_is_the_prompts_and_not_the_continuations():
    assert read_prompt(nested("The cat", 0.1), "x").toxicity == 0.1
    with pytest.raises(UnusableRow, match="no toxicity score"):
        read_prompt(nested("The cat", None), "x")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (flat("", 0.5), "no text"),
        (flat("  \n", 0.5), "no text"),
        (flat(None, 0.5), "no text"),
        (nested("", 0.5), "no text"),
        ({}, "no text"),
        (flat("a", None), "no toxicity score"),
        (flat("a", float("nan")), "no toxicity score"),
        (flat("a", "0.5"), "no toxicity score"),
        (flat("a", True), "no toxicity score"),
        ({"prompt": "a"}, "no toxicity score"),
        (flat("a", 1.2), "toxicity is not from 0 to 1"),
        (flat("a", -0.1), "toxicity is not from 0 to 1"),
    ],
)
def test_unusable_rows_say_why(row, reason):
    with pytest.raises(UnusableRow, match=reason):
        read_prompt(row, "x")


def test_of_repeats_the_first_stays_and_every_row_is_accounted_for():
    rows = [flat("The cat", 0.1), flat("the  CAT ", 0.2), flat("A dog", 0.3), flat("", 0.3), flat("A cow", None)]
    prompts, counts = collect(rows)
    assert [(p.index, p.text, p.toxicity) for p in prompts] == [
        ("real_toxicity_prompts/0", "The cat", 0.1),
        ("real_toxicity_prompts/2", "A dog", 0.3),
    ]
    assert counts == {"rows read": 5, REPEATED: 1, "no text": 1, "no toxicity score": 1}
    assert counts["rows read"] == len(prompts) + sum(n for reason, n in counts.items() if reason != "rows read")


@given(st.integers(2, 200), st.integers(0, 5))
def test_a_split_is_four_to_one_complete_and_disjoint(count, seed):
    prompts = make_prompts(count)
    train, held_out = split(prompts, seed)
    assert len(held_out) == max(1, round(0.2 * count))
    assert sorted(p.index for p in train + held_out) == sorted(p.index for p in prompts)
    assert not {p.key for p in train} & {p.key for p in held_out}


@given(st.integers(2, 50), st.data(), st.sampled_from(VAL_STRATEGIES), st.integers(0, 5))
def test_held_out_prompts_are_for_influence_or_evaluation(count, data, strategy, seed):
    prompts, size = make_prompts(count), data.draw(st.integers(1, count - 1))
    influence, val = choose_influence(prompts, size, strategy, seed)
    assert len(influence) == size
    assert sorted(p.index for p in influence + val) == sorted(p.index for p in prompts)


def test_top_takes_the_most_toxic_of_the_held_out_prompts_and_training_keeps_its_own():
    train, held_out = split(make_prompts(1000), 0)
    influence, val = choose_influence(held_out, 50, "top", 0)
    assert min(p.toxicity for p in influence) > max(p.toxicity for p in val)
    for part in (train, held_out):
        assert sum(p.toxicity for p in part) / len(part) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("strategy", VAL_STRATEGIES)
def test_the_sets_depend_on_the_seed_and_the_texts_but_not_on_their_order(strategy):
    prompts = [ScoredPrompt(p.index, p.text, 0.5, False) for p in make_prompts(100)]  # all scores tie

    def chosen(order, seed):
        held_out = split(order, seed)[1]
        return {p.index for p in choose_influence(held_out, 10, strategy, seed)[0]}

    assert chosen(prompts, 0) == chosen(prompts[::-1], 0)
    assert chosen(prompts, 0) != chosen(prompts, 1)


def test_a_split_of_one_prompt_an_unknown_strategy_and_no_evaluation_are_refused():
    with pytest.raises(ValueError, match="at least two prompts, got 1"):
        split(make_prompts(1), 0)
    with pytest.raises(ValueError, match="one of random, top, got 'best'"):
        choose_influence(make_prompts(9), 3, "best", 0)
    with pytest.raises(ValueError, match=r"expected 1 to 8 influence prompts.*got 9: change --influence_size"):
        choose_influence(make_prompts(9), 9, "random", 0)


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 5))
def test_a_query_is_the_beginning_of_the_sentence_in_as_many_tokens_as_asked(low, more, seed):
    prompt = ScoredPrompt("rtp/0", "abcd", 0.5, False, "efghijklmnop")
    query = as_query(prompt, Letters(), (low, low + more), seed)
    assert "abcdefghijklmnop".startswith(query.text)
    assert low <= len(query.text) <= low + more
    assert query == as_query(prompt, Letters(), (low, low + more), seed)


def test_lengths_of_queries_are_drawn_between_their_bounds():
    prompts = [ScoredPrompt(f"{n}", f"{n:04d}", 0.5, False, "x" * 20) for n in range(300)]
    lengths = [len(as_query(prompt, Letters(), (10, 15), 0).text) for prompt in prompts]
    assert set(lengths) == set(range(10, 16))


def test_what_a_filter_leaves_out_is_counted():
    long, short = "a text of some length", "short"
    prompts = [
        ScoredPrompt("0", long, 0.3, False),
        ScoredPrompt("1", long, 0.31, False),
        ScoredPrompt("2", short, 0.9, False),
        ScoredPrompt("3", long + " that is longer", 0.9, False),
    ]
    used, counts = Filter(0.3, (8, 8), Letters())(prompts, 0)
    assert [(p.index, p.text) for p in used] == [("1", "a text o")]
    assert counts == {
        "not toxic enough (--min_toxicity)": 1,
        "too few tokens (--query_tokens)": 1,
        REPEATED: 1,
    }
    assert Filter()(prompts[1:], 0) == (prompts[1:], {})


def test_the_files_follow_verls_schema_and_carry_the_score(source, tmp_path, capsys):
    main(["--input", source, "--local_save_dir", str(tmp_path / "out"), "--val_strategy", "top"])
    report = check_files([tmp_path / "out" / f"{name}.parquet" for name in ("train", "influence", "val")])
    assert list(report.rows.values()) == [40, 5, 5]
    files = read_files(tmp_path / "out")
    for name, rows in files.items():
        assert {row["extra_info"]["split"] for row in rows} == {name}
        assert {row["data_source"] for row in rows} == {"real_toxicity_prompts"}
    row = max(files["influence"], key=lambda row: row["extra_info"]["prompt_toxicity"])
    assert row["extra_info"]["prompt_toxicity"] == max(
        r["extra_info"]["prompt_toxicity"] for name in ("influence", "val") for r in files[name]
    )
    row = next(row for rows in files.values() for row in rows if row["extra_info"]["index"].endswith("/49"))
    assert row["prompt"] == [{"role": "user", "content": "The number 49 is"}]
    assert row["reward_model"] == {"style": "model", "ground_truth": ""}
    assert row["extra_info"] == {
        "index": "real_toxicity_prompts/49",
        "split": row["extra_info"]["split"],
        "prompt": "The number 49 is",
        "prompt_toxicity": 0.98,
        "challenging": True,
    }
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rows", "read", "50"] in lines
    assert ["-", "held", "out", "10"] in lines
    assert ["-", "in", "val.parquet", "5"] in lines
    assert ["=", "rows", "written", "40"] in lines


def test_the_same_seed_writes_the_same_files_and_caps_draw_from_their_own_side(source, tmp_path, capsys):
    def written(name, *more):
        main(["--input", source, "--local_save_dir", str(tmp_path / name), *more])
        return read_files(tmp_path / name)

    whole, again, other = written("a"), written("b"), written("c", "--seed", "1")
    assert whole == again
    assert whole != other
    capsys.readouterr()
    capped = written("d", "--train_size", "7", "--val_size", "3")
    assert [len(rows) for rows in capped.values()] == [7, 5, 3]
    sized = written("e", "--influence_size", "8")
    assert [len(rows) for rows in sized.values()] == [40, 8, 2]
    with pytest.raises(SystemExit, match=r"expected 1 to 9 influence prompts.*got 10"):
        written("f", "--influence_size", "10")
    for name, rows in capped.items():
        assert all(row in whole[name] for row in rows)
    out = capsys.readouterr().out
    assert "not drawn (--train_size)" in out
    assert "not drawn (--val_size)" in out


@pytest.mark.parametrize("name", ["rtp.jsonl.gz", "rtp.json", "rtp.parquet"])
def test_every_format_of_a_file_is_read(name, tmp_path):
    rows = [nested(f"The number {n} is", n / 10) for n in range(10)]
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    elif name.endswith(".json"):
        path.write_text(json.dumps(rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    prompts, _ = read_prompts(str(path))
    assert [prompt.toxicity for prompt in prompts] == [n / 10 for n in range(10)]


def test_another_text_or_score_gives_another_digest():
    prompts = make_prompts(3)
    assert digest(prompts) == digest(make_prompts(3))
    assert digest(prompts) != digest([*prompts[:2], ScoredPrompt("rtp/2", prompts[2].text, 0.9, False)])
    assert digest(prompts) != digest([*prompts[:2], ScoredPrompt("rtp/2", "Else", prompts[2].toxicity, False)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": "1+1"}\n', "no row is usable.*no text: 1.*Is it RealToxicityPrompts"),
        ('{"prompt": "a", "prompt_toxicity": 0.1}\n', "three usable rows are needed"),
        ("not json\n", "line 1: expected one JSON object per line"),
        (None, "no such file"),
    ],
)
def test_an_input_that_is_something_else_ends_with_a_message(content, message, tmp_path):
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit, match=f"(?s)error: .*{message}"):
        main(["--input", str(path), "--local_save_dir", str(tmp_path)])
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--min_toxicity", "1"], "--min_toxicity must be from 0 to below 1, got 1"),
        (["--query_tokens", "5", "4", "--tokenizer", "x"], "two numbers from 1 in increasing order"),
        (["--query_tokens", "4", "5"], "--query_tokens and --tokenizer go together"),
    ],
)
def test_filters_that_mean_nothing_are_refused(more, message, source, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--input", source, "--local_save_dir", str(tmp_path), *more])
    assert message in capsys.readouterr().err


def test_a_filter_that_leaves_nothing_ends_with_a_message(source, tmp_path):
    with pytest.raises(SystemExit, match="0 training and 0 held-out prompts are left of 50"):
        main(["--input", source, "--local_save_dir", str(tmp_path), "--min_toxicity", "0.99"])


@pytest.mark.parametrize("flag", ["--influence_size", "--train_size", "--val_size"])
def test_a_cap_below_one_is_refused(flag, source, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--input", source, "--local_save_dir", str(tmp_path), flag, "0"])
    assert f"{flag} must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.skipif(not REAL.is_file(), reason=f"no development data: {REAL.name} is missing")
def test_the_real_file_loses_its_rows_without_a_score_and_its_repeats():
    prompts, counts = read_prompts(str(REAL))
    assert counts == {"rows read": 5000, "no toxicity score": 19, REPEATED: 7}
    assert len(prompts) == 4974
    train, held_out = split(prompts, 0)
    assert (len(train), len(held_out)) == (3979, 995)
    assert sum(p.toxicity for p in held_out) / len(held_out) == pytest.approx(0.304, abs=0.001)
    influence, _ = choose_influence(held_out, 100, "top", 0)
    assert sum(p.toxicity for p in influence) / len(influence) > 0.8
    more_toxic, counts = Filter(0.3)(prompts, 0)
    assert len(more_toxic) == 1912
    assert counts == {"not toxic enough (--min_toxicity)": 4974 - 1912}
