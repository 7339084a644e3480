"""The files that name agent loops and tools, read as verl's workers will read them, except that no tool is created."""

import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_ext.core.worker_modules import worker_modules

_ROLLOUT = "actor_rollout_ref.rollout"
MULTI_TURN = f"{_ROLLOUT}.multi_turn"
TOOL_FILE = f"{MULTI_TURN}.tool_config_path"
FUNCTION_TOOLS = f"{MULTI_TURN}.function_tool_path"
LOOP_FILE = f"{_ROLLOUT}.agent.agent_loop_config_path"
_MANAGER = f"{_ROLLOUT}.agent.agent_loop_manager_class"


@dataclass(frozen=True)
class Tool:
    """A tool of the run.

    Attributes:
        name: Name by which the model calls it; None if only an instance of the tool knows it.
        schema: Its description for the model; None as above.
    """

    name: str | None
    schema: dict[str, Any] | None


@dataclass(frozen=True)
class AgentFiles:
    """The content of the files.

    Attributes:
        loops: Class of every agent loop, by name.
        tools: Tools in verl's order.
        problems: One sentence each.
        may_know_more: Whether modules that only the workers import may register more loops and parsers.
    """

    loops: Mapping[str, Any]
    tools: Sequence[Tool]
    problems: Sequence[str]
    may_know_more: bool


def read_agent_files(config: DictConfig) -> AgentFiles:
    """Read the files that a run's configuration names; repeated calls are cached."""
    agent = config.actor_rollout_ref.rollout.agent
    paths = (OmegaConf.select(config, key) for key in (LOOP_FILE, TOOL_FILE, FUNCTION_TOOLS))
    return _read(agent.get("agent_loop_manager_class"), tuple(worker_modules(config)), *paths)


@functools.cache
def _read(
    manager: str | None, libraries: tuple[str, ...], loops: str | None, tools: str | None, functions: str | None
) -> AgentFiles:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    problems: list[str] = []
    others = [name for name in libraries if not name.startswith("verl_ext.")]
    for module in {*libraries} - {*others}:
        importlib.import_module(module)
    if manager is not None:
        _load(manager, _MANAGER, problems)  # its module may register loops
    targets = {name: entry["_target_"] for name, entry in _agent_loop_registry.items()}
    targets |= dict(_named_loops(loops, problems)) if loops else {}
    classes = {name: _load(target, f"agent loop {name}", problems) for name, target in targets.items()}
    found = [
        *(_config_tools(tools, problems) if tools else []),
        *(_functions(functions, problems) if functions else []),
    ]
    names = [tool.name for tool in found if tool.name]
    problems += [
        f"tool {name} is there twice, in {' or '.join(filter(None, (tools, functions)))}: rename one of them"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    return AgentFiles(classes, found, problems, bool(others))


def _resolved(path: str, key: str, problems: list[str]) -> str | None:
    """Where verl finds a file: as given, or in its own folder."""
    from verl.utils.import_utils import resolve_config_path

    try:
        found = resolve_config_path(path)
    except FileNotFoundError:
        found = path
    if Path(found).is_file():
        return found
    problems.append(f"{key}={path}: expected a file, found {'a folder' if Path(found).is_dir() else 'nothing'}")
    return None


def _entries(path: str, key: str, node: str | None, problems: list[str]) -> list[Any]:
    """The list in a YAML file; at its top, or below `node`."""
    if (file := _resolved(path, key, problems)) is None:
        return []
    expected = f"a list below {node!r}" if node else "a list"
    try:
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        problems.append(f"{key}={path}: not readable as YAML ({str(error).splitlines()[0]})")
        return []
    entries = content.get(node) if node and isinstance(content, dict) else content
    if isinstance(entries, list) and entries:
        return entries
    problems.append(f"{key}={path}: expected {expected}, got {type(entries).__name__ if entries else 'nothing'}")
    return []


def _named_loops(path: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    for number, entry in enumerate(_entries(path, LOOP_FILE, None, problems)):
        if isinstance(entry, dict) and entry.get("name") and entry.get("_target_"):
            yield str(entry["name"]), str(entry["_target_"])
        else:
            problems.append(f"{LOOP_FILE}={path}: entry {number} needs a name and a _target_, got {entry!r}")


def _config_tools(path: str, problems: list[str]) -> Iterator[Tool]:
    from verl.tools.schemas import OpenAIFunctionToolSchema
    from verl.tools.tool_registry import ToolType

    for number, entry in enumerate(_entries(path, TOOL_FILE, "tools", problems)):
        where = f"{TOOL_FILE}={path}: tool {number}"
        if not isinstance(entry, dict) or not entry.get("class_name"):
            problems.append(f"{where} needs a class_name, got {entry!r}")
            continue
        given = entry["config"].get("type") if isinstance(entry.get("config"), dict) else None
        if given not in (kinds := [kind.value for kind in ToolType]):
            problems.append(f"{where}: config.type must be {' or '.join(kinds)}, got {given!r}")
        kind = _load(str(entry["class_name"]), where, problems)
        if kind is None:
            continue
        if missing := [name for name in ("create", "execute", "release") if not callable(getattr(kind, name, None))]:
            problems.append(
                f"{where}: {entry['class_name']} has no {', '.join(missing)}; derive it from "
                "verl.tools.base_tool.BaseTool"
            )
            continue
        schema = entry.get("tool_schema")
        try:
            # A class with its own method usually needs no instance for it. No instance is created here: it may start
            # processes.
            made = (
                kind.get_openai_tool_schema(object.__new__(kind))
                if schema is None
                else OpenAIFunctionToolSchema(**schema)
            )
        except Exception as error:
            if schema is not None:
                problems.append(f"{where}: its tool_schema is not in OpenAI's format: {_words(error)}")
            yield Tool(None, None)
            continue
        yield _tool(made)


def _functions(path: str, problems: list[str]) -> list[Tool]:
    from verl.tools.function_tool import load_function_tools_from_path

    if (file := _resolved(path, FUNCTION_TOOLS, problems)) is None:
        return []
    try:
        found = load_function_tools_from_path(file)
    # A user's module may raise anything.
    except Exception as error:
        problems.append(f"{FUNCTION_TOOLS}={path}: {_words(error)}")
        return []
    if not found:
        problems.append(f"{FUNCTION_TOOLS}={path}: no function there has the decorator @function_tool")
    return [_tool(tool.tool_schema) for tool in found]


def _tool(schema: Any) -> Tool:
    return Tool(schema.function.name, schema.model_dump(exclude_unset=True, exclude_none=True))


def _load(name: str, where: str, problems: list[str]) -> Any:
    """A class by its full name; None, and a problem, if it does not exist."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    # A user's module may raise anything; a name without a module gives ValueError.
    except Exception as error:
        problems.append(f"{where}: {name} cannot be loaded: {_words(error)}")
        return None


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
