"""Influence and samples of a run: every record is counted once, and the extremes are the true ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.golden_redaction.run_files import ENTRIES
from recipe.tracin.pages.influence_data import (
    NUM_EXTREMES,
    bin_edges,
    class_of,
    disagreements,
    extremes,
    histogram,
    influence_data,
    reward_classes,
    reward_ends,
)
from verl_ext.report.curves import axis, columns
from verl_ext.run.metrics_stream import STEP

SCORES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60)

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
    texts = {"prompt": "p", "response": "r"}
    found = influence_data([*good, *bad, {"step": 8, "score": 9.0, **texts}])
    assert found is not None
    assert (found["num"], found["has_text"], found["classes"]) == (9, True, ["reward 0", "reward 1"])
    # The sample without a reward is in the extremes only.
    assert [sum(row) for row in found["counts"]] == [4, 4]
    assert found["bands"][0][1] == [None, 0.2, None, 0.4, None, 0.6, None, 0.8]
    assert found["highest"][0] == {"step": 8, "score": 9.0, **texts}
    assert found["by_step"]["3"]["lowest"][0]["key"] == "3"
    assert len(found["lowest"]) <= NUM_EXTREMES
    assert influence_data(bad) is None


@given(SCORES, st.data(), st.integers(1, 9))
def test_disagreements_are_of_the_lowest_and_of_the_highest_reward(scores, data, number):
    rewards = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(scores), max_size=len(scores)))
    samples = [{"step": 1, "score": score, "reward": reward} for score, reward in zip(scores, rewards, strict=True)]
    found = disagreements(samples, reward_ends(samples), number)
    if len(set(rewards)) == 1:
        assert reward_ends(samples) == (None, None)
        assert found == {"failed_high": [], "passed_low": []}
        return
    failed = sorted((s for s, r in zip(scores, rewards, strict=True) if r == min(rewards) and s > 0), reverse=True)
    passed = sorted(s for s, r in zip(scores, rewards, strict=True) if r == max(rewards) and s < 0)
    assert [one["score"] for one in found["failed_high"]] == failed[:number]
    assert [one["score"] for one in found["passed_low"]] == passed[:number]


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


@pytest.mark.parametrize(
    ("files", "before"),
    [
        (
            {"validation_before.json": {"metrics": {"val-core/x/acc/mean@1": 0.1, "val-aux/y": 3.0}, "seconds": 2.5}},
            0.1,
        ),
        # For a run that kept no such file, and has one validation set.
        ({"summary.json": {"val_accuracy_before": 0.2}}, 0.2),
    ],
)
def test_curves_of_accuracy_begin_before_the_first_step(tmp_path: Path, files, before):
    from verl_ext.report.run_records import read_run

    (tmp_path / "metrics.jsonl").write_text(json.dumps({STEP: 1, "val-core/x/acc/mean@1": 0.5}) + "\n")
    assert [record[STEP] for record in read_run(tmp_path).metrics] == [1]
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    table = columns(read_run(tmp_path).metrics)
    assert table[STEP] == [0, 1]
    assert table["val-core/x/acc/mean@1"] == [before, 0.5]
    assert axis(table, "rollouts")[0] == axis(table, "seconds")[0] == 0
    assert table.get("timing_s/testing", [None])[0] == (2.5 if "validation_before.json" in files else None)


def test_of_several_validation_sets_a_mean_before_training_is_no_curves_first_point(tmp_path: Path):
    from verl_ext.report.run_records import read_run

    record = {STEP: 1, "val-core/x/acc/mean@1": 0.5, "val-core/y/acc/mean@1": 0.7}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "summary.json").write_text(json.dumps({"val_accuracy_before": 0.2}))
    assert [record[STEP] for record in read_run(tmp_path).metrics] == [1]


def test_samples_are_of_what_the_folder_keeps(tmp_path: Path):
    from verl_ext.report.run_records import RunRecords
    from verl_ext.report.run_samples import count_by_prompt, read_samples

    run = RunRecords(tmp_path)
    assert read_samples(run) == []
    kept = {"step": 3, "index": 7, "data_source": "a", "ground_truth": "2", "prompt": "p", "response": "r", "reward": 1}
    lines = [kept | {"group": {"rollouts": 8, "mean_reward": 0.25}}, {"step": 4}, kept | {"reward": 1e400}]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_samples(run)
    assert [(one["step"], one["index"], one["text"], one["reward"], one["truth"]) for one in found] == [
        (3, "7", "r", 1, "2"), (3, "7", "r", None, "2"), (4, None, "", None, None),
    ]  # fmt: skip
    assert found[0]["notes"] == "one of 8 rollouts, mean reward 0.25"
    run.config = {"trainer": {"rollout_data_dir": "${run_dir}/rollouts"}}
    (tmp_path / "rollouts").mkdir()
    for step in (2, 10, 9):
        (tmp_path / "rollouts" / f"{step}.jsonl").write_text(
            (json.dumps({"input": "p", "output": f"o{step}", "score": 1.0, "gts": 3}) + "\n") * 2
        )
    lines[0] |= {"response": "o9", "step": 9, "reward": 1.0}  # one of the two that verl wrote
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(lines[0]) + "\n")
    found = read_samples(run)
    assert [(one["step"], one["index"], one["text"], one["truth"], one["times"]) for one in found] == [
        (2, None, "o2", "3", 2), (9, "7", "o9", "2", 1), (9, None, "o9", "3", 1), (10, None, "o10", "3", 2),
    ]  # fmt: skip
    assert count_by_prompt(found) == {"7": 1}
    rollout = {"text": "x", "reward": 1.0, "statuses": ["ok", "ok"]}
    entries = [
        {"step": step, "problem": "p", "k": 3, "actions": [{"rollouts": [rollout, rollout | {"text": f"y{step}"}]}] * 2}
        for step in range(1, 90)
    ]
    (run.path / ENTRIES).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    found = read_samples(run)
    assert [one["step"] for one in found] == [step for step in (*range(1, 41), *range(50, 90)) for _ in (1, 2)]
    assert [(one["text"], one["times"]) for one in found[:2]] == [("x", 2), ("y1", 2)]
    assert (found[0]["index"], found[0]["where"], found[0]["notes"]) == ("p", "hidden tokens: 3", "ok")


SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=40)


@given(SIZES, st.integers(0, 1500))
def test_what_does_not_fit_into_a_page_is_left_out_step_by_step(sizes, room):
    from verl_ext.report.run_samples import thinned

    samples = [{"step": step, "text": "x" * size, "prompt": None} for step, size in sizes]
    kept = thinned(samples, room)
    steps = {sample["step"] for sample in kept}
    assert kept == [sample for sample in samples if sample["step"] in steps]
    assert max(step for step, _ in sizes) in steps
    if sum(size for _, size in sizes) <= room:
        assert kept == samples
    if len(steps) > 1:
        assert min(step for step, _ in sizes) in steps
        assert sum(len(sample["text"]) for sample in kept) <= room
