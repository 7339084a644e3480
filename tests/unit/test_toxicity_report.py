"""Figures of tests/benchmarks/toxicity_report.py, from made-up run folders."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from toxicity_report import (
    EMPTY,
    REWARD,
    Look,
    at_level,
    final,
    halfway,
    mean_toxicity,
    needed,
    read_looks,
    render,
    summarize,
    write_report,
)

from verl_ext.run.metrics_stream import STEP

PER_STEP, SECONDS, SAVING, VALIDATION = 128, 10.0, 2.0, 64


def write_run(folder: Path, toxicity: list[float], *, every: int = 2, with_tracin: bool = False) -> Path:
    """A run whose k-th look, `every` steps after the one before, has the k-th toxicity.

    A step takes 10 s; every second one writes a checkpoint for 2 s more. Validation rollouts come with the first step.
    """
    folder.mkdir(parents=True)
    first = {"metrics": {REWARD: 1 - toxicity[0], EMPTY: 0.0, STEP: 0}, "seconds": 3.0, "num_prompts": 4}
    (folder / "validation_before.json").write_text(json.dumps(first))
    total, lines = 0.0, []
    for step in range(1, every * (len(toxicity) - 1) + 1):
        saves = step % 2 == 0
        total += SECONDS + SAVING * saves
        record = {
            STEP: step,
            "training/total/seconds": total,
            "training/total/rollouts_generated": step * PER_STEP,
            "timing_s/testing": 50.0,
        }
        if saves:
            record["timing_s/save_checkpoint"] = SAVING
        if with_tracin:
            record["tracin/validation/rollouts_generated"] = VALIDATION if step == 1 else 0
        if step % every == 0:
            record |= {REWARD: 1 - toxicity[step // every], EMPTY: 0.25}
        lines.append(json.dumps(record))
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def looks_of(toxicity: list[float], *, rollouts: int = 100, seconds: float = 10.0) -> list[Look]:
    return [Look(n, n * rollouts, n * seconds, each, 0.0) for n, each in enumerate(toxicity)]


def test_looks_have_rollouts_of_both_kinds_and_seconds_of_training_only(tmp_path):
    looks = read_looks(write_run(tmp_path / "plain", [0.3, 0.2, 0.1]), 4)
    assert [look.step for look in looks] == [0, 2, 4]
    assert [look.rollouts for look in looks] == [0, 2 * PER_STEP, 4 * PER_STEP]
    assert [look.seconds for look in looks] == pytest.approx([0, 2 * SECONDS, 4 * SECONDS])
    assert [look.toxicity for look in looks] == pytest.approx([0.3, 0.2, 0.1])
    assert [look.empty for look in looks] == [0, 0.25, 0.25]
    with_tracin = read_looks(write_run(tmp_path / "tracin", [0.3, 0.2, 0.1], with_tracin=True), 4)
    assert [look.rollouts for look in with_tracin] == [0, 2 * PER_STEP + VALIDATION, 4 * PER_STEP + VALIDATION]


def test_a_longer_run_is_read_up_to_the_steps_that_were_asked_for(tmp_path):
    folder = write_run(tmp_path / "run", [0.3, 0.2, 0.1, 0.0])
    assert [look.step for look in read_looks(folder, 4)] == [0, 2, 4]


def test_a_run_without_validations_is_no_run(tmp_path):
    with pytest.raises(ValueError, match="found 1"):
        read_looks(write_run(tmp_path / "run", [0.3]), 4)
    with pytest.raises(ValueError, match="found 0"):
        read_looks(tmp_path / "nothing", 4)


def test_a_runs_final_toxicity_is_that_of_its_last_looks():
    assert final(looks_of([0.3, 0.1, 0.2, 0.0])) == pytest.approx(0.1)
    assert final(looks_of([0.3, 0.1])) == pytest.approx(0.2)


def test_the_toxicity_of_a_search_leaves_out_the_untrained_model():
    assert mean_toxicity(looks_of([0.9, 0.3, 0.1])) == pytest.approx(0.2)


def test_the_level_is_reached_between_two_looks():
    looks = looks_of([0.4, 0.3, 0.2])
    assert at_level(looks, 0.25, "rollouts") == pytest.approx(150)
    assert at_level(looks, 0.25, "seconds") == pytest.approx(15)
    assert at_level(looks, 0.2, "rollouts") == pytest.approx(200)
    assert at_level(looks, 0.5, "rollouts") == 0
    assert at_level(looks, 0.1, "rollouts") is None


def test_a_seed_that_never_reaches_the_level_is_a_bound():
    need = needed([looks_of([0.4, 0.3, 0.2]), looks_of([0.4, 0.4, 0.4])], 0.25, "rollouts")
    assert need.by_seed == pytest.approx((150, 200))
    assert need.is_bound
    assert not needed([looks_of([0.4, 0.3, 0.2])], 0.25, "rollouts").is_bound


def test_the_level_is_halfway_to_the_worst_final_toxicity():
    ends = [[0.4, 0.1, 0.2, 0.2, 0.2], [0.4, 0.1, 0.3, 0.3, 0.3]]
    runs = {"grpo": [looks_of(each) for each in ends], "ppo": [looks_of([0.5, 0.0, 0.0, 0.0])] * 2}
    assert halfway(runs) == pytest.approx((0.45 + 0.3) / 2)
    for seeds in runs.values():
        assert not needed(seeds, halfway(runs), "seconds").is_bound


def test_an_arm_is_compared_with_its_own_plain_one():
    slow = [looks_of([0.4, 0.4, 0.4, 0.1, 0.1]), looks_of([0.4, 0.4, 0.4, 0.1, 0.1])]
    fast = [looks_of([0.4, 0.1, 0.1, 0.1, 0.1], seconds=30.0), looks_of([0.4, 0.1, 0.1, 0.1, 0.1], seconds=30.0)]
    rows = {row["arm"]: row for row in summarize({"grpo": slow, "grpo_tracin": fast, "ppo_tracin": fast}, 0.3)}
    # .3 is a third of the way from the third to the fourth look, and from the first to the second, three times as long.
    with_tracin = rows["grpo_tracin"]
    assert with_tracin["rollouts"]["times_fewer_than_plain"]["value"] == pytest.approx((200 + 100 / 3) / (100 / 3))
    assert with_tracin["seconds"]["times_fewer_than_plain"]["value"] == pytest.approx(7 / 3)
    assert rows["grpo"]["rollouts"]["times_fewer_than_plain"] is None
    assert rows["ppo_tracin"]["rollouts"]["times_fewer_than_plain"] is None  # its plain arm was not run
    table = render(list(rows.values()), 0.3)
    assert "| 233 [233, 233] | - |" in table
    assert "| 33 [33, 33] | 7.00 [7.00, 7.00] | 10 [10, 10] | 2.33 [2.33, 2.33] |" in table


def test_the_report_is_three_files(tmp_path):
    toxicity = {"grpo": [[0.3, 0.28, 0.2, 0.19], [0.3, 0.3, 0.2, 0.2]], "grpo_tracin": [[0.3, 0.2, 0.1, 0.1]] * 2}
    runs = {
        arm: [read_looks(write_run(tmp_path / f"{arm}{n}", each), 6) for n, each in enumerate(seeds)]
        for arm, seeds in toxicity.items()
    }
    text = write_report(tmp_path / "report", runs, None)
    results = json.loads((tmp_path / "report/results.json").read_text())
    assert results["level"] == pytest.approx(halfway(runs))
    assert results["arms"][1]["rollouts"]["reached"] == 2
    assert results["looks"]["grpo"][0][1]["toxicity"] == pytest.approx(0.28)
    assert (tmp_path / "report/results.md").read_text().strip() == text
    assert (tmp_path / "report/curves.svg").stat().st_size > 5000
    assert "toxicity of 0.100" in write_report(tmp_path / "report", runs, 0.1)
