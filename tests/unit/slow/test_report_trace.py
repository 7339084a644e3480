"""The trace viewer's data: the page gets what the records say, and what they do not say."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from recipe.golden_redaction.pages.tokens import find_solution, token_texts
from recipe.golden_redaction.pages.trace import TraceSource, model_of_run, read_task_files
from recipe.golden_redaction.pages.trace_data import TraceBook, actions
from recipe.golden_redaction.pages.trace_entries import EntryTail, NoTraceError, check_log_probs, check_outputs
from recipe.golden_redaction.records.schema import find_problems
from recipe.golden_redaction.run_files import ENTRIES
from verl_ext.arc.prompts import ASSISTANT_PREFIX, encode_golden
from verl_ext.arc.solutions import read_solution
from verl_ext.report.blocks import unpack

PROMPT = list(range(100, 110))
GOLDEN = [1, 2, 3, 4, 5, 6]


def make_action(token: int, advantage: int = 0, after: float | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "token": token,
        "rollouts": [
            {"text": "x", "reward": 1, "statuses": ["ok"]},
            {"text": "y", "reward": 0, "statuses": ["timeout"]},
        ],
        "reward": 0.5,
        "confidence": 0.9,
        "advantage": advantage,
        "target": {1: -0.5, 0: None, -1: -2.0}[advantage],
        "log_prob_before": -1.0,
        "log_prob_after_trainer": after,
        "log_prob_after_engine": None,
        "log_prob_reference": -1.2,
    } | changes  # fmt: skip


def make_entry(
    k: int = 2,
    step: int = 1,
    problem: str = "p",
    golden: Sequence[int] = GOLDEN,
    prompt: Sequence[int] = PROMPT,
    **changes: Any,
) -> dict[str, Any]:
    teacher = golden[-k]
    made = {
        "schema": 1,
        "step": step,
        "weight_version": step - 1,
        "problem": problem,
        "k": k,
        "prompt_ids": [*prompt, *golden[: len(golden) - k]],
        "teacher": teacher,
        "state_reward": 0.5,
        "coverage": 0.8,
        "actions": [make_action(teacher), make_action(99)],
    } | changes
    assert find_problems(made) == []
    return made


def write(path: Path, entries: Sequence[dict[str, Any]], mode: str = "a") -> None:
    with path.open(mode, encoding="utf-8") as stream:
        stream.writelines(json.dumps(entry) + "\n" for entry in entries)


# ------------------------------ reading ------------------------------


def test_the_tail_gives_each_complete_entry_once(tmp_path: Path):
    path = tmp_path / "entries.jsonl"
    tail = EntryTail(path)
    assert tail.new_entries() == ([], False)
    write(path, [make_entry(step=1), make_entry(step=2)])
    assert [entry["step"] for entry in tail.new_entries()[0]] == [1, 2]
    line = json.dumps(make_entry(step=3)) + "\n"
    with path.open("a") as stream:
        stream.write(line[:50])
    assert tail.new_entries() == ([], False)
    with path.open("a") as stream:
        stream.write(line[50:])
    assert [entry["step"] for entry in tail.new_entries()[0]] == [3]


def test_the_tail_sees_that_a_resumed_run_cut_its_file_back_even_if_it_is_longer_now(tmp_path: Path):
    path = tmp_path / "entries.jsonl"
    write(path, [make_entry(step=1), make_entry(step=2)])
    tail = EntryTail(path)
    tail.new_entries()
    write(path, [make_entry(step=1), make_entry(step=2, k=3), make_entry(step=3)], mode="w")
    entries, is_void = tail.new_entries()
    assert is_void
    assert [(entry["step"], entry["k"]) for entry in entries] == [(1, 2), (2, 3), (3, 2)]
    path.unlink()
    assert tail.new_entries() == ([], True)


def test_a_bad_line_is_named(tmp_path: Path):
    path = tmp_path / "entries.jsonl"
    write(path, [make_entry()])
    tail = EntryTail(path)
    tail.new_entries()
    write(path, [make_entry(), {"schema": 1}])
    with pytest.raises(NoTraceError, match="line 3 does not follow the schema"):
        tail.new_entries()


def test_optional_fields_are_used_only_if_they_are_what_they_should_be():
    entry = make_entry()
    length = len(entry["prompt_ids"])
    good = {"policy": [None] + [-1.0] * (length - 1), "reference": [-2.0] * length}
    assert check_log_probs(entry) is None
    assert check_log_probs(entry | {"prompt_log_probs": good}) == good
    assert check_log_probs(entry | {"prompt_log_probs": good | {"policy": [-1.0]}}) is None
    assert check_log_probs(entry | {"prompt_log_probs": good | {"reference": ["a"] * length}}) == {
        "policy": good["policy"]
    }
    assert check_outputs({"outputs": [[[1, 2]], None]}) == [[[1, 2]], None]
    for wrong in ([[[10]]], [[[1], [1, 2]]], [[]], [[[True]]], "grid", [[[0] * 31]]):
        assert check_outputs({"outputs": wrong}) is None


# ------------------------------ what the page gets ------------------------------


def blocks_of(entries: Sequence[dict[str, Any]], **options: Any) -> dict[str, Any]:
    book = TraceBook(**options)
    book.add(entries)
    return {name: unpack(block) for name, block in book.blocks().items()}


def test_movement_is_judged_for_what_was_measured_and_labelled():
    found = actions(
        make_entry(
            actions=[
                make_action(5, advantage=1, after=-0.7, log_prob_after_engine=-1.3),
                make_action(6, advantage=-1, after=-2.5),
                make_action(7, advantage=1, after=None),
                make_action(8, advantage=0, after=-0.1),
            ]
        )
    )
    kinds = [action["trainer_moved"] and action["trainer_moved"]["kind"] for action in found]
    assert kinds == ["intended", "overshot", None, None]
    assert found[0]["engine_moved"]["kind"] == "wrong_way"
    assert found[0]["trainer_moved"]["moved"] == pytest.approx(0.3)
    assert found[0]["trainer_moved"]["asked"] == pytest.approx(0.5)
    assert found[1]["engine_moved"] is None


@pytest.mark.parametrize(("advantage", "after", "distance"), [(1, -0.7, 0.2), (-1, -1.6, 0.4), (-1, -2.5, 0.5)])
def test_the_table_has_the_distance_that_is_left_to_the_target(advantage: int, after: float, distance: float):
    (row,) = blocks_of([make_entry(actions=[make_action(5, advantage=advantage, after=after)])])["index"]["rows"]
    moved, left = row[-2:]
    assert moved == pytest.approx(abs(after + 1.0))
    assert left == pytest.approx(distance)


def test_labels_passes_and_failures_are_counted():
    rollouts = [
        {"text": "", "reward": 1, "statuses": ["ok"]},
        {"text": "", "reward": 0, "statuses": ["timeout"]},
        {"text": "", "reward": None, "statuses": ["infrastructure_error"]},
    ]
    entry = make_entry(actions=[make_action(5, rollouts=rollouts)])
    (action,) = actions(entry)
    assert (action["passes"], action["labels"], action["failures"]) == (1, 2, 1)
    blocks = blocks_of([entry])
    assert blocks["index"]["rows"][0][7:9] == [3, 1]
    assert blocks["rollouts-0-0"]["0"][0] == rollouts


def test_a_row_says_how_far_its_labelled_tokens_moved_and_missed():
    labelled = make_action(GOLDEN[-2], advantage=1, after=-0.4)
    row = blocks_of([make_entry(actions=[labelled, make_action(2)])])["index"]["rows"][0]
    moved = -0.4 - labelled["log_prob_before"]
    assert row[10] == pytest.approx(abs(moved), abs=1e-5)
    assert row[11] == pytest.approx(abs(labelled["target"] + 0.4), abs=1e-5)
    assert blocks_of([make_entry()])["index"]["rows"][0][10:] == [None, None]


def test_states_of_a_problem_share_their_ids():
    blocks = blocks_of(
        [make_entry(k=4), make_entry(k=1, step=2), make_entry(k=2, step=3), make_entry(problem="q", step=3)]
    )
    problem = blocks["problem-0"]
    assert problem["sequences"] == [[*PROMPT, *GOLDEN[:-1]]]
    assert [entry["length"] for entry in problem["entries"]] == [12, 15, 14]
    assert [entry["entry"] for entry in problem["entries"]] == [0, 1, 2]
    assert blocks["problem-1"]["entries"][0]["entry"] == 3
    other = blocks_of([make_entry(), make_entry(prompt=[7, *PROMPT[1:]], step=2)])["problem-0"]
    assert len(other["sequences"]) == 2
    assert [entry["fits"] for entry in other["entries"]] == [True, True]


def test_a_state_that_comes_twice_in_a_step_has_two_addresses():
    rows = blocks_of([make_entry(), make_entry(k=3), make_entry(), make_entry(step=2)])["index"]["rows"]
    assert [row[6] for row in rows] == [0, 0, 1, 0]


def test_blocks_of_problems_without_news_are_not_packed_again():
    book = TraceBook()
    book.add([make_entry(problem="a"), make_entry(problem="b")])
    before = book.blocks()
    book.add([make_entry(problem="b", step=2)])
    after = book.blocks()
    assert after["problem-0"] is before["problem-0"]
    assert len(unpack(after["problem-1"])["entries"]) == 2


def test_rollouts_are_split_into_blocks_of_bounded_size(monkeypatch):
    monkeypatch.setattr("recipe.golden_redaction.pages.trace_data.ROLLOUTS_SIZE", 500)
    blocks = blocks_of([make_entry(step=step) for step in range(1, 6)])
    names = [entry["rollouts"] for entry in blocks["problem-0"]["entries"]]
    assert names == ["rollouts-0-0", "rollouts-0-0", "rollouts-0-1", "rollouts-0-1", "rollouts-0-2"]
    assert all(str(place) in blocks[name] for place, name in enumerate(names))


# ------------------------------ tokens and solutions ------------------------------


def test_token_texts_joined_are_the_text_and_unknown_ids_have_a_name():
    tokenizer = build_tokenizer()
    text = " def solve():\n\treturn 1"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    texts = token_texts([*ids, tokenizer.eos_token_id, 10**7], tokenizer)
    assert "".join(texts[token] for token in ids) == text
    assert texts[tokenizer.eos_token_id] == "<|endoftext|>"
    assert texts[10**7] == f"<{10**7}>"


def test_the_golden_solution_comes_from_its_file_where_that_agrees():
    tokenizer = build_tokenizer()
    golden = encode_golden(read_solution("67a3c6ac"), tokenizer)
    entry = make_entry(k=10, problem="67a3c6ac", golden=golden, actions=[make_action(golden[-10])])
    solution = find_solution([entry], tokenizer, {})
    assert (solution.start, solution.ids, solution.is_complete) == (len(PROMPT), golden, True)
    changed = [golden[0] + 1, *golden[1:]]
    entry = make_entry(k=10, problem="67a3c6ac", golden=changed, actions=[make_action(golden[-10])])
    assert not find_solution([entry], tokenizer, {}).is_complete


def test_without_a_file_the_solution_is_put_together_from_the_states():
    tokenizer = build_tokenizer()
    prompt = tokenizer("Observations: no. " + ASSISTANT_PREFIX, add_special_tokens=False)["input_ids"]
    entries = [make_entry(k=k, prompt=prompt) for k in (5, 3, 1)]
    texts = token_texts({*prompt, *GOLDEN}, tokenizer)
    solution = find_solution(entries[:2], tokenizer, texts)
    assert (solution.start, solution.ids) == (len(prompt), [1, 2, 3, 4, None, None])
    assert find_solution(entries, tokenizer, texts).ids == GOLDEN
    # Without texts, tokens that no state hides may be the prompt's.
    assert find_solution(entries[:2], None, {}).start == len(prompt) + 1


def test_states_of_several_prompts_show_the_same_solution():
    longer = [*PROMPT, 110, 111]
    entries = [make_entry(k=5), make_entry(k=3, prompt=longer, step=2), make_entry(k=2, step=3)]
    for entry, prompt in zip(entries, (PROMPT, longer, PROMPT), strict=True):
        entry["golden_start"] = len(prompt)
    solution = find_solution(entries, None, {})
    assert solution.ids == [1, 2, 3, 4, 5, None]
    assert all(solution.fits(entry) for entry in entries)
    assert [solution.start_in(entry) for entry in entries] == [10, 12, 10]
    book = TraceBook()
    book.add(entries)
    detail = unpack(book.blocks()["problem-0"])["entries"]
    assert [(entry["start"], entry["length"], entry["fits"]) for entry in detail] == [
        (10, 11, True), (12, 15, True), (10, 14, True)
    ]  # fmt: skip
    # Entries of before this was recorded have the start of the newest one's prompt.
    del entries[0]["golden_start"]
    assert find_solution(entries, None, {}).fits(entries[0])


def test_states_of_another_solution_do_not_fit():
    old, new = make_entry(k=2), make_entry(k=2, golden=[1, 2, 3, 9, 5, 6, 7], step=2)
    solution = find_solution([old, new], None, {})
    assert solution.fits(new)
    assert not solution.fits(old)


def test_a_problems_name_never_becomes_a_path_out_of_the_folder():
    find_solution([make_entry(problem="../golden_order")], build_tokenizer(), {})
    assert not find_solution([make_entry(problem="__main__")], build_tokenizer(), {}).is_complete


# ------------------------------ the source ------------------------------


def test_the_version_changes_exactly_with_the_entries(tmp_path: Path):
    path = tmp_path / ENTRIES
    source = TraceSource(path, TraceBook())
    first = source.refresh()
    assert source.refresh() == first
    write(path, [make_entry()])
    second = source.refresh()
    assert second != first
    page = source.page()
    assert source.refresh() == second
    assert source.page() is page
    write(path, [make_entry(step=2)], mode="w")
    assert source.refresh() != second
    assert unpack(source.page().blocks["index"])["rows"][0][2] == 2


def test_the_model_is_read_from_the_runs_configuration(tmp_path: Path):
    assert model_of_run(tmp_path) is None
    (tmp_path / "hydra").mkdir()
    config = tmp_path / "hydra" / "config.yaml"
    for text, model in (
        ("actor_rollout_ref:\n  model:\n    path: a/b\n", "a/b"),
        ("actor_rollout_ref: 3\n", None),
        ("a: [", None),
    ):
        config.write_text(text)
        assert model_of_run(tmp_path) == model


def test_no_tasks_are_no_problem():
    assert read_task_files([]) == {}
