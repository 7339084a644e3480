"""Reads programs from files and folders: one text per task. Pure except for reading files; nothing is run."""

import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_ext.arc.importer.modules import Module, parse_module
from verl_ext.arc.importer.scopes import RefusedError
from verl_ext.data.row_report import SourceError

TASK_KEYS = ("task_id", "task", "puzzle_id", "problem_id", "id")
CODE_KEYS = ("code", "program", "source", "solution", "response", "completion", "text")
SUFFIXES = (".py", ".json", ".jsonl", ".json.gz", ".jsonl.gz")
# Written next to candidates, which may later be imported again with other pairs.
REPORT = "report.jsonl"
# A folder with more files is not a folder of programs.
MAX_FILES = 100_000
_ID = re.compile(r"[0-9a-f]{8}")
_FENCED = re.compile(r"^[ \t]*```[ \t]*(?:python|py)?[ \t]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Program:
    """A program for a task.

    Attributes:
        name: Its source: file, and function or row.
        task: Task id.
        text: Text of the module.
        entry: The function, if the text has one per task; None to find it.
    """

    name: str
    task: str
    text: str
    entry: str | None = None


@dataclass(frozen=True)
class Unread:
    """An input that is not a program for a known task.

    Attributes:
        name: Where it is from.
        task: Task id, empty if it has none.
        reason: The reason in one sentence.
        is_readable: Whether it is a program, but for no known task.
    """

    name: str
    task: str
    reason: str
    is_readable: bool = True


def read_programs(
    paths: Iterable[Path], tasks: Collection[str], libraries: Iterable[Path] = ()
) -> list[Program | Unread]:
    """The programs in files and folders, in order.

    Args:
        paths: Files of Python or JSON, or folders of these.
        tasks: Ids of the known tasks.
        libraries: Files that are libraries and not programs, wherever they are.

    Raises:
        SourceError: A path is missing, a file of JSON is not readable as such, or a folder has no programs.
    """
    known = {path.resolve() for path in libraries}
    files = [file for path in paths for file in _files(path) if file.resolve() not in known]
    return [found for file in dict.fromkeys(files) for found in _of_file(file, tasks)]


def read_library(paths: Iterable[Path]) -> dict[str, Module]:
    """The modules that programs may import, by name.

    Raises:
        SourceError: A file is missing or not Python, or two have the same name.
    """
    modules: dict[str, Module] = {}
    for path in paths:
        name = path.parent.name if path.name == "__init__.py" else path.stem
        if name in modules:
            raise SourceError(f"--library {path}: another library is called {name} as well. Rename one of them.")
        try:
            modules[name] = parse_module(name, _text_of(path))
        except RefusedError as error:
            raise SourceError(f"--library {path}: {error}. Correct the file, or leave it out.") from None
    return modules


def _files(path: Path) -> list[Path]:
    if path.is_file():
        if not path.name.endswith(SUFFIXES):
            raise SourceError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}. Rename or convert it.")
        return [path]
    if not path.is_dir():
        raise SourceError(f"{path}: no such file or folder. Check the path.")
    files: list[Path] = []
    for file in path.rglob("*"):
        if file.is_file() and file.name.endswith(SUFFIXES) and file.name != REPORT:
            files.append(file)
        if len(files) > MAX_FILES:
            raise SourceError(f"{path} has more than {MAX_FILES} files. Name the folder of the programs.")
    if not files:
        raise SourceError(f"{path}: expected files that end in {', '.join(SUFFIXES)}, found none. Check the path.")
    return sorted(files)


def _text_of(path: Path) -> str:
    if not path.is_file():
        raise SourceError(f"{path}: no such file. Check the path.")
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: expected text in UTF-8 ({error}). Convert it, or leave it out.") from None


def _of_file(path: Path, tasks: Collection[str]) -> Iterator[Program | Unread]:
    if path.name.endswith(".py"):
        try:
            text = _text_of(path)
        except SourceError as error:
            yield Unread(str(path), "", str(error), False)
        else:
            yield from _of_python(path, text, tasks)
    else:
        text = _text_of(path)
        rows = _lines(path, text) if ".jsonl" in path.name else _rows_of_json(path, text)
        for name, row in rows:
            yield from _of_row(name, row, tasks)


def _of_python(path: Path, text: str, tasks: Collection[str]) -> Iterator[Program | Unread]:
    in_name = _ids([path.name.removesuffix(".py"), path.parent.name], tasks)
    if in_name:
        yield _program(str(path), in_name[0], text, tasks)
        return
    try:
        defined = parse_module(path.name, text).defining
    except RefusedError as error:
        yield Unread(str(path), "", str(error), False)
        return
    functions = [(name, ids[0]) for name in defined if (ids := _ids([name], tasks))]
    for name, task in functions:
        yield _program(f"{path}:{name}", task, text, tasks, name)
    if not functions:
        yield Unread(str(path), "", "expected a task id in the name of the file or of its functions, found none")


def _ids(names: Sequence[str], tasks: Collection[str]) -> list[str]:
    """The task ids in names: known ones first, then strings that look like one."""
    parts = [part for name in names for part in (name, *re.split(r"[^0-9A-Za-z]|_", name))]
    return [part for part in parts if part in tasks] + [part for part in parts if _ID.fullmatch(part)]


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """The rows of JSON lines; an invalid line becomes its own row, so that it is reported."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path}:{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                yield f"{path}:{number}", error


def _rows_of_json(path: Path, text: str) -> list[tuple[str, Any]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not readable as JSON ({error}). Correct the file.") from None
    if isinstance(data, dict) and not set(data) & {*TASK_KEYS, *CODE_KEYS}:
        return [(f"{path}:{key}", {"task": key, "code": value}) for key, value in data.items()]
    rows = data if isinstance(data, list) else [data]
    return [(f"{path}:{number}", row) for number, row in enumerate(rows, 1)]


def _of_row(name: str, row: Any, tasks: Collection[str]) -> Iterator[Program | Unread]:
    if not isinstance(row, dict):
        yield Unread(name, "", f"expected an object with {TASK_KEYS[0]} and {CODE_KEYS[0]}, found {row!r:.80}", False)
        return
    task = next((str(row[key]) for key in TASK_KEYS if isinstance(row.get(key), str | int)), "")
    code = next((row[key] for key in CODE_KEYS if row.get(key)), None)
    texts = code if isinstance(code, list) else [code]
    for number, text in enumerate(texts, 1):
        place = name if len(texts) == 1 else f"{name}.{number}"
        if not task or not isinstance(text, str):
            wanted = f"a task id ({', '.join(TASK_KEYS)}) and a text ({', '.join(CODE_KEYS)})"
            yield Unread(place, task, f"expected {wanted}, found {', '.join(map(str, row))!r:.200}", False)
            continue
        fenced = _FENCED.findall(text)
        yield _program(place, task, fenced[-1] if fenced else text, tasks)


def _program(name: str, task: str, text: str, tasks: Collection[str], entry: str | None = None) -> Program | Unread:
    if task not in tasks:
        return Unread(name, task, f"there is no task {task!r} in the given collections. Add its file to --tasks.")
    return Program(name, task, text, entry)
