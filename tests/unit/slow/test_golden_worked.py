"""Worked solutions as texts: problems from rows in verl's schema, judged by a reward function."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from recipe.golden_redaction.checks import check_config, read_run_problems
from recipe.golden_redaction.method.judging import Answer, RewardJudge
from recipe.golden_redaction.method.problems import read_problems
from recipe.golden_redaction.method.worked import RowFormat, WorkedProblem, check_solutions, read_worked
from recipe.golden_redaction.recipe import UNSUPPORTED
from recipe.golden_redaction.settings import read_settings
from verl_ext.arc.prompts import SizeLimits
from verl_ext.core.errors import ConfigError
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.launch.preflight.verdicts import Case

ROOT = Path(__file__).resolve().parents[3]
TOKENIZER: Any = build_tokenizer()
NO_LIMITS = SizeLimits()
ROWS = RowFormat()


def row(number: int, solution: str | None, **columns: Any) -> dict[str, Any]:
    own = {"golden_solution": solution} | columns
    return make_row("arithmetic", f"{number}+1=", str(number + 1), index=number, split="train", ability="math", **own)


class Lowercase:
    """Loses letter case, which `TOKENIZER` does not."""

    chat_template = TOKENIZER.chat_template
    bos_token_id = None
    apply_chat_template = TOKENIZER.apply_chat_template
    decode = TOKENIZER.decode

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> Any:
        return TOKENIZER(text.lower(), add_special_tokens=add_special_tokens)


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    write_parquet(rows, folder / "worked.parquet")
    return folder / "worked.parquet"


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


# ------------------------------ problems ------------------------------


def test_problems_are_the_rows_with_a_solution_the_shortest_first(tmp_path: Path):
    path = write(tmp_path, row(99, "100"), row(4, "5"), row(7, None), row(8, "  "), row(12345, "12346"))
    problems, counts = read_worked([path], TOKENIZER, SizeLimits(max_golden_tokens=4), ROWS)
    assert [problem.id for problem in problems] == ["4", "99"]
    assert counts == {"rows read": 5, "no golden solution": 2, "more than 4 golden tokens": 1}
    problem = problems[1]
    assert problem.golden_ids == ids("100")
    prompt = TOKENIZER.apply_chat_template(
        [{"role": "user", "content": "99+1="}], tokenize=False, add_generation_prompt=True
    )
    assert problem.prompt_ids == ids(prompt)
    assert problem.case.data_source == "arithmetic"
    assert (problem.case.ground_truth, problem.case.extra_info["index"]) == ("100", 99)
    assert "row 0" in problem.case.where
    assert problem.state(1) == [*problem.prompt_ids, *ids("10")]


def test_the_runs_own_prompt_column_and_template_are_used(tmp_path: Path):
    messages = [{"role": "user", "content": "what?"}]
    path = write(tmp_path, row(4, "5", question=messages))
    template = {"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}1+"}
    (problem,), _ = read_worked([path], TOKENIZER, NO_LIMITS, RowFormat("question", template))
    assert problem.prompt_ids == ids("what?1+")


def test_files_that_cannot_be_used_are_refused_with_their_place(tmp_path: Path):
    plain = make_row("arithmetic", "1+1=", "2", index=0, split="train", ability="math")
    with pytest.raises(ConfigError, match=r"needs the column golden_solution, and .*worked\.parquet has none"):
        read_worked([write(tmp_path, plain)], TOKENIZER, NO_LIMITS, ROWS)
    path = write(tmp_path, row(4, "5"), row(4, "5"))
    with pytest.raises(ConfigError, match=r"extra_info\.index=4 is in the files twice"):
        read_worked([path], TOKENIZER, NO_LIMITS, ROWS)
    path = write(tmp_path, row(4, None))
    with pytest.raises(ConfigError, match=r"none of the 1 row\(s\) in .* can be used .*no golden solution: 1"):
        read_worked([path], TOKENIZER, NO_LIMITS, ROWS)
    with pytest.raises(ConfigError, match=r"row 0: the tokenizer does not give .* back, 'A' becomes 'a'"):
        read_worked([write(tmp_path, row(4, "A"))], Lowercase(), NO_LIMITS, ROWS)
    with pytest.raises(ConfigError, match=r"data\.train_files"):
        read_worked([tmp_path / "missing.parquet"], TOKENIZER, NO_LIMITS, ROWS)


def test_without_the_option_the_error_names_it(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"lack test_pairs\. .* set golden\.verifier=reward"):
        read_problems([write(tmp_path, row(4, "5"))], TOKENIZER, NO_LIMITS)


def test_a_golden_solution_that_the_reward_calls_wrong_is_refused(tmp_path: Path):
    problems, _ = read_worked([write(tmp_path, row(4, "5"), row(6, "6"))], TOKENIZER, NO_LIMITS, ROWS)

    check_solutions(problems, [True, True], TOKENIZER)
    with pytest.raises(ConfigError, match=r"1 of 2 golden solutions wrong, .*row 1, which ends in '6' where .* '7'"):
        check_solutions(problems, [True, False], TOKENIZER)


# ------------------------------ rewards ------------------------------


class Reward:
    """Answers are right if they equal the ground truth; records what it was asked."""

    def __init__(self, result: Any = None) -> None:
        self.result = result
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, data_source: str, solution_str: str, ground_truth: str, extra_info: Any) -> Any:
        with self._lock:
            self.asked.append(solution_str)
        if isinstance(self.result, Exception):
            raise self.result
        return float(solution_str == ground_truth) if self.result is None else self.result


PROBLEM = WorkedProblem(
    id="4", prompt_ids=ids("9+3="), golden_ids=ids("12"), case=Case("arithmetic", "12", {}, "row 0")
)


def answer(made: str, given: str = "1", is_whole: bool = True) -> Answer:
    return Answer(PROBLEM, ids(given), ids(made), is_whole)


def test_the_reward_function_reads_the_visible_solution_and_what_was_made_of_it():
    reward = Reward()
    found = RewardJudge(reward, TOKENIZER).session()([answer("2"), answer("3"), answer("2", is_whole=False)])
    assert reward.asked == ["12", "13"]
    assert [(rollout.text, rollout.reward, rollout.statuses) for rollout in found] == [
        ("2", 1.0, ("ok",)),
        ("3", 0.0, ("wrong_output",)),
        ("2", None, ("infrastructure_error",)),
    ]


def test_equal_answers_of_a_session_are_judged_once_whichever_thread_asks():
    reward = Reward()
    session = RewardJudge(reward, TOKENIZER).session()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(session, [[answer("2"), answer("2")], [answer("2")], [answer("", given="12")]]))
    assert reward.asked == ["12"]
    assert {rollout.reward for rollouts in found for rollout in rollouts} == {1.0}


@pytest.mark.parametrize(
    ("result", "label"),
    [({"score": -1.0, "acc": 1.0}, 1.0), ({"score": 0.4}, 0.0), (0.5, 1.0), ({"score": 1.0, "acc": False}, 0.0)],
)
def test_acc_decides_and_without_it_the_score(result: Any, label: float):
    (rollout,) = RewardJudge(Reward(result), TOKENIZER).session()([answer("2")])
    assert rollout.reward == label


def test_an_error_of_the_reward_function_reaches_every_thread_that_waits_for_it():
    session = RewardJudge(Reward(ZeroDivisionError("own")), TOKENIZER).session()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="own"):
            session([answer("2")])


# ------------------------------ settings ------------------------------


@pytest.fixture(scope="module")
def configs():
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        yield


def config_of(path: Path, model: Path, *overrides: str) -> DictConfig:
    given = [f"data.train_files={path}", f"actor_rollout_ref.model.path={model}", "golden.verifier=reward"]
    return compose("golden_redaction", overrides=[*given, "golden.max_new_tokens=8", *overrides])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from data_preprocess.demo_models.small_model import SmallModelSettings, build_model

    folder = tmp_path_factory.mktemp("model")
    build_model(SmallModelSettings(steps=1, weight_decay=0.0), TOKENIZER, max_position_embeddings=64).save_pretrained(
        folder
    )
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.mark.usefixtures("configs")
def test_a_run_is_checked_with_its_own_reward_function(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path, row(4, "5"), row(99, "100"))
    check_config(config_of(path, model))
    assert "calls the first 2 golden solutions right" in capsys.readouterr().out
    own = tmp_path / "own.py"
    own.write_text(
        "def score(data_source, solution_str, ground_truth, extra_info):\n    return len(solution_str) == 3\n"
    )
    overrides = [f"reward.custom_reward_function.path={own}", "reward.custom_reward_function.name=score"]
    with pytest.raises(ConfigError, match="calls 1 of 2 golden solutions wrong"):
        check_config(config_of(path, model, *overrides))
    own.write_text("def score(**row):\n    return row['missing']\n")
    with pytest.raises(ConfigError, match=r"own\.py:score: KeyError: 'missing' \(.*own\.py, line 2\)"):
        check_config(config_of(path, model, *overrides))
    own.write_text("import os\n\ndef score(**row):\n    os._exit(3)\n")
    with pytest.raises(ConfigError, match="ended its process with exit code 3"):
        check_config(config_of(path, model, *overrides))
    with pytest.raises(ConfigError, match=r"nowhere\.py"):
        check_config(config_of(path, model, f"reward.custom_reward_function.path={tmp_path}/nowhere.py", overrides[1]))


@pytest.mark.usefixtures("configs")
def test_a_number_of_problems_is_drawn_by_seed_and_keeps_their_order(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
):
    path = write(tmp_path, *(row(number, str(number + 1)) for number in range(1, 9)), row(99, None))

    def drawn(*overrides: str) -> list[str]:
        config = config_of(path, model, "data.train_max_samples=3", *overrides)
        return [problem.id for problem in read_run_problems(config, read_settings(config), TOKENIZER)[0]]

    everything = drawn("data.train_max_samples=-1")
    assert len(everything) == len(drawn("data.train_max_samples=9")) == 8
    assert drawn("data.shuffle=false") == everything[:3]
    by_seed = [drawn(f"data.seed={seed}") for seed in ("null", 0, *range(1, 9))]
    assert by_seed[0] == by_seed[1]
    assert len({tuple(ids) for ids in by_seed}) > 4
    assert all(sorted(ids, key=everything.index) == ids and len(ids) == 3 for ids in by_seed)
    check_config(config_of(path, model, "data.train_max_samples=3"))
    printed = capsys.readouterr().out
    assert "3 problems (" in printed
    assert "left out by data.train_max_samples: 5" in printed


@pytest.mark.usefixtures("configs")
def test_it_is_said_that_a_validation_file_is_not_used(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path, row(4, "5"))
    check_config(config_of(path, model))
    assert "not used" not in capsys.readouterr().out
    check_config(config_of(path, model, "data.val_files=other.parquet"))
    assert "data.val_files: not used; probes measure the training problems" in capsys.readouterr().out


@pytest.mark.usefixtures("configs")
@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("golden.sandbox.cpu_seconds=1", "sandbox"),
        ("golden.reward.test_pairs=false", "reward"),
        ("golden.prompt.grid=spaced", "prompt"),
        ("golden.limits.max_cells=9", "limits.max_cells"),
    ],
)
def test_settings_of_programs_are_refused(override: str, name: str, tmp_path: Path, model: Path):
    path = write(tmp_path, row(4, "5"))
    with pytest.raises(ConfigError, match=f"golden.{name} is for programs of ARC tasks: leave it at its default"):
        check_config(config_of(path, model, override))


@pytest.mark.usefixtures("configs")
def test_a_reward_function_is_refused_where_the_sandbox_judges(tmp_path: Path, model: Path):
    (rule,) = [rule for rule in UNSUPPORTED if rule.key == "reward.custom_reward_function.path"]
    own = "reward.custom_reward_function.path=own.py"
    assert rule.problem(config_of(tmp_path, model, own)) is None
    assert "set golden.verifier=reward" in (
        rule.problem(config_of(tmp_path, model, own, "golden.verifier=sandbox")) or ""
    )
