"""`python -m recipe.golden_redaction.evaluate` on real vLLM and sandbox, with a random model. The golden solutions end
in a comment, so that most continuations of a short hidden end leave the program correct."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROOT

pytestmark = pytest.mark.release

SOURCE = (
    'def solve(input_grid):\n    """\n    Observations:\n    - Rows are reversed.\n    Procedure:\n    1. Reverse.\n'
    '    """\n    result = [row[::-1] for row in input_grid]\n    return result  # as the procedure says, and no more\n'
)
K, N, TASKS = 4, 8, ("aaaaaaaa", "bbbbbbbb", "cccccccc")  # the last has no golden solution


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with byte tokens, three tasks, two golden solutions, fresh pairs, visited states."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("golden_evaluate")
    tokenizer = _byte_tokenizer()
    tokenizer.save_pretrained(folder / "model")
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=4096, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    (folder / "golden").mkdir()
    for name in TASKS[:2]:
        (folder / "golden" / f"{name}.py").write_text(SOURCE)
    _write_tasks(folder)
    # The golden rule solves one of the two fresh pairs.
    pairs = [{"input": [[1, 2]], "output": [[2, 1]]}, {"input": [[1, 2]], "output": [[1, 2]]}]
    with gzip.open(folder / "fresh.jsonl.gz", "wt") as stream:
        stream.write(json.dumps({"id": TASKS[0], "pairs": pairs}) + "\n")
    (folder / "states.jsonl").write_text(json.dumps({"problem": TASKS[0], "k": K}) + "\n")
    return folder


def _byte_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>")


def _write_tasks(folder: Path) -> None:
    from verl_ext.arc.prompts import user_message
    from verl_ext.data.arc_tasks import Pair, Task
    from verl_ext.data.schema import make_row, write_parquet

    def pairs(*grids):
        return [{"input": grid, "output": [row[::-1] for row in grid]} for grid in grids]

    rows = []
    for number, name in enumerate(TASKS):
        train, test = pairs([[number, 1]], [[2, number]]), pairs([[3, number, 4]])
        examples = tuple(Pair(*(tuple(map(tuple, pair[side])) for side in ("input", "output"))) for pair in train)
        row = make_row(
            "arc_agi_1",
            user_message(Task(name, examples, examples)),
            json.dumps({"train": train}),
            index=f"arc_agi_1/{name}",
            split="training",
            ability="arc",
            extra_info={"task_id": name, "num_cells": 8, "num_examples": 2},
            test_pairs=json.dumps(test),
        )
        rows.append(row)
    write_parquet(rows, folder / "tasks.parquet")


def _evaluate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "recipe.golden_redaction.evaluate", "--model", str(folder / "model"),
        "--data", str(folder / "tasks.parquet"), "--golden_folder", str(folder / "golden"),
        "--fresh", str(folder / "fresh.jsonl.gz"), "--states", str(folder / "states.jsonl"), "--redact", "0.5",
        "--n", str(N), "--max_new_tokens", "4", "--kv_cache_gib", "0.1", "--chunk_size", "2",
        "--sandbox_workers", "1", "--output_dir", str(folder / "out"),
    ]  # fmt: skip
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)


@pytest.fixture(scope="module")
def evaluated(folder: Path) -> tuple[str, dict]:
    """What the command printed and wrote."""
    result = _evaluate(folder)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout, json.loads((folder / "out/result.json").read_text())


def test_every_rung_has_its_states(evaluated: tuple[str, dict], folder: Path):
    from verl_ext.arc.prompts import golden_text

    length = len(golden_text(SOURCE))
    rungs = {rung["name"]: rung["states"] for rung in evaluated[1]["rungs"]}
    assert rungs == {
        "same states": [[TASKS[0], K]],
        "hidden 50 %": [[TASKS[0], -(-length // 2)]],
        "whole solution": [[TASKS[0], length]],
        "fresh pairs": [[TASKS[0], length]],
        "unseen tasks": [[TASKS[1], length], [TASKS[2], 0]],
    }
    assert all(name in evaluated[0] for name in rungs)


def test_programs_are_judged_on_examples_test_and_fresh_pairs(evaluated: tuple[str, dict], folder: Path):
    states = {(state["problem"], state["k"]): state for state in evaluated[1]["states"]}
    near = states.pop((TASKS[0], K))
    assert near["num_samples"] == near["num_labels"] == N
    assert 0.5 <= near["metrics"]["pass_rate"] <= 1  # four random bytes of a comment rarely hold a line break
    assert near["metrics"]["test_pass_rate"] == near["metrics"]["pass_rate"]
    assert near["metrics"]["test_solved"] == 1
    assert (near["metrics"]["fresh_right"], near["metrics"]["fresh_pass_rate"]) == (0.5, 0)
    assert near["metrics"]["fresh_solved"] == 0
    submitted = json.loads((folder / "out/submission.json").read_text())
    assert submitted == {task: [{"attempt_1": [[0]], "attempt_2": [[0]]}] for task in TASKS}
    for state in states.values():  # random bytes are not a program
        assert (state["num_labels"], state["num_passed"], state["metrics"]["test_solved"]) == (N, 0, 0)


def test_a_killed_and_resumed_evaluation_equals_an_uninterrupted_one(evaluated: tuple[str, dict], folder: Path):
    samples, result = folder / "out/samples.jsonl", folder / "out/result.json"
    whole, report = samples.read_bytes(), json.loads(result.read_text())
    samples.write_bytes(whole[: -len(whole) // 20])  # killed in the middle of a line of the last chunk
    before = folder / "before.json"
    result.rename(before)
    resumed = _evaluate(folder, "--compare", str(before))
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert samples.read_bytes() == whole
    content = json.loads(result.read_text())
    comparison = content.pop("comparison")["rungs"]
    assert report.pop("comparison") is None
    assert content == report
    assert [entry["rung"] for entry in comparison[::2]] == [rung["name"] for rung in report["rungs"]]
    assert all(entry["difference"]["value"] == entry["rose"] == entry["fell"] == 0 for entry in comparison)
    assert "compared with" in resumed.stdout


def test_without_time_left_nothing_is_sampled_and_what_is_there_counts(evaluated: tuple[str, dict], folder: Path):
    samples = folder / "out/samples.jsonl"
    whole = samples.read_bytes()
    samples.write_bytes(whole[: -len(whole) // 20])
    try:
        stopped = _evaluate(folder, "--time_budget", "1e-9")
        assert stopped.returncode == 0, stopped.stderr[-3000:]
        assert "states have no answer and are not counted; run the same command to continue" in stopped.stderr
        states = json.loads((folder / "out/result.json").read_text())["states"]
        assert 0 < len(states) < len(evaluated[1]["states"])
        assert set(json.loads((folder / "out/submission.json").read_text())) == set(TASKS)
    finally:
        samples.write_bytes(whole)
