"""Agent loops and their tools, which verl looks up in its workers, where a wrong name fails every rollout.

Also those that it does not look up: tools that no loop of the run calls are silently ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.launch.preflight.agent_files import (
    FUNCTION_TOOLS,
    LOOP_FILE,
    MULTI_TURN,
    TOOL_FILE,
    AgentFiles,
    read_agent_files,
)
from verl_ext.launch.preflight.agent_rows import AgentRows, read_agent_rows

_DEFAULT_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
_SIDES = ("left", "middle", "right")

# Options of `multi_turn` that multi-turn loops read, and those that verl 0.9.1 never reads.
_OF_SEVERAL_TURNS = (
    "enable",
    "max_assistant_turns",
    "max_user_turns",
    "max_parallel_calls",
    "max_tool_response_length",
    "tool_response_truncate_side",
    "format",
)
UNREAD = ("use_inference_chat_template", "tokenization_sanity_check_mode", "num_repeat_rollouts")

# A made-up call and its answer.
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call0", "type": "function", "function": {"name": "tool", "arguments": {}}}],
}
_ANSWER = "ANSWER"


def check_agents(config: DictConfig) -> list[str]:
    """Problems with the files, names and options of agent loops and tools, independent of the data.

    Returns:
        One sentence each.
    """
    from verl.experimental.agent_loop.tool_parser import ToolParser

    files, options = read_agent_files(config), _multi_turn(config)
    default = config.actor_rollout_ref.rollout.agent.default_agent_loop
    problems = [*files.problems, *_unknown_loops(f"{_DEFAULT_LOOP}={default}", [default], files)]
    if options.get("format") not in ToolParser._registry and not files.may_know_more:
        known = ", ".join(sorted(ToolParser._registry))
        problems.append(f"{MULTI_TURN}.format must be a tool parser of verl, {known}; got {options.get('format')!r}")
    if (side := options.get("tool_response_truncate_side")) not in _SIDES:
        # verl treats any other word as "middle".
        problems.append(f"{MULTI_TURN}.tool_response_truncate_side must be one of {', '.join(_SIDES)}; got {side!r}")
    changed = _changed(options, UNREAD)
    return [*problems, *(f"{MULTI_TURN}.{name}: verl never reads it. Leave it out" for name in changed)]


@dataclass(frozen=True)
class Calls:
    """The loops that call tools.

    Attributes:
        problems: One sentence each.
        summary: For a dry run; None: no tools are called.
        shows_tools: Whether verl's own loop renders the tools and their answers.
    """

    problems: list[str]
    summary: str | None = None
    shows_tools: bool = False


def check_calls(config: DictConfig, train: Sequence[str], val: Sequence[str]) -> Calls:
    """Which loops get the rows, and whether loops and tools match.

    Args:
        config: Configuration that passed `check_agents`.
        train: Local training files that passed the checks of the data.
        val: Local validation files that passed them.
    """
    files, default = read_agent_files(config), config.actor_rollout_ref.rollout.agent.default_agent_loop
    rows = [(name, read_agent_rows(given)) for name, given in (("train_files", train), ("val_files", val)) if given]
    problems = [problem for name, each in rows for problem in _unnamed(f"data.{name}", each, files)]
    names = {default if loop is None else loop for _, each in rows for loop in each.loops}
    loops = {name: files.loops[name] for name in sorted(names) if name in files.loops}
    # Of files that cannot be read yet, a user's data set class, or modules that only the workers import.
    if problems or not names or len(loops) < len(names):
        return Calls(problems)
    is_verls = any(_is_verls(kind) for kind in loops.values())
    if not any(_calls_tools(kind) for kind in loops.values()):
        problems += _ignored(config, ", ".join(loops))
    elif is_verls:
        problems += _without_tools(files, loops)
        problems += [problem for name, each in rows for problem in _unknown_tools(f"data.{name}", each, files)]
    tools = [tool.name or "the loop named there" for tool in files.tools]
    summary = f"{', '.join(tools)}; agent loop {', '.join(loops)}" if tools else None
    return Calls(problems, summary, is_verls and bool(tools))


def tool_schemas(config: DictConfig) -> list[dict[str, Any]]:
    """Schemas of the tools that verl's loops show to the model, as far as they are known without creating a tool."""
    tools = read_agent_files(config).tools
    return [tool.schema for tool in tools if tool.schema is not None]


def check_template(config: DictConfig, tokenizer: Any, model_type: str | None) -> tuple[list[str], list[str]]:
    """Whether the chat template shows the model its tools and their answers, as verl appends them after a call.

    Args:
        config: Configuration of a run that shows tools (`Calls`).
        tokenizer: Tokenizer of its text-only model; changed.
        model_type: Model type of its configuration.

    Returns:
        Problems and warnings.
    """
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    schemas = tool_schemas(config)
    if template := config.actor_rollout_ref.model.get("custom_chat_template"):
        tokenizer.chat_template = template
    options = OmegaConf.to_container(config.data.apply_chat_template_kwargs)
    asked: list[dict[str, Any]] = [{"role": "user", "content": "question"}, _CALL]
    answer = {"role": "tool", "content": _ANSWER}
    try:
        builder = create_continuous_token_builder(tokenizer, hf_model_type=model_type, chat_template_kwargs=options)
        shown = builder.build_initial_tokens(asked[:1], tools=schemas)
        plain = builder.build_initial_tokens(asked[:1])
        merged = builder.merge_context_tokens(asked, [*asked, answer], shown, tools=schemas)
    # From the tokenizer, Jinja, or verl, which compares two renderings.
    except Exception as error:
        words = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        return [f"the chat template of {tokenizer.name_or_path} cannot append a tool's answer to a call: {words}"], []
    where = f"the chat template of {tokenizer.name_or_path}"
    if _ANSWER not in tokenizer.decode(merged.token_ids[len(shown) :]):
        return [f"{where} leaves out a tool's answers: set actor_rollout_ref.model.custom_chat_template"], []
    if schemas and shown == plain:
        return [], [f"{where} does not show the model its tools: the model must know them already"]
    return [], []


# ------------------------------ names ------------------------------


def _unknown_loops(where: str, names: Sequence[str], files: AgentFiles) -> Iterator[str]:
    for name in names:
        if name not in files.loops and not files.may_know_more:
            known = ", ".join(sorted(files.loops))
            yield f"{where}: there is no agent loop {name!r}. Known are {known}; {LOOP_FILE} may name more"


def _unnamed(where: str, rows: AgentRows, files: AgentFiles) -> Iterator[str]:
    yield from _unknown_loops(f"{where}, column agent_name", sorted(rows.loops - {None, ""}), files)
    if rows.num_without_name:
        yield (
            f"{where}: {rows.num_without_name:,} rows have no agent_name, while others have one; verl gives these rows "
            "to no agent loop. Fill the column in every file, or leave it out everywhere"
        )


def _unknown_tools(where: str, rows: AgentRows, files: AgentFiles) -> Iterator[str]:
    names = {tool.name for tool in files.tools}
    if None in names:  # of a tool that is named when created
        return
    for column, found in (("tool_selection", rows.selected_tools), ("tools_kwargs", rows.tools_with_arguments)):
        if unknown := sorted(found - names):
            known = ", ".join(sorted(str(name) for name in names)) or "none"
            yield f"{where}: extra_info.{column} names {', '.join(unknown)}, but the run's tools are {known}"


# ------------------------------ options without effect ------------------------------


def _calls_tools(kind: Any) -> bool:
    """Whether a loop may read the tools: a user's loop gets them and may use them."""
    from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

    return not (isinstance(kind, type) and getattr(kind, "run", None) is SingleTurnAgentLoop.run)


def _is_verls(kind: Any) -> bool:
    """Whether it is verl's loop with tools, or derived from it."""
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

    return isinstance(kind, type) and getattr(kind, "run", None) is ToolAgentLoop.run


def _ignored(config: DictConfig, loops: str) -> Iterator[str]:
    options = _multi_turn(config)
    given = [f"{key}={value}" for key in (TOOL_FILE, FUNCTION_TOOLS) if (value := OmegaConf.select(config, key))]
    given += [f"{MULTI_TURN}.{name}={options[name]}" for name in _changed(options, _OF_SEVERAL_TURNS)]
    for option in given:
        yield f"{option}: agent loop {loops} answers in one turn and calls no tools. Set {_DEFAULT_LOOP}=tool_agent"


def _without_tools(files: AgentFiles, loops: Mapping[str, Any]) -> Iterator[str]:
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

    if not files.tools and (names := [name for name, kind in loops.items() if kind is ToolAgentLoop]):
        yield f"agent loop {', '.join(names)} has no tools to call. Set {TOOL_FILE} or {FUNCTION_TOOLS}"


def _multi_turn(config: DictConfig) -> Mapping[str, Any]:
    return config.actor_rollout_ref.rollout.multi_turn


def _changed(options: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The options that differ from verl's defaults."""
    from verl.workers.config import MultiTurnConfig

    default = MultiTurnConfig()
    return [name for name in names if name in options and options[name] != getattr(default, name)]
