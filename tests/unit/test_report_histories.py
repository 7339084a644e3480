"""Histories of prompts and samples: every record is counted once, and the ends are the ends."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.pages.curriculum_data import (
    EVENTS,
    accuracy_points,
    pass_histograms,
    prompt_histories,
    prompt_row,
    shards,
)
from recipe.golden_redaction.run_files import ENTRIES
from recipe.tracin.pages.influence_data import (
    NUM_EXTREMES,
    bin_edges,
    class_of,
    extremes,
    histogram,
    influence_data,
    reward_classes,
)
from verl_ext.run.metrics_stream import STEP

SCORES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60)
HISTOGRAMS = st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=25)

# ------------------------------ curriculum ------------------------------


@given(HISTOGRAMS, st.integers(1, 8))
def test_windows_of_a_histogram_hold_every_record_once(rows, max_windows):
    records = [
        {STEP: step} | {f"curriculum/screening_pass_rate/{k}_of_3": float(count) for k, count in enumerate(row)}
        for step, row in enumerate(rows, 1)
    ]
    found = pass_histograms(records, max_windows)
    assert found is not None
    assert found["n"] == 3
    assert len(found["windows"]) <= max_windows
    width = found["windows"][0][1]
    assert width == 1 or len(rows) > (width - 1) * max_windows  # no wider than needed
    assert [step for low, high in found["windows"] for step in range(low, high + 1)] == [r[STEP] for r in records]
    for place, (low, high) in enumerate(found["windows"]):
        for k in range(4):
            assert found["counts"][k][place] == sum(row[k] for row in rows[low - 1 : high])


def test_no_screening_no_histogram():
    assert pass_histograms([{STEP: 1, "curriculum/screening_pass_rate/mean": 0.5}]) is None


EVENT = st.fixed_dictionaries(
    {"step": st.integers(1, 9), "event": st.sampled_from(EVENTS), "index": st.integers(0, 3) | st.sampled_from("ab")},
    optional={"samples": st.integers(1, 8)},
).flatmap(
    # With graded successes the sum of them.
    lambda event: st.sampled_from(
        [event["samples"] // 2, event["samples"] * 0.3] if "samples" in event else [None]
    ).map(lambda passes: event | ({} if passes is None else {"passes": passes}))
)


@given(st.lists(EVENT, max_size=40), st.integers(1, 5))
def test_each_event_is_in_its_prompts_history_in_order(events, size):
    histories = prompt_histories([{"event": "other", "index": 0, "step": 1}, {"index": 1}, *events])
    for prompt, history in histories.items():
        own = [event for event in events if str(event["index"]) == prompt]
        assert [(step, EVENTS[kind], samples) for step, kind, samples, _ in history] == [
            (event["step"], event["event"], event.get("samples", 0)) for event in own
        ]
        row = prompt_row(prompt, history)
        kinds = Counter(event["event"] for event in own if event["event"] == "trained" or event.get("samples"))
        assert (row[1], row[5], row[6]) == (kinds["screening"], kinds["trained"], own[-1]["step"])
        samples, passes = (sum(event.get(name, 0) for event in own) for name in ("samples", "passes"))
        assert row[2] == samples
        assert row[3] == (pytest.approx(passes / samples) if samples else None)
    assert sum(map(len, histories.values())) == len(events)
    parts = shards(histories, size)
    names = list(histories)
    for place, name in enumerate(names):
        assert parts[place // size][name] == histories[name]
    assert sum(map(len, parts)) == len(names)


def test_accuracy_begins_before_the_first_step():
    records = [
        {STEP: 1, "training/total/rollouts_generated": 64},
        {STEP: 2, "training/total/rollouts_generated": 128, "val-core/x/acc/mean@1": 0.25},
    ]
    assert accuracy_points(records, 0.1) == [[0, 0.1, 0], [128, 0.25, 2]]
    assert accuracy_points(records, None) == [[128, 0.25, 2]]


# ------------------------------ influence ------------------------------


@given(SCORES, st.integers(1, 20))
def test_a_histogram_counts_every_score_in_its_bin(scores, num_bins):
    edges = bin_edges(scores, num_bins)
    assert edges == sorted(edges)
    assert edges[0] == pytest.approx(-edges[-1])
    counts = histogram(scores, edges)
    assert sum(counts) == len(scores)
    for place in range(1, num_bins - 1):
        assert counts[place] == sum(edges[place] <= score < edges[place + 1] for score in scores)


@given(st.lists(st.none() | st.sampled_from([0.0, 1.0]) | st.floats(-3, 3), min_size=1, max_size=40))
def test_every_reward_is_in_exactly_one_class(rewards):
    classes = reward_classes(rewards)
    for reward in rewards:
        inside = [place for place, (_, low, high) in enumerate(classes) if reward is not None and low <= reward <= high]
        assert len(inside) == (reward is not None)
        assert class_of(reward, classes) == (inside[0] if inside else None)
    assert len(classes) <= 5


@given(SCORES, st.integers(1, 10))
def test_the_extremes_are_those_of_the_sorted_scores(scores, number):
    samples = [{"step": 1, "score": score, "key": str(place)} for place, score in enumerate(scores)]
    found = extremes(samples, number)
    lowest, highest = ([sample["score"] for sample in found[end]] for end in ("lowest", "highest"))
    assert lowest == sorted(scores)[: len(lowest)]
    assert highest == sorted(scores, reverse=True)[: len(highest)]
    assert not {s["key"] for s in found["lowest"]} & {s["key"] for s in found["highest"]}
    assert len(lowest) == min(number, max(1, len(scores) // 2))


def test_the_influence_view_has_every_valid_sample():
    good = [{"step": s, "key": f"{s}", "reward": float(s % 2), "score": s / 10, "index": 1} for s in range(1, 9)]
    bad = [{"step": 1, "score": None}, {"score": 1.0}, {"step": 1, "score": float("nan")}]
    found = influence_data([*good, *bad, {"step": 8, "score": 9.0, "text": "t"}])
    assert found is not None
    assert (found["num"], found["has_text"], found["classes"]) == (9, True, ["reward 0", "reward 1"])
    # The sample without a reward is in the extremes only.
    assert [sum(row) for row in found["counts"]] == [4, 4]
    assert found["bands"][0][1] == [None, 0.2, None, 0.4, None, 0.6, None, 0.8]
    assert found["highest"][0] == {"step": 8, "score": 9.0, "text": "t"}
    assert found["by_step"]["3"]["lowest"][0]["key"] == "3"
    assert len(found["lowest"]) <= NUM_EXTREMES
    assert influence_data(bad) is None


# ------------------------------ reading ------------------------------

LINES = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), max_size=12)


@given(LINES, st.binary(max_size=5).map(lambda part: part.replace(b"\n", b"")), st.integers(0, 6), st.integers(1, 9))
def test_lines_of_both_ends_are_those_of_the_whole_file(tmp_path_factory, lines, torn, number, chunk):
    from verl_ext.report import run_records

    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(b"".join(line + b"\n" for line in lines) + torn)
    whole = [line + b"\n" for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_records, "_CHUNK", chunk)
        assert run_records.last_lines(path, number) == whole[len(whole) - min(number, len(whole)) :]
    assert run_records.first_lines(path, number) == whole[:number]


def test_a_run_folder_is_read_whatever_is_missing_or_broken(tmp_path: Path):
    from verl_ext.report.run_records import NoRunError, read_run

    with pytest.raises(NoRunError, match=r"neither metrics.jsonl nor hydra/"):
        read_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"training/global_step": 1}\nnot JSON\n[1]\n{"x": 1}\n{"training/glo')
    (tmp_path / "metrics.superseded.jsonl").write_text('{"training/global_step": 7}\n{"torn')
    (tmp_path / "summary.json").write_text("{")
    run = read_run(tmp_path)
    assert (run.metrics, run.num_broken, run.superseded) == ([{STEP: 1}], 3, [7])
    assert (run.summary, run.config, run.overrides, run.recipe) == (None, {}, [], "unknown")
    (tmp_path / "hydra").mkdir()
    (tmp_path / "hydra" / "config.yaml").write_text("a: !!python/object/apply:os.getcwd []")
    assert read_run(tmp_path).config == {}


def test_samples_are_of_the_start_and_of_the_end(tmp_path: Path):
    from verl_ext.report.run_records import RunRecords
    from verl_ext.report.run_samples import read_samples

    run = RunRecords(tmp_path)
    assert read_samples(run) == {"start": [], "end": []}
    run.config = {"trainer": {"rollout_data_dir": "${run_dir}/rollouts"}}
    (tmp_path / "rollouts").mkdir()
    for step in (2, 10, 9):
        (tmp_path / "rollouts" / f"{step}.jsonl").write_text(
            json.dumps({"input": "p", "output": f"o{step}", "score": 1.0, "gts": 3}) + "\n"
        )
    found = read_samples(run)
    assert [(one["step"], one["text"], one["notes"]) for end in ("start", "end") for one in found[end]] == [
        (2, "o2", "expected 3"),
        (10, "o10", "expected 3"),
    ]
    rollout = {"text": "x", "reward": 1.0, "statuses": ["ok"]}
    entries = [
        {"step": step, "problem": "p", "k": 3, "actions": [{"rollouts": [rollout, rollout | {"text": f"y{step}"}]}] * 2}
        for step in range(1, 20)
    ]
    (run.path / ENTRIES).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    found = read_samples(run)
    assert [one["step"] for one in found["start"]] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [one["step"] for one in found["end"]] == [16, 16, 17, 17, 18, 18, 19, 19]
    assert [one["text"] for one in found["start"][:2]] == ["x", "y1"]
    assert found["start"][0]["notes"] == "2 of 4 rollouts, ok"
