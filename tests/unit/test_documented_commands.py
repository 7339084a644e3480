"""Every command in README files and docs works: a test runs its program, and its arguments are taken as they stand.

What needs a GPU or a cluster says so where the reader is, and is still read by Hydra or by its parser.
"""

import importlib.util
import re
from pathlib import Path

import pytest
from documented_commands import ROOT, Command, parse, read_commands
from hydra import compose, initialize_config_dir

COMMANDS = read_commands()
RECIPES = {
    "recipe.fast_dapo.main": "fast_dapo",
    "recipe.golden_redaction.main": "golden_redaction",
    "recipe.tracin.main": "tracin",
}
# Program -> the test that runs it to its end, with other arguments where the documented ones would take hours.
RUN_BY = {
    "recipe.fast_dapo.main": "tests/integration/test_command_line.py::test_the_run_ends_with_a_summary",
    "recipe.golden_redaction.main": (
        "tests/integration/test_command_line_of_golden.py::test_without_a_learning_rate_nothing_moves"
    ),
    "recipe.tracin.main": "tests/integration/test_command_line_of_tracin.py::test_the_command_ends_with_a_summary",
    "recipe.fast_dapo.evaluate": "tests/integration/test_evaluate.py::test_pass_at_k_grows_with_k",
    "recipe.golden_redaction.evaluate": "tests/integration/test_golden_evaluate.py::test_every_rung_has_its_states",
    "recipe.golden_redaction.golden": "tests/unit/test_golden_solutions.py",
    "recipe.fast_dapo.simulate": "tests/unit/test_simulation.py",
    "verl_ext.report": "tests/unit/test_report_page.py",
    "verl_ext.rewards.math_self_check": "tests/unit/test_math_answer.py",
    "verl_ext.sandbox": "tests/unit/test_sandbox_pool.py",
    "verl_ext.submit": "tests/unit/test_submit.py",
    "data_preprocess.arc": "tests/integration/golden_assets.py",
    "data_preprocess.arc_made": "tests/unit/test_arc_made.py",
    "data_preprocess.arc_model": "tests/unit/test_arc_model.py",
    "data_preprocess.arithmetic": "tests/unit/test_arithmetic_data.py",
    "data_preprocess.dapo_math_17k": "tests/unit/test_math_data.py",
    "data_preprocess.gsm8k": "tests/unit/test_math_data.py",
    "data_preprocess.real_toxicity_prompts": "tests/unit/test_real_toxicity_prompts.py",
    "data_preprocess.toxicity_classifier": "tests/unit/test_toxicity_classifier.py",
    "data_preprocess.toxicity_model": "tests/unit/test_toxicity_model.py",
    "data_preprocess.validate": "tests/unit/test_schema.py",
}
# Programs of others: nothing of ours decides whether they take their arguments.
OTHERS = ("python -m build",)
# A command of these programs, too, has to stand under words that say what it needs.
CLUSTER_PROGRAMS = ("ray", "sbatch", "srun", "squeue", "scancel", "kubectl", "helm", "export", "ssh", "bash", "cat")
NEEDS = re.compile(r"GPU|CUDA|cluster|Slurm|Kubernetes|several nodes|head node", re.IGNORECASE)


def _is_recipe(command: Command) -> bool:
    return command.module in RECIPES


def _trains_on_a_gpu(command: Command) -> bool:
    """Names the data or the model of a whole run, and neither the CPU backend nor a check."""
    words = command.arguments
    on_cpu = any(word in ("+backend=cpu", "dry_run=true", "--cfg", "--help") or word.endswith("_cpu") for word in words)
    return _is_recipe(command) and not on_cpu and not command.is_part


def _of(kind) -> list:
    return [pytest.param(command, id=str(command)[:150]) for command in COMMANDS if kind(command)]


def test_the_pages_have_commands():
    assert len([command for command in COMMANDS if command.is_fenced]) >= 45
    assert {command.page for command in COMMANDS} >= {"README.md", "docs/quickstart.md", "recipe/tracin/README.md"}


@pytest.mark.parametrize("command", _of(lambda command: True))
def test_every_command_is_of_a_kind_that_is_checked(command: Command):
    program = command.words[0]
    assert (
        command.module is not None
        or program in ("make", "pytest", "pip")
        or (program == "python" and command.words[1].startswith("tests/"))
        or (program in CLUSTER_PROGRAMS and NEEDS.search(command.section))
    ), f"{command}: let a test of this file read it, or say beside it that it needs a GPU or a cluster"


@pytest.mark.parametrize("command", _of(lambda command: command.words[0] == "make"))
def test_make_has_the_target(command: Command):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    names = [word for word in command.words[1:] if "=" not in word]
    assert names
    assert set(names) <= set(targets)


@pytest.mark.parametrize("command", _of(_is_recipe))
def test_hydra_composes_a_run(command: Command):
    words, name = command.arguments, RECIPES[command.module]
    if "--config-name" in words:
        place = words.index("--config-name")
        name = words[place + 1]
        del words[place : place + 2]
    overrides = [word for word in words if not word.startswith("--") and word != "job"]
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        assert compose(name, overrides=overrides).run_dir


def _has_a_parser(command: Command) -> bool:
    is_ours = command.module is not None and not _is_recipe(command) and " ".join(command.words[:3]) not in OTHERS
    # In running text a program may be named without all that it needs.
    return is_ours and (command.is_fenced or "--" in " ".join(command.arguments))


@pytest.mark.parametrize("command", _of(_has_a_parser))
def test_the_program_takes_its_arguments(command: Command):
    parse(command.module, command)


def _is_script(command: Command) -> bool:
    return command.words[0] == "python" and command.words[1].endswith(".py")


@pytest.mark.parametrize("command", _of(_is_script))
def test_the_script_takes_its_arguments(command: Command):
    parse(command.words[1], command)


@pytest.mark.parametrize("command", _of(lambda command: command.module is not None))
def test_the_program_is_there_and_a_test_runs_it(command: Command):
    if " ".join(command.words[:3]) in OTHERS:
        return
    assert importlib.util.find_spec(command.module) is not None
    file, _, test = RUN_BY[command.module].partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert command.module.rpartition(".")[2] in text or command.module.replace(".", "/") in text
    assert not test or f"def {test}(" in text


@pytest.mark.parametrize("command", _of(lambda command: command.words[0] == "pytest"))
def test_pytest_has_the_path(command: Command):
    assert all((ROOT / word).exists() for word in command.words[1:] if not word.startswith("-"))


@pytest.mark.parametrize("command", _of(lambda command: command.words[0] == "pip"))
def test_pip_is_asked_for_extras_that_exist(command: Command):
    extras = re.search(r"\[([\w,]+)\]|\.(\w+)$", " ".join(command.words))
    assert extras is not None
    setup = Path(ROOT / "setup.py").read_text(encoding="utf-8")
    for extra in (extras[1] or extras[2]).split(","):
        assert f'"{extra}": [' in setup
        assert extra != "gpu" or NEEDS.search(command.section)


@pytest.mark.parametrize("command", _of(_trains_on_a_gpu))
def test_a_run_on_gpus_says_that_it_is_one(command: Command):
    assert NEEDS.search(command.section), f"{command}: say above it that it needs a GPU"
