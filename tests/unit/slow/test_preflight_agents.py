"""What is known about agent loops and their tools before Ray starts."""

import copy
import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict
from stand_ins import make_data, make_model

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.launch.data_checks import prompt_lengths
from verl_ext.launch.preflight import agents, options
from verl_ext.launch.preflight.agents import check_agents, check_calls, check_template, tool_schemas
from verl_ext.launch.recipe import PATHS, PROJECT_ROOT

MODULE = '''
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema

class Adder(BaseTool):
    """Its schema is in the file."""

class Busy(BaseTool):
    def __init__(self, *args, **kwargs):
        raise AssertionError("a check made a tool")

    def get_openai_tool_schema(self):
        function = {"name": "busy", "description": "Own schema."}
        return OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})

class Late(Busy):
    def get_openai_tool_schema(self):
        return self.known_when_made

class NoTool:
    pass

class Own(AgentLoopBase):
    async def run(self, sampling_params, **kwargs): ...

class Quiet(SingleTurnAgentLoop):
    pass

class WithItsOwnTools(ToolAgentLoop):
    pass
'''
SCHEMA = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
    },
}
ADDER = {"class_name": "my_tools.Adder", "config": {"type": "native"}, "tool_schema": SCHEMA}
FUNCTIONS = '''
from verl.tools.function_tool import function_tool

@function_tool
def double(x: int) -> int:
    """Twice as much.

    Args:
        x: A number.
    """
    return 2 * x
'''
MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"
AGENT = "actor_rollout_ref.rollout.agent"
TOOL_AGENT = f"{AGENT}.default_agent_loop=tool_agent"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module `my_tools`, a file of its adder, a file of functions, and data."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_tools.py").write_text(MODULE)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    write_tools(tmp_path, ADDER)
    make_data(tmp_path / "train.parquet", range(4))
    return tmp_path


def write_tools(folder: Path, *tools: Any) -> Path:
    (folder / "tools.yaml").write_text(yaml.safe_dump({"tools": list(tools)}))
    return folder / "tools.yaml"


def write_rows(file: Path, *rows: dict[str, Any]) -> str:
    """Write one prompt per row; `extra_info` is added to what every row has."""
    made = []
    for index, row in enumerate(rows):
        extra = row.pop("extra_info", {})
        made.append(make_row("sums", "1+1=", "2", index=index, split="train", ability="math", extra_info=extra) | row)
    write_parquet(made, file)
    return str(file)


@functools.cache
def _composed() -> DictConfig:
    with initialize_config_dir(str(PROJECT_ROOT / "configs"), version_base=None):
        return compose("fast_dapo", overrides=["+backend=cpu", "+experiment=arithmetic_two_phase"])


def configured(*overrides: str) -> DictConfig:
    config = copy.deepcopy(_composed())
    with open_dict(config):
        for override in overrides:
            key, _, value = override.partition("=")
            OmegaConf.update(config, key, yaml.safe_load(value), force_add=True)
    return config


def with_tools(folder: Path, *overrides: str) -> DictConfig:
    return configured(f"{MULTI_TURN}.tool_config_path={folder / 'tools.yaml'}", TOOL_AGENT, *overrides)


def one(problems: list[str]) -> str:
    (problem,) = problems
    return problem


# ------------------------------ files and names ------------------------------


def test_a_run_without_agents_has_nothing_to_say(folder: Path):
    assert check_agents(configured()) == []
    calls = check_calls(configured(), [str(folder / "train.parquet")], [])
    assert (calls.problems, calls.summary, calls.shows_tools) == ([], None, False)


def test_what_rows_of_ones_own_making_ask_for_is_not_known(folder: Path):
    """The same holds for files that are not here yet."""
    config = configured(f"{MULTI_TURN}.tool_config_path={folder / 'tools.yaml'}")
    assert check_calls(config, [], []).problems == []
    assert check_calls(config, [str(folder / "train.parquet")], []).problems != []


def test_a_run_with_tools_is_whole_and_says_which(folder: Path):
    config = with_tools(
        folder, f"{MULTI_TURN}.function_tool_path={folder / 'functions.py'}", f"{MULTI_TURN}.enable=true"
    )
    assert check_agents(config) == []
    calls = check_calls(config, [str(folder / "train.parquet")], [])
    assert (calls.problems, calls.summary, calls.shows_tools) == ([], "add, double; agent loop tool_agent", True)
    assert [schema["function"]["name"] for schema in tool_schemas(config)] == ["add", "double"]


def test_a_misspelled_loop_is_found_with_those_that_there_are():
    problem = one(check_agents(configured(f"{AGENT}.default_agent_loop=tool_agnet")))
    assert problem.startswith(f"{AGENT}.default_agent_loop=tool_agnet: there is no agent loop 'tool_agnet'. Known are")
    assert "single_turn_agent, tool_agent" in problem


def test_loops_of_the_users_are_known_by_their_file_or_by_what_the_workers_alone_import(folder: Path):
    (folder / "loops.yaml").write_text("- name: mine\n  _target_: my_tools.Own\n")
    config = configured(f"{AGENT}.agent_loop_config_path={folder}/loops.yaml", f"{AGENT}.default_agent_loop=mine")
    assert check_agents(config) == []
    elsewhere = configured(f"{AGENT}.default_agent_loop=theirs")
    assert len(check_agents(elsewhere)) == 1
    with open_dict(elsewhere):
        elsewhere.actor_rollout_ref.model.external_lib = "their_package"
    assert check_agents(elsewhere) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "expected a file, found nothing"),
        ("name: mine\n", "expected a list, got dict"),
        ("", "expected a list, got nothing"),
        ("- [", "not readable as YAML"),
        ("- name: mine\n", "entry 0 needs a name and a _target_, got {'name': 'mine'}"),
        ("- name: mine\n  _target_: my_tools.Missing\n", "my_tools.Missing cannot be loaded: AttributeError"),
        ("- name: mine\n  _target_: none_such.Loop\n", "none_such.Loop cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_a_broken_file_of_loops(folder: Path, content: str | None, problem: str):
    if content is not None:
        (folder / "loops.yaml").write_text(content)
    found = one(check_agents(configured(f"{AGENT}.agent_loop_config_path={folder}/loops.yaml")))
    assert problem in found
    assert "loops.yaml" in found or "agent loop mine" in found


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        (["my_tools.Adder"], "tool 0 needs a class_name, got 'my_tools.Adder'"),
        ([{**ADDER, "config": {"type": "mcp"}}], "config.type must be native, got 'mcp'"),
        ([{**ADDER, "config": None}], "config.type must be native, got None"),
        ([{**ADDER, "config": "native"}], "config.type must be native, got None"),
        ([{**ADDER, "class_name": "my_tools.Missing"}], "my_tools.Missing cannot be loaded: AttributeError"),
        ([{**ADDER, "class_name": "Adder"}], "Adder cannot be loaded: ValueError"),
        ([{**ADDER, "class_name": "my_tools.NoTool"}], "has no create, execute, release; derive it from"),
        ([{**ADDER, "tool_schema": {"type": "function"}}], "its tool_schema is not in OpenAI's format"),
        ([ADDER, ADDER], "tool add is there twice"),
    ],
)
def test_a_broken_tool(folder: Path, tools: list[Any], problem: str):
    write_tools(folder, *tools)
    found = one(check_agents(with_tools(folder)))
    assert problem in found
    assert "tools.yaml" in found


def test_a_tool_that_verl_would_make_is_not_made(folder: Path):
    own = {"class_name": "my_tools.Busy", "config": {"type": "native"}}
    write_tools(folder, own, own | {"class_name": "my_tools.Late"})
    config = with_tools(folder)
    assert check_agents(config) == []
    # The name of the second one is not known before the run.
    assert [schema["function"]["name"] for schema in tool_schemas(config)] == ["busy"]
    calls = check_calls(config, [str(folder / "train.parquet")], [])
    assert calls.summary == "busy, the loop named there; agent loop tool_agent"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "expected a file, found nothing"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def double(x): return 2 * x\n", "no function there has the decorator @function_tool"),
        (FUNCTIONS.replace("        x: A number.\n", ""), "DocstringParsingException"),
    ],
)
def test_a_broken_file_of_functions(tmp_path: Path, content: str | None, problem: str):
    if content is not None:
        (tmp_path / "functions.py").write_text(content)
    path = f"{MULTI_TURN}.function_tool_path={tmp_path / 'functions.py'}"
    assert problem in one(check_agents(configured(path, TOOL_AGENT)))


def test_the_format_is_a_parser_of_verls(folder: Path):
    problem = one(check_agents(with_tools(folder, f"{MULTI_TURN}.format=llama3_json")))
    assert problem.startswith(f"{MULTI_TURN}.format must be a tool parser of verl, ")
    assert "hermes" in problem
    assert problem.endswith("got 'llama3_json'")
    assert check_agents(with_tools(folder, f"{MULTI_TURN}.format=qwen3_coder")) == []


# ------------------------------ options without effect ------------------------------


@pytest.mark.parametrize(
    "option",
    [
        "tool_config_path={folder}/tools.yaml",
        "function_tool_path={folder}/functions.py",
        "enable=True",
        "max_assistant_turns=3",
        "max_tool_response_length=1024",
        "format=qwen3_coder",
    ],
)
def test_what_a_loop_of_one_turn_does_not_read_is_refused(folder: Path, option: str):
    option = f"{MULTI_TURN}.{option.format(folder=folder)}"
    files = [str(folder / "train.parquet")]
    assert one(check_calls(configured(option), files, []).problems) == (
        f"{option}: agent loop single_turn_agent answers in one turn and calls no tools. "
        f"Set {AGENT}.default_agent_loop=tool_agent"
    )
    (folder / "loops.yaml").write_text(
        "- name: quiet\n  _target_: my_tools.Quiet\n- name: own\n  _target_: my_tools.Own\n"
    )
    loops = f"{AGENT}.agent_loop_config_path={folder}/loops.yaml"
    quiet = configured(option, loops, f"{AGENT}.default_agent_loop=quiet")
    assert "agent loop quiet answers in one turn" in one(check_calls(quiet, files, []).problems)
    # A user's own loop may read any option.
    assert check_calls(configured(option, loops, f"{AGENT}.default_agent_loop=own"), files, []).problems == []


def test_verls_loop_without_tools_is_refused_and_one_that_extends_it_is_not(folder: Path):
    files = [str(folder / "train.parquet")]
    problem = one(check_calls(configured(TOOL_AGENT), files, []).problems)
    assert problem.startswith("agent loop tool_agent has no tools to call. Set ")
    (folder / "loops.yaml").write_text("- name: own\n  _target_: my_tools.WithItsOwnTools\n")
    loops = f"{AGENT}.agent_loop_config_path={folder}/loops.yaml"
    assert check_calls(configured(loops, f"{AGENT}.default_agent_loop=own"), files, []).problems == []


@pytest.mark.parametrize("name", agents.UNREAD)
def test_what_verl_reads_nowhere_is_refused(folder: Path, name: str):
    import verl

    texts = {file: file.read_text(encoding="utf-8") for file in Path(verl.__file__).parent.rglob("*.py")}
    # Where the option is declared, and the remains of an engine that read it, which nothing imports.
    places = {file.name for file, text in texts.items() if name in text}
    assert places <= {"rollout.py", "schemas.py"}
    assert [file for file, text in texts.items() if "rollout.schemas" in text] == []
    assert "verl never reads it" in one(check_agents(with_tools(folder, f"{MULTI_TURN}.{name}=disable")))


def test_another_side_than_verl_knows_is_refused(folder: Path):
    problem = one(check_agents(with_tools(folder, f"{MULTI_TURN}.tool_response_truncate_side=end")))
    assert "must be one of left, middle, right; got 'end'" in problem


def test_interactions_are_gone(folder: Path):
    known, asked = configured(), configured(f"{MULTI_TURN}.interaction_config_path=interactions.yaml")
    assert "verl 0.9.1 has no interactions" in one(options.unknown_options(asked, known))


def test_paths_are_made_absolute_before_workers_start_elsewhere():
    keys = [f"{MULTI_TURN}.tool_config_path", f"{MULTI_TURN}.function_tool_path", f"{AGENT}.agent_loop_config_path"]
    assert set(keys) <= set(PATHS)


# ------------------------------ rows ------------------------------


def test_rows_choose_their_loop(folder: Path):
    file = write_rows(folder / "rows.parquet", {"agent_name": "tool_agent"}, {"agent_name": "single_turn_agent"})
    tools = f"{MULTI_TURN}.tool_config_path={folder}/tools.yaml"
    assert check_calls(configured(tools), [file], []).problems == []
    quiet = write_rows(folder / "quiet.parquet", {"agent_name": "single_turn_agent"})
    assert "calls no tools" in one(check_calls(with_tools(folder), [quiet], [quiet]).problems)
    # The validation's rows have no such column: the default loop takes them.
    assert check_calls(with_tools(folder), [quiet], [str(folder / "train.parquet")]).problems == []


def test_a_loop_that_a_row_names_must_be_there(folder: Path):
    file = write_rows(folder / "rows.parquet", {"agent_name": "tool_agent"}, {"agent_name": "toolagent"})
    problem = one(check_calls(with_tools(folder), [str(folder / "train.parquet")], [file]).problems)
    assert problem.startswith("data.val_files, column agent_name: there is no agent loop 'toolagent'. Known are ")


@pytest.mark.parametrize("missing", [None, ""])
def test_every_row_names_a_loop_or_none_does(folder: Path, missing: str | None):
    file = write_rows(folder / "rows.parquet", {"agent_name": "tool_agent"}, {"agent_name": missing})
    assert "data.train_files: 1 rows have no agent_name" in one(check_calls(with_tools(folder), [file], []).problems)
    # verl joins the files of an entry, and fills the column with None where a file lacks it.
    whole = write_rows(folder / "whole.parquet", {"agent_name": "tool_agent"})
    problem = one(check_calls(with_tools(folder), [whole, str(folder / "train.parquet")], []).problems)
    assert "data.train_files: 4 rows have no agent_name" in problem
    nothing = write_rows(folder / "nothing.parquet", {"agent_name": None})
    assert "1 rows have no agent_name" in one(check_calls(with_tools(folder), [nothing], []).problems)


def test_tools_that_rows_name_must_be_those_of_the_run(folder: Path):
    file = write_rows(
        folder / "rows.parquet",
        {"extra_info": {"tool_selection": ["add"], "tools_kwargs": {"add": {"create_kwargs": {"a": 1}}}}},
        {"extra_info": {"tool_selection": ["add", "sub"], "tools_kwargs": {"mul": {"create_kwargs": {"a": 1}}}}},
    )
    problems = check_calls(with_tools(folder), [file], []).problems
    assert problems == [
        "data.train_files: extra_info.tool_selection names sub, but the run's tools are add",
        "data.train_files: extra_info.tools_kwargs names mul, but the run's tools are add",
    ]


# ------------------------------ the chat template ------------------------------

CHATML = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def rendered(folder: Path, template: str) -> tuple[list[str], list[str]]:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = template
    return check_template(with_tools(folder), tokenizer, "qwen2")


def test_a_template_that_shows_tools_and_answers_is_fine(folder: Path):
    assert rendered(folder, CHATML) == ([], [])


def test_a_template_that_hides_the_tools_is_warned_of(folder: Path):
    problems, warnings = rendered(folder, CHATML.replace("{% if tools %}{{ tools | tojson }}{% endif %}", ""))
    assert problems == []
    assert "does not show the model its tools" in one(warnings)


def test_a_template_that_leaves_answers_out_is_refused(folder: Path):
    silent = CHATML.replace("{{ message.content }}", "{% if message.role != 'tool' %}{{ message.content }}{% endif %}")
    problems, _ = rendered(folder, silent)
    assert "leaves out a tool's answers" in one(problems)


def test_a_template_that_cannot_render_an_answer_is_refused(folder: Path):
    strict = CHATML.replace(
        "{% for message in messages %}",
        "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}",
    )
    problems, _ = rendered(folder, strict)
    assert "cannot append a tool's answer to a call: TemplateError: no tools" in one(problems)


def test_prompts_are_measured_with_the_tools_that_are_shown(folder: Path):
    make_model(folder / "model")
    tokenizer = build_tokenizer()
    tokenizer.chat_template = CHATML
    file = str(folder / "train.parquet")
    plain, shown = (prompt_lengths(file, config, tokenizer) for config in (configured(), with_tools(folder)))
    assert plain is not None
    assert shown is not None
    assert set(shown - plain) == {len(json.dumps([SCHEMA], separators=(", ", ": ")))}
