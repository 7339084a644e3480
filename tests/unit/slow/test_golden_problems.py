"""The problems of a run: read from files of data_preprocess.arc, from easy to hard; omitted ones are counted."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from data_preprocess.arc import to_rows
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from recipe.golden_redaction.method.problems import Problem, RewardSettings, hold_out, read_problems, vary_prompts
from recipe.golden_redaction.method.prompt_format import check_model
from verl_ext.arc.order import ORDER
from verl_ext.arc.prompts import CODE_PREFIX, PromptSettings, SizeLimits, encode_golden, encode_prompt
from verl_ext.core.errors import ConfigError
from verl_ext.data.arc_tasks import Pair, Task, parse_task
from verl_ext.data.schema import make_row, write_parquet

EASY, HARD, UNRANKED, WITHOUT = ORDER[0], ORDER[-1], "zzzzzzzz", "00000000"
NO_LIMITS = SizeLimits()


def raw_task(colour: int, side: int = 2) -> dict[str, Any]:
    grid = [[colour] * side for _ in range(side)]
    return {"train": [{"input": grid, "output": [[colour]]}], "test": [{"input": [[colour, 0]], "output": grid}]}


TASKS = {WITHOUT: raw_task(1), UNRANKED: raw_task(2), HARD: raw_task(3), EASY: raw_task(4)}


def source(lines: int = 1) -> str:
    body = "    result = input_grid\n" * lines
    return f'{CODE_PREFIX}\n    - One.\n    Procedure:\n    1. Do it.\n    """\n{body}    return result\n'


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Solutions of three of the tasks, and of one that is in no file."""
    folder = tmp_path / "golden"
    folder.mkdir()
    for lines, name in enumerate((EASY, HARD, UNRANKED, ORDER[1]), start=1):
        (folder / f"{name}.py").write_text(source(lines))
    return folder


def rows_of(tasks: dict[str, dict], tokenizer: Any = None) -> list[dict[str, Any]]:
    parsed = [parse_task(name, raw) for name, raw in tasks.items()]
    return to_rows("arc1_training", parsed, NO_LIMITS, tokenizer, Counter())


def write(folder: Path, tasks: dict[str, dict], tokenizer: Any = None, name: str = "train") -> Path:
    path = folder / f"{name}.parquet"
    write_parquet(rows_of(tasks, tokenizer), path)
    return path


def ids(problems: list[Problem]) -> list[str]:
    return [problem.id for problem in problems]


def test_problems_come_from_easy_to_hard_whatever_the_files_order(tmp_path: Path, golden: Path, tokenizer):
    files = [write(tmp_path, {HARD: TASKS[HARD], UNRANKED: TASKS[UNRANKED]}, name="b"),
             write(tmp_path, {WITHOUT: TASKS[WITHOUT], EASY: TASKS[EASY]}, name="a")]  # fmt: skip
    problems, counts = read_problems(files, tokenizer, NO_LIMITS, golden)
    assert ids(problems) == [EASY, HARD, UNRANKED]
    assert counts == {"tasks read": 4, "no golden solution": 1}


def test_a_problem_is_the_task_and_its_golden_solution_in_token_ids(tmp_path: Path, golden: Path, tokenizer):
    problems, _ = read_problems([write(tmp_path, TASKS)], tokenizer, NO_LIMITS, golden)
    hard = problems[1]
    assert hard == Problem(
        id=HARD,
        prompt_ids=tuple(encode_prompt(parse_task(HARD, TASKS[HARD]), tokenizer)),
        golden_ids=tuple(encode_golden(source(2), tokenizer)),
        pairs=(Pair(((3, 3), (3, 3)), ((3,),)),),
        test_pairs=(Pair(((3, 0),), ((3, 3), (3, 3))),),
    )


def test_tasks_without_a_golden_solution_come_last_where_none_is_needed(tmp_path: Path, golden: Path, tokenizer):
    tasks = {"11111111": raw_task(5), **TASKS}
    problems, counts = read_problems([write(tmp_path, tasks)], tokenizer, NO_LIMITS, golden, needs_golden=False)
    assert ids(problems) == [EASY, HARD, UNRANKED, WITHOUT, "11111111"]
    assert [bool(problem.golden_ids) for problem in problems] == [True, True, True, False, False]
    assert counts == {"tasks read": 5}


def test_larger_tasks_are_left_out_and_counted_by_limit(tmp_path: Path, golden: Path, tokenizer):
    tasks = {**TASKS, EASY: raw_task(4, side=9)}
    path = write(tmp_path, tasks)
    problems, counts = read_problems([path], tokenizer, SizeLimits(max_cells=10), golden)
    assert ids(problems) == [HARD, UNRANKED]
    assert counts == {"tasks read": 4, "more than 10 cells in the examples": 1, "no golden solution": 1}

    everything, _ = read_problems([path], tokenizer, NO_LIMITS, golden)
    prompts = [len(problem.prompt_ids) for problem in everything]
    assert prompts[0] > prompts[1] == prompts[2]
    problems, counts = read_problems([path], tokenizer, SizeLimits(max_prompt_tokens=prompts[1]), golden)
    assert ids(problems) == [HARD, UNRANKED]
    assert counts[f"more than {prompts[1]} prompt tokens"] == 1

    longest = len(everything[2].golden_ids)
    problems, counts = read_problems([path], tokenizer, SizeLimits(max_golden_tokens=longest - 1), golden)
    assert ids(problems) == [EASY, HARD]
    assert counts[f"more than {longest - 1} golden tokens"] == 1
    assert len(read_problems([path], tokenizer, SizeLimits(max_golden_tokens=longest), golden)[0]) == 3


def test_large_tasks_are_never_tokenized(tmp_path: Path, golden: Path, tokenizer):
    class Watched:
        chat_template = None
        bos_token_id = None

        def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
            assert "444444444" not in text
            return tokenizer(text, add_special_tokens=add_special_tokens)

        def decode(self, *args: Any, **kwargs: Any) -> str:
            return tokenizer.decode(*args, **kwargs)

    path = write(tmp_path, {**TASKS, EASY: raw_task(4, side=9)})
    assert ids(read_problems([path], Watched(), SizeLimits(max_cells=10), golden)[0]) == [HARD, UNRANKED]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AssertionError):
        read_problems([path], Watched(), NO_LIMITS, golden)  # pyright: ignore[reportArgumentType]


# ------------------------------ what is refused ------------------------------


def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read_problems(*args, **kwargs)
    return str(caught.value)


def test_prompt_ids_of_another_tokenizer_are_refused(tmp_path: Path, golden: Path, tokenizer):
    other = build_tokenizer()
    other.chat_template = "User: {% for m in messages %}{{ m['content'] }}{% endfor %}"
    path = write(tmp_path, TASKS, tokenizer)
    assert len(read_problems([path], tokenizer, NO_LIMITS, golden)[0]) == 3
    message = refused([path], other, NO_LIMITS, golden)
    for words in (f"prompt_ids of task {EASY}", "another tokenizer", "run data_preprocess.arc again", "--tokenizer"):
        assert words in message


@pytest.mark.parametrize("test_inputs", [False, True])
def test_prompts_of_another_form_are_refused_with_the_form_that_they_have(
    tmp_path: Path, golden: Path, tokenizer, test_inputs
):
    form = PromptSettings(grid="spaced", test_inputs=test_inputs)
    parsed = [parse_task(name, raw) for name, raw in TASKS.items()]
    path = tmp_path / "train.parquet"
    write_parquet(to_rows("arc1_training", parsed, NO_LIMITS, tokenizer, Counter(), form), path)
    problems, _ = read_problems([path], tokenizer, NO_LIMITS, golden, prompt=form)
    assert list(problems[0].prompt_ids) == encode_prompt(parse_task(EASY, TASKS[EASY]), tokenizer, form)
    message = refused([path], tokenizer, NO_LIMITS, golden)
    shown = str(test_inputs).lower()
    for words in (
        f"was made with grid=spaced, test_inputs={shown}, and this run makes prompts with grid=compact",
        "run data_preprocess.arc again with --grid_format compact, or set golden.prompt",
        "--grid_format spaced --test_inputs)" if test_inputs else "--grid_format spaced)",
    ):
        assert words in message


def test_prompts_that_were_changed_are_refused(tmp_path: Path, golden: Path, tokenizer):
    rows = rows_of({EASY: TASKS[EASY]})
    rows[0]["prompt"][0]["content"] += "!"
    write_parquet(rows, tmp_path / "train.parquet")
    message = refused([tmp_path / "train.parquet"], tokenizer, NO_LIMITS, golden)
    assert f"the prompt of task {EASY} was made by another version of data_preprocess.arc, or it was changed" in message
    assert "or set golden.prompt" not in message


def write_model_record(folder: Path, record: object) -> Path:
    (folder / "settings.json").write_text(json.dumps({"settings": record}))
    return folder


def test_a_small_model_that_was_trained_on_another_form_is_refused(tmp_path: Path):
    spaced, compact = PromptSettings(grid="spaced"), PromptSettings()
    for record in ({"tasks": "a", "prompt": spaced.model_dump()}, {"tasks": "a"}):  # the second is older
        folder = write_model_record(tmp_path, record)
        check_model(folder, spaced)
        with pytest.raises(ConfigError) as caught:
            check_model(folder, compact)
        for words in (
            f"{folder} was trained on prompts with grid=spaced, test_inputs=false, and this run makes them with",
            "set golden.prompt (of an evaluation: --grid_format spaced)",
            "train it again (data_preprocess.arc_model --grid_format compact)",
        ):
            assert words in str(caught.value)


def test_other_models_take_any_form(tmp_path: Path):
    check_model(Path("Qwen/Qwen3-4B-Instruct-2507"), PromptSettings(test_inputs=True))
    for record in ({"hidden_size": 3}, 7, {"tasks": "a", "prompt": {"grid": "round"}}):
        check_model(write_model_record(tmp_path, record), PromptSettings(test_inputs=True))


def test_files_of_something_else_are_refused(tmp_path: Path, golden: Path, tokenizer):
    path = tmp_path / "math.parquet"
    write_parquet([make_row("math", "1 + 1?", "2", index=0, split="train", ability="math")], path)
    message = refused([path], tokenizer, NO_LIMITS, golden)
    for words in ("expected parquet files of data_preprocess.arc", str(path), "lack test_pairs"):
        assert words in message
    # Also next to good files.
    assert "lack test_pairs" in refused([write(tmp_path, TASKS), path], tokenizer, NO_LIMITS, golden)


def test_files_that_are_no_data_are_refused(tmp_path: Path, golden: Path, tokenizer):
    assert "data.train_files: " in refused([tmp_path / "none.parquet"], tokenizer, NO_LIMITS, golden)
    (tmp_path / "text.parquet").write_text("no parquet")
    assert "not a readable parquet file" in refused([tmp_path / "text.parquet"], tokenizer, NO_LIMITS, golden)


@pytest.mark.parametrize("column", ["test_pairs", "reward_model"])
def test_rows_that_the_program_did_not_write_are_refused(tmp_path: Path, golden: Path, tokenizer, column: str):
    rows = rows_of({EASY: TASKS[EASY]})
    rows[0][column] = {
        "test_pairs": "[{]",
        "reward_model": {"style": "rule", "ground_truth": "7"},
    }[column]
    path = tmp_path / "train.parquet"
    write_parquet(rows, path)
    message = refused([path], tokenizer, NO_LIMITS, golden)
    assert f"task {EASY} was not written by data_preprocess.arc" in message
    assert "make it again" in message


def test_a_row_that_names_no_task_is_refused(tmp_path: Path, golden: Path, tokenizer):
    rows = rows_of({EASY: TASKS[EASY]})
    del rows[0]["extra_info"]["task_id"]
    write_parquet(rows, tmp_path / "train.parquet")
    assert "task_id must name the task, got None" in refused([tmp_path / "train.parquet"], tokenizer, NO_LIMITS, golden)


def test_a_golden_solution_that_is_none_is_refused_by_name(tmp_path: Path, golden: Path, tokenizer):
    (golden / f"{EASY}.py").write_text("def solve(grid):\n    return grid\n")
    assert f"the golden solution of {EASY}: a golden solution must begin with" in refused(
        [write(tmp_path, TASKS)], tokenizer, NO_LIMITS, golden
    )


def test_a_task_that_is_there_twice_is_refused(tmp_path: Path, golden: Path, tokenizer):
    once = write(tmp_path, TASKS, name="a")
    rows = pq.read_table(once).to_pylist()
    # The same task of the other collection has another index, so it is not a repeat.
    again = [row | {"extra_info": row["extra_info"] | {"index": f"arc_agi_2/{row['extra_info']['task_id']}"}}
             for row in rows if row["extra_info"]["task_id"] == HARD]  # fmt: skip
    write_parquet(again, tmp_path / "b.parquet")
    message = refused([once, tmp_path / "b.parquet"], tokenizer, NO_LIMITS, golden)
    assert f"task {HARD} is in the files twice" in message
    assert "give each file once" in message
    assert "is in the files twice" in refused([once, once], tokenizer, NO_LIMITS, golden)


@pytest.mark.parametrize(
    ("tasks", "limits", "words"),
    [
        ({WITHOUT: TASKS[WITHOUT]}, NO_LIMITS, "none of the 1 task(s)"),
        (TASKS, SizeLimits(max_cells=1), "none of the 4 task(s)"),
    ],
)
def test_nothing_left_is_refused_with_the_reasons(tmp_path: Path, golden: Path, tokenizer, tasks, limits, words: str):
    path = write(tmp_path, tasks)
    message = refused([path], tokenizer, limits, golden)
    for part in (words, str(path), "no golden solution", "verl_ext/arc/golden/", "golden.limits"):
        assert part in message
    if limits.max_cells:
        assert "more than 1 cells in the examples" in message


# ------------------------------ what is held out ------------------------------


def held_out(tmp_path: Path, golden: Path, tokenizer: Any, **settings: Any) -> dict[str, tuple[Pair, ...]]:
    problems, _ = read_problems([write(tmp_path, TASKS)], tokenizer, NO_LIMITS, golden)
    found = hold_out(problems, RewardSettings(**settings))
    assert all(problem.reward_pairs == problem.pairs + problem.held_out for problem in found)
    return {problem.id: problem.held_out for problem in found}


def fresh_file(folder: Path, pairs: dict[str, list[Pair]]) -> str:
    path = folder / "fresh.jsonl"
    lines = [
        {"id": name, "pairs": [{"input": p.input, "output": p.output} for p in own]} for name, own in pairs.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_a_reward_needs_the_test_pairs_by_default(tmp_path: Path, golden: Path, tokenizer):
    found = held_out(tmp_path, golden, tokenizer)
    assert found[HARD] == (Pair(((3, 0),), ((3, 3), (3, 3))),)
    assert all(found.values())
    assert not any(held_out(tmp_path, golden, tokenizer, test_pairs=False).values())


def test_fresh_pairs_are_the_first_of_a_file_and_none_that_is_shown(tmp_path: Path, golden: Path, tokenizer):
    shown, test = Pair(((3, 3), (3, 3)), ((3,),)), Pair(((3, 0),), ((3, 3), (3, 3)))
    more = [Pair(((n,),), ((3,),)) for n in range(5)]
    path = fresh_file(tmp_path, {HARD: [shown, test, *more], "absent": more})
    found = held_out(tmp_path, golden, tokenizer, fresh_pairs=path, num_fresh=4)
    assert found[HARD] == (test, *more[:2])
    assert found[EASY] == (Pair(((4, 0),), ((4, 4), (4, 4))),)
    found = held_out(tmp_path, golden, tokenizer, fresh_pairs=path, num_fresh=3, test_pairs=False)
    assert (found[HARD], found[EASY]) == ((test, more[0]), ())


def test_a_file_without_a_pair_of_the_problems_is_refused(tmp_path: Path, golden: Path, tokenizer):
    path = fresh_file(tmp_path, {"absent": [Pair(((1,),), ((3,),))]})
    with pytest.raises(ConfigError, match=r"fresh_pairs=.*has no pair of any of the 3 problem"):
        held_out(tmp_path, golden, tokenizer, fresh_pairs=path)
    with pytest.raises(ConfigError, match=r"golden\.reward\.fresh_pairs: .*no such file"):
        held_out(tmp_path, golden, tokenizer, fresh_pairs=path + ".gz")


# ------------------------------ other prompts ------------------------------

SHOWN = tuple(Pair(((n, n),), ((n,),)) for n in range(1, 4))
TEST = (Pair(((9, 9),), ((9,),)),)


def several(tokenizer: Any, **changes: Any) -> Problem:
    task = Task("a", SHOWN, TEST)
    return replace(Problem("a", tuple(encode_prompt(task, tokenizer)), (65, 66, 67), SHOWN, TEST), **changes)


def shown_in(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """The inputs of a prompt's examples, such as 11."""
    return re.findall(r"Input \(1 x 2\):\n(\d\d)", tokenizer.decode(list(ids)))


def test_every_prompt_shows_as_many_examples_and_none_that_is_held_out(tokenizer):
    spare = tuple(Pair(((n, n),), ((n,),)) for n in range(4, 7))
    problem = several(tokenizer, held_out=TEST, spare=spare)
    (varied,) = vary_prompts([problem], 8, tokenizer, NO_LIMITS)
    shown = [shown_in(prompt, tokenizer) for prompt in varied.prompts]
    assert shown[0] == ["11", "22", "33"]
    assert {len(set(found)) for found in shown} == {3}
    assert set().union(*shown) == {"11", "22", "33", "44", "55", "66"}
    assert len(set(map(tuple, shown))) == len(shown) == 8
    assert vary_prompts([problem], 8, tokenizer, NO_LIMITS) == [varied]
    assert vary_prompts([problem], 3, tokenizer, NO_LIMITS)[0].prompts == varied.prompts[:3]
    assert vary_prompts([problem], 1, tokenizer, NO_LIMITS) == [problem]


def test_without_spare_pairs_the_order_varies_as_far_as_there_are_others(tokenizer):
    (varied,) = vary_prompts([several(tokenizer)], 100, tokenizer, NO_LIMITS)
    shown = [shown_in(prompt, tokenizer) for prompt in varied.prompts]
    assert {tuple(sorted(found)) for found in shown} == {("11", "22", "33")}
    assert len(set(map(tuple, shown))) == len(shown) == 6
    (alone,) = vary_prompts([several(tokenizer, pairs=SHOWN[:1])], 4, tokenizer, NO_LIMITS)
    assert len(alone.prompts) <= 2


def test_a_prompt_with_large_spare_pairs_shows_the_tasks_own_examples(tokenizer):
    large = tuple(Pair((tuple([n] * 30),) * 30, ((n,),)) for n in range(4, 9))
    problem = several(tokenizer, spare=large)
    limits = SizeLimits(max_prompt_tokens=len(problem.prompt_ids))
    (varied,) = vary_prompts([problem], 4, tokenizer, limits)
    assert len(varied.prompts) > 1
    assert all(sorted(shown_in(prompt, tokenizer)) == ["11", "22", "33"] for prompt in varied.prompts)


def test_a_state_is_found_in_the_prompt_that_it_was_made_from(tokenizer):
    (varied,) = vary_prompts([several(tokenizer)], 3, tokenizer, NO_LIMITS)
    for number, prompt in enumerate(varied.prompts):
        assert varied.state(2, number) == [*prompt, 65]
        assert varied.prompt_of(2, varied.state(2, number)) == number
        assert varied.has_state(2, varied.state(2, number))
    assert varied.prompt_of(2, [*varied.prompt_ids, 66]) is None
    assert not varied.has_state(1, varied.state(2, 1))


def test_pairs_left_over_are_spare(tmp_path: Path, golden: Path, tokenizer):
    shown, test = Pair(((3, 3), (3, 3)), ((3,),)), Pair(((3, 0),), ((3, 3), (3, 3)))
    more = [Pair(((n,),), ((3,),)) for n in range(5)]
    path = fresh_file(tmp_path, {HARD: [more[0], shown, test, *more]})
    problems, _ = read_problems([write(tmp_path, TASKS)], tokenizer, NO_LIMITS, golden)
    for with_test in (True, False):
        settings = RewardSettings(test_pairs=with_test, fresh_pairs=path, num_fresh=1)
        found = {problem.id: problem for problem in hold_out(problems, settings)}
        assert found[HARD].spare == tuple(more[1:])
        assert found[EASY].spare == ()
