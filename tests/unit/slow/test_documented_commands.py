"""Every command in README files and docs works: a test runs its program, and its arguments are accepted as written.

A command that needs a GPU or a cluster says so on the page, and Hydra or its own parser still reads it.
"""

import functools
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import verl.trainer
from command_server import CommandServer
from documented_commands import ROOT, Command, parse, read_commands
from each import check_each
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from stand_ins import StandIns, make_arc, make_data, make_model
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from recipe.fast_dapo.settings import read_settings, resolve_group_size
from verl_ext.core.compat import SKIP_VARIABLE
from verl_ext.data.schema import write_parquet
from verl_ext.launch.compatibility import check_compatibility
from verl_ext.launch.recipe import recipes

VERLS_CONFIGS = Path(verl.trainer.__file__).parent / "config"
COMMANDS = read_commands()
RECIPES = {
    "recipe.fast_dapo.main": "fast_dapo",
    "recipe.golden_redaction.main": "golden_redaction",
    "recipe.tracin.main": "tracin",
    "verl.trainer.main_ppo": "ppo_trainer",
}
# Program -> the test that runs it to its end, with other arguments where the documented ones would take hours.
RUN_BY = {
    "verl.trainer.main_ppo": "tests/integration/test_command_line.py::test_the_run_ends_with_a_summary",
    "recipe.fast_dapo.main": "tests/integration/test_command_line.py::test_the_run_ends_with_a_summary",
    "recipe.golden_redaction.main": (
        "tests/integration/test_command_line_of_golden.py::test_without_a_learning_rate_nothing_moves"
    ),
    "recipe.tracin.main": "tests/integration/test_command_line_of_tracin.py::test_the_command_ends_with_a_summary",
    "recipe.fast_dapo.evaluate": "tests/integration/test_evaluate.py::test_pass_at_k_grows_with_k",
    "recipe.golden_redaction.evaluate": "tests/integration/test_golden_evaluate.py::test_every_rung_has_its_states",
    "recipe.golden_redaction.golden": "tests/unit/test_golden_solutions.py",
    "recipe.fast_dapo.simulate": "tests/unit/test_simulation.py",
    "verl_ext.launch.settings_files": "tests/unit/test_settings.py",
    "verl_ext.report": "tests/unit/slow/test_report_page.py",
    "verl_ext.rewards.math_self_check": "tests/unit/test_math_answer.py",
    "verl_ext.sandbox": "tests/unit/slow/test_sandbox_pool.py",
    "verl_ext.submit": "tests/unit/slow/test_submit.py",
    "data_preprocess.arc": "tests/integration/golden_assets.py",
    "data_preprocess.arc_made": "tests/unit/test_arc_made.py",
    "data_preprocess.arc_programs": "tests/unit/test_arc_programs_import.py",
    "data_preprocess.arc_model": "tests/unit/slow/test_arc_model.py",
    "data_preprocess.arithmetic": "tests/unit/test_arithmetic_data.py",
    "data_preprocess.dapo_math_17k": "tests/unit/test_math_data.py",
    "data_preprocess.gsm8k": "tests/unit/test_math_data.py",
    "data_preprocess.math_file": "tests/unit/test_math_file.py",
    "data_preprocess.pretrained_model": "tests/unit/slow/test_pretrained_model.py",
    "data_preprocess.prompt_states": "tests/unit/slow/test_prompt_states.py",
    "data_preprocess.reasoning_gym": "tests/unit/test_reasoning_gym.py",
    "data_preprocess.svamp": "tests/unit/test_math_data.py",
    "data_preprocess.real_toxicity_prompts": "tests/unit/test_real_toxicity_prompts.py",
    "data_preprocess.toxicity_classifier": "tests/unit/slow/test_toxicity_classifier.py",
    "data_preprocess.toxicity_model": "tests/unit/slow/test_toxicity_model.py",
    "data_preprocess.validate": "tests/unit/test_file_checks.py",
}
# Third-party programs: our code does not decide whether they accept their arguments.
OTHERS = ("python -m build",)
# A command of these programs must also stand under text that says what it needs.
CLUSTER_PROGRAMS = ("ray", "sbatch", "srun", "squeue", "scancel", "kubectl", "helm", "export", "ssh", "bash", "cat")
NEEDS = re.compile(r"GPU|CUDA|cluster|Slurm|Kubernetes|several nodes|head node", re.IGNORECASE)


def _is_recipe(command: Command) -> bool:
    return command.module in RECIPES


def _trains_on_a_gpu(command: Command) -> bool:
    """Whether it names the data or the model of a full run, and neither the CPU backend nor a check."""
    words = command.arguments
    on_cpu = any(word in ("+backend=cpu", "dry_run=true", "--cfg", "--help") or word.endswith("_cpu") for word in words)
    return _is_recipe(command) and not on_cpu and not command.is_part


def _each(kind: Callable[[Command], bool], check: Callable[[Command], object]) -> None:
    """Check every documented command of a kind; those that fail are named with their pages."""
    check_each([command for command in COMMANDS if kind(command)], check)


def test_the_pages_have_commands():
    assert len([command for command in COMMANDS if command.is_fenced]) >= 45
    assert {command.page for command in COMMANDS} >= {"README.md", "docs/quickstart.md", "recipe/tracin/README.md"}


def test_every_command_is_of_a_kind_that_is_checked():
    def check(command: Command) -> None:
        program = command.words[0]
        assert (
            command.module is not None
            or program in ("make", "pytest", "pip")
            or (program == "python" and command.words[1].startswith("tests/"))
            or command.words[:2] == ("git", "clone")
            or program == "cd"
            or (program in CLUSTER_PROGRAMS and NEEDS.search(command.section))
        ), f"{command}: let a test of this file read it, or say near it that it needs a GPU or a cluster"

    _each(lambda command: True, check)


def test_make_has_the_target():
    def check(command: Command) -> None:
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        names = [word for word in command.words[1:] if "=" not in word]
        assert names
        assert set(names) <= set(targets)

    _each(lambda command: command.words[0] == "make", check)


@functools.cache
def _runs() -> list[tuple[Command, DictConfig]]:
    """The configuration of every recipe run, including those that are submitted to a cluster."""
    runs, failures = [], []
    for command in COMMANDS:
        module, words = command.module, command.arguments
        if module == "verl_ext.submit" and "-m" in words:
            module, words = _submitted(words)
        if module in RECIPES:
            try:
                runs.append((command, _compose(RECIPES[module], words)))
            except Exception as error:
                failures.append(f"{command}\n    {type(error).__name__}: {error}")
    assert not failures, "\n" + "\n".join(failures)
    return runs


def _submitted(words: list[str]) -> tuple[str, list[str]]:
    """Program and arguments of what a command submits."""
    place = words.index("-m")
    return words[place + 1], words[place + 2 :]


def _compose(name: str, words: list[str]) -> DictConfig:
    if "--config-name" in words:
        place = words.index("--config-name")
        name, words = words[place + 1], words[:place] + words[place + 2 :]
    overrides = [word for word in words if not word.startswith("--") and word != "job"]
    folder = VERLS_CONFIGS if name == "ppo_trainer" else ROOT / "configs"
    with initialize_config_dir(str(folder), version_base=None):
        return compose(name, overrides=overrides)


def test_hydra_composes_every_run():
    pages = {command.page for command, config in _runs() if config.run_dir}
    recipes = {f"recipe/{recipe}/README.md" for recipe in RECIPES.values() if recipe != "ppo_trainer"}
    assert pages >= {"README.md", "docs/quickstart.md", "docs/clusters.md", *recipes}


def test_verl_accepts_every_run_on_gpus():
    """A command that sets only data and a model must not fail verl's own check of batch sizes."""
    failures, count = [], 0
    for command, config in _runs():
        if config.trainer.device == "cpu":
            continue
        count += 1
        try:
            if "curriculum" in config:
                resolve_group_size(config)
                read_settings(config)
            joined = [recipe for recipe in recipes() if recipe.node in config]
            check_compatibility(config, [row for recipe in joined for row in recipe.unsupported])
            validate_config(config, need_reference_policy(config), need_critic(config))
        except Exception as error:
            failures.append(f"{command}\n    {type(error).__name__}: {error}")
    assert not failures, "\n" + "\n".join(failures)
    assert count >= 8


TOOL_FILE = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
# No tool is constructed before Ray starts.
TOOL = {
    "class_name": "verl.tools.base_tool.BaseTool",
    "config": {"type": "native"},
    "tool_schema": {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "The value of a key.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
        },
    },
}


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    """Stand-ins for what a user provides."""
    made = StandIns(tmp_path_factory.mktemp("stand_ins"))
    make_model(made.model())
    make_data(made.data("train"), range(600), data_source="math500")
    make_data(made.data("val"), range(600, 664), data_source="math500")
    make_data(made.data("influence"), range(664, 728), data_source="math500")
    make_arc(made.folder / "arc")
    rows = pq.read_table(made.data("train")).to_pylist()
    worked = [row | {"golden_solution": f"\\boxed{{{row['reward_model']['ground_truth']}}}"} for row in rows]
    write_parquet(worked, made.data("worked"))
    made.tools.write_text(json.dumps({"tools": [TOOL]}))  # JSON is YAML
    return made


def _brought_along(command: Command, made: StandIns) -> list[str]:
    """The stand-ins that replace what a command names."""
    data, model, validation = made.data("train"), made.model(), [f"data.val_files={made.data('val')}"]
    if "golden.verifier=reward" in str(command):
        data, validation = made.data("worked"), []
    elif "golden_redaction" in str(command):
        data, model, validation = made.folder / "arc/arc_agi_1_training.parquet", made.folder / "arc/model", []
    if "tracin" in str(command):
        validation += [f"tracin.validation_files={made.data('influence')}"]
    files = [f"data.train_files={data}", f"actor_rollout_ref.model.path={model}", *validation]
    if TOOL_FILE in str(command):
        files.append(f"{TOOL_FILE}={made.tools}")
    return [*files, f"run_dir={made.folder / 'run'}", "dry_run=true"]


def test_every_run_on_gpus_passes_a_dry_run(stand_ins: StandIns):
    """Everything up to Ray's start: composition, all checks, data, tokenizer, reward, memory estimate."""
    commands = {}
    for command, config in _runs():
        words, module = command.arguments, command.module
        if module not in RECIPES:  # it is submitted to a cluster
            module, words = _submitted(words)
        if config.trainer.device != "cpu" and not set(words) & {"--cfg", "--help"}:
            commands[(module, *words)] = command
    server = CommandServer()

    def check(words: tuple[str, ...]) -> None:
        # The libraries of model engines other than verl's own are not installed.
        skipped = {SKIP_VARIABLE: "1"} if any(word.startswith("model_engine=") for word in words) else {}
        ended = server.run([*words, *_brought_along(commands[words], stand_ins)], **skipped)
        assert ended.code == 0, ended.printed
        assert "Traceback" not in ended.printed, ended.printed
        assert "memory per GPU" in ended.printed, ended.printed
        assert "nothing was started" in ended.printed

    try:
        check_each(commands, check)
    finally:
        server.close()
    assert len(commands) >= 8


def _has_a_parser(command: Command) -> bool:
    is_ours = command.module is not None and not _is_recipe(command) and " ".join(command.words[:3]) not in OTHERS
    # In running text, a program may be named without all of its arguments.
    return is_ours and (command.is_fenced or "--" in " ".join(command.arguments))


def test_the_program_takes_its_arguments():
    _each(_has_a_parser, lambda command: parse(command.module, command))


def _is_script(command: Command) -> bool:
    return command.words[0] == "python" and command.words[1].endswith(".py")


def test_the_script_takes_its_arguments():
    _each(_is_script, lambda command: parse(command.words[1], command))


def test_the_program_is_there_and_a_test_runs_it():
    def check(command: Command) -> None:
        if " ".join(command.words[:3]) in OTHERS:
            return
        assert importlib.util.find_spec(command.module) is not None
        file, _, test = RUN_BY[command.module].partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        is_named = command.module.rpartition(".")[2] in text or command.module.replace(".", "/") in text
        assert is_named, f"{file} does not name {command.module}"
        assert not test or f"def {test}(" in text, f"{file} has no {test}"

    _each(lambda command: command.module is not None, check)


def test_pytest_has_the_path():
    def check(command: Command) -> None:
        assert all((ROOT / word).exists() for word in command.words[1:] if not word.startswith("-"))

    _each(lambda command: command.words[0] == "pytest", check)


def test_pip_is_asked_for_extras_that_exist():
    def check(command: Command) -> None:
        extras = re.search(r"\[([\w,-]+)\]|\.(\w+)$", " ".join(command.words))
        assert extras is not None
        setup = Path(ROOT / "setup.py").read_text(encoding="utf-8")
        for extra in (extras[1] or extras[2]).split(","):
            assert f'"{extra}": [' in setup
            assert extra not in ("gpu", "flash-attn") or NEEDS.search(command.section)

    _each(lambda command: command.words[0] == "pip", check)


def test_a_run_on_gpus_says_that_it_is_one():
    def check(command: Command) -> None:
        assert NEEDS.search(command.section), f"{command}: say above it that it needs a GPU"

    _each(_trains_on_a_gpu, check)
