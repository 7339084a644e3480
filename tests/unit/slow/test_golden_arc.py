"""data_preprocess.arc: tasks are checked, test pairs stay apart, overlap is found; at the end with the real files."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_preprocess import arc
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from verl_ext.arc.prompts import ASSISTANT_PREFIX, SizeLimits, user_message
from verl_ext.data.arc_tasks import Task, find_overlap, parse_grid, parse_task, read_tasks
from verl_ext.data.file_checks import check_files
from verl_ext.data.row_report import UnusableRow
from verl_ext.data.row_source import SourceError

ARC = Path(__file__).resolve().parents[4] / "shared" / "data" / "arc"


def raw_task(colour: int, side: int = 2) -> dict:
    grid = [[colour] * side for _ in range(side)]
    return {"train": [{"input": grid, "output": [[colour]]}], "test": [{"input": [[colour]], "output": grid}]}


def write(folder: Path, name: str, tasks: dict) -> str:
    path = folder / f"{name}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(tasks).encode()))
    return str(path)


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """ARC-AGI-2's training task 1 is task e of ARC-AGI-1's evaluation, with examples and test pairs swapped."""
    twin = {"train": raw_task(5)["test"], "test": raw_task(5)["train"]}
    files = {
        "arc1_training": {"a": raw_task(1), "d": raw_task(4)},
        "arc1_evaluation": {"e": raw_task(5), "f": raw_task(6)},
        "arc2_training": {"a": raw_task(1), "1": twin, "2": raw_task(2), "big": raw_task(7, 30), "bad": {"train": []}},
        "arc2_evaluation": {"f": raw_task(6), "d": raw_task(4)},
    }
    return [word for name, tasks in files.items() for word in (f"--{name}", write(tmp_path, name, tasks))]


def rows_of(folder: Path, name: str) -> list[dict]:
    return pq.read_table(folder / f"{name}.parquet").to_pylist()


def ids_of(folder: Path, name: str) -> set[str]:
    return {row["extra_info"]["task_id"] for row in rows_of(folder, name)}


def test_rows_follow_the_schema_and_keep_test_pairs_apart(tmp_path: Path, inputs: list[str], capsys):
    out = tmp_path / "out"
    arc.main([*inputs, "--local_save_dir", str(out), "--max_cells", "500"])
    assert check_files(sorted(out.glob("*.parquet"))).num_rows == 2 + 2 + 3 + 2
    row = next(row for row in rows_of(out, "arc_agi_2_training") if row["extra_info"]["task_id"] == "2")
    assert (row["data_source"], row["ability"]) == ("arc_agi_2", "arc")
    assert row["extra_info"] == {
        "index": "arc_agi_2/2", "split": "training", "task_id": "2", "num_cells": 5, "num_examples": 1,
    }  # fmt: skip
    assert json.loads(row["reward_model"]["ground_truth"]) == {"train": raw_task(2)["train"]}
    assert json.loads(row["test_pairs"]) == raw_task(2)["test"]
    assert row["prompt"] == [{"role": "user", "content": user_message(parse_task("2", raw_task(2)))}]
    assert "prompt_ids" not in row
    report = capsys.readouterr().out
    for words in ("no train pairs", "more than 500 cells in the examples", "rows written"):
        assert words in report


def test_shared_tasks_leave_the_training_files_and_only_those(tmp_path: Path, inputs: list[str], capsys):
    arc.main([*inputs, "--local_save_dir", str(tmp_path / "out"), "--drop_overlap"])
    assert ids_of(tmp_path / "out", "arc_agi_1_training") == {"a"}
    assert ids_of(tmp_path / "out", "arc_agi_2_training") == {"2", "big"}
    assert ids_of(tmp_path / "out", "arc_agi_1_evaluation") == {"e", "f"}
    assert ids_of(tmp_path / "out", "arc_agi_2_evaluation") == {"d", "f"}
    report = capsys.readouterr().out.splitlines()
    shared = {line.split("  ")[1]: line.split()[3:5] for line in report if " and " in line}
    assert shared["arc1_evaluation and arc2_evaluation"] == ["1", "0"]
    assert shared["arc2_training and arc1_evaluation"] == ["0", "1"]
    assert shared["arc2_training and arc1_training"] == ["1", "0"]


def test_token_ids_are_of_the_prompt_with_the_assistant_prefix(tmp_path: Path, inputs: list[str]):
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    out = str(tmp_path / "out")
    arc.main([*inputs[:2], "--local_save_dir", out, "--tokenizer", str(tmp_path / "model")])
    for row in rows_of(Path(out), "arc_agi_1_training"):
        assert tokenizer.decode(row["prompt_ids"]) == row["prompt"][0]["content"] + ASSISTANT_PREFIX


def test_long_prompts_are_left_out_and_counted():
    tasks, counts = [parse_task("a", raw_task(1)), parse_task("b", raw_task(1, 20))], Counter()
    limit = len(user_message(tasks[0]) + ASSISTANT_PREFIX)
    rows = arc.to_rows("arc1_training", tasks, SizeLimits(max_prompt_tokens=limit), build_tokenizer(), counts)
    assert [row["extra_info"]["task_id"] for row in rows] == ["a"]
    assert counts == {f"more than {limit} prompt tokens": 1}


def test_the_seed_draws_the_training_tasks(tmp_path: Path):
    path = write(tmp_path, "tasks", {str(n): raw_task(n % 10, 1 + n // 10) for n in range(40)})

    def drawn(seed: int) -> set[str]:
        out = tmp_path / f"out{seed}"
        arc.main(["--arc1_training", path, "--local_save_dir", str(out), "--max_rows", "9", "--seed", str(seed)])
        return ids_of(out, "arc_agi_1_training")

    assert len(drawn(0)) == 9
    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_named_tasks_are_the_only_ones_written(tmp_path: Path, capsys):
    path = write(tmp_path, "tasks", {name: raw_task(1) for name in "abcd"})
    arc.main(["--arc1_training", path, "--local_save_dir", str(tmp_path / "out"), "--tasks", "d,b"])
    assert ids_of(tmp_path / "out", "arc_agi_1_training") == {"b", "d"}
    report = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in report if "not in --tasks" in line] == ["2"]


def test_a_named_task_that_no_file_has_is_refused(tmp_path: Path):
    path = write(tmp_path, "tasks", {"a": raw_task(1)})
    with pytest.raises(SystemExit, match="--tasks: x not among the 1 tasks"):
        arc.main(["--arc1_training", path, "--local_save_dir", str(tmp_path / "out"), "--tasks", "a,x"])
    assert not (tmp_path / "out").exists()


def test_a_folder_of_tasks_is_a_collection(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps(raw_task(1)))
    assert [task.id for task in read_tasks(tmp_path)[0]] == ["a"]


@pytest.mark.parametrize(
    "grid", [[], [[]], [[1], [1, 2]], [[10]], [[-1]], [[True]], [[1.0]], [["1"]], [[0]] * 31, [[0] * 31], "11", None]
)
def test_what_is_no_grid_is_unusable(grid):
    with pytest.raises(UnusableRow):
        parse_grid(grid)


def test_errors_end_the_program_with_their_message(tmp_path: Path):
    def fails(*words: str) -> str:
        with pytest.raises(SystemExit) as caught:
            arc.main([*words, "--local_save_dir", str(tmp_path / "out")])
        return str(caught.value)

    good = write(tmp_path, "good", {"a": raw_task(1)})
    assert "no such file" in fails("--arc1_training", str(tmp_path / "none.json"))
    (tmp_path / "list.json").write_text("[1]")
    assert "expected {id: {train, test}}" in fails("--arc1_training", str(tmp_path / "list.json"))
    (tmp_path / "cut.json").write_text('{"a"')
    assert "not readable as JSON" in fails("--arc1_training", str(tmp_path / "cut.json"))
    assert "no task is usable" in fails("--arc1_training", write(tmp_path, "empty", {"a": {}}))
    assert "no task is left" in fails("--arc1_training", good, "--max_cells", "1")
    assert "no tokenizer found" in fails("--arc1_training", good, "--tokenizer", str(tmp_path / "nothing"))
    # argparse's own errors have exit status 2.
    assert fails() == "2"
    assert fails("--arc1_training", good, "--max_prompt_tokens", "9") == "2"
    assert fails("--arc1_training", good, "--max_rows", "0") == "2"
    assert not (tmp_path / "out").exists()
    with pytest.raises(SourceError, match="Check the path"):
        read_tasks(tmp_path / "none.json")


# ------------------------------ the real files ------------------------------


@pytest.fixture(scope="module")
def real() -> dict[str, list[Task]]:
    if not ARC.is_dir():
        pytest.skip(f"no development data: {ARC.name}/ is missing")
    collections = {}
    for name in arc.FILES:
        tasks, counts = read_tasks(ARC / f"arc-agi-{name[3]}_{arc.split_name(name)}.json.gz")
        assert counts == {"rows read": len(tasks)}
        collections[name] = tasks
    return collections


def test_the_real_collections_are_whole(real):
    sizes = {name: len(tasks) for name, tasks in real.items()}
    assert sizes == {"arc1_training": 400, "arc1_evaluation": 400, "arc2_training": 1000, "arc2_evaluation": 120}


def test_the_real_overlap_is_that_of_the_datas_readme(real):
    found = arc.overlaps(real)
    assert {pair: (len(o.same_id), len(o.same_pairs)) for pair, o in found.items()} == {
        ("arc1_training", "arc2_training"): (391, 1),
        ("arc1_evaluation", "arc2_training"): (376, 0),
        ("arc2_evaluation", "arc1_evaluation"): (6, 0),
        ("arc1_evaluation", "arc1_training"): (0, 1),
        ("arc2_evaluation", "arc1_training"): (0, 0),
        ("arc2_evaluation", "arc2_training"): (0, 0),
    }
    assert found["arc2_evaluation", "arc1_evaluation"].same_id == {
        "0934a4d8", "136b0064", "16b78196", "981571dc", "aa4ec2a5", "da515329",
    }  # fmt: skip


def test_after_dropping_no_training_task_is_anywhere_else(real):
    counts = {name: Counter() for name in real}
    kept = arc.drop_overlap(real, counts)
    assert {name: len(tasks) for name, tasks in kept.items()} == {
        "arc1_training": 399, "arc1_evaluation": 400, "arc2_training": 233, "arc2_evaluation": 120,
    }  # fmt: skip
    for loser in ("arc1_training", "arc2_training"):
        assert sum(counts[loser].values()) == len(real[loser]) - len(kept[loser])
        for other in set(arc.FILES) - {loser}:
            assert not find_overlap(kept[loser], kept[other]).ids


def test_size_limits_on_the_real_tasks_are_counted(real):
    counts = Counter()
    rows = arc.to_rows("arc1_training", real["arc1_training"], SizeLimits(max_cells=3000), None, counts)
    assert len(rows) + counts["more than 3000 cells in the examples"] == 400
    assert len(rows) == 389
