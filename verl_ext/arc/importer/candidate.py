"""A program as `solve(input_grid)` in the golden form, in one version per grid format. Pure."""

import ast
from dataclasses import dataclass

from verl_ext.arc.form import ARGUMENT
from verl_ext.arc.importer.layout import INDENT, Changes, checked, collect_edits, cut, rebuild, shifted, statement_text
from verl_ext.arc.importer.modules import Imported, Library, Module, Statement, Symbol, names_of
from verl_ext.arc.importer.notes import docstring, notes
from verl_ext.arc.importer.scopes import Names, RefusedError, bindings, other_names, parameters
from verl_ext.arc.importer.selection import CONVERTING, Selection, import_line, select

ENTRIES = ("solve", "transform", "p", "main", "solution", "solver", "transform_grid", "solve_task", "run")
GIVEN = {
    "list": "{}",
    "copy": "[list(row) for row in {}]",
    "tuple": "tuple(map(tuple, {}))",
    "array": "NUMPY.array({})",
    "columns": "NUMPY.array({}).T",
}
TAKEN = {
    "same": "{}",
    "rows": "[list(row) for row in {}]",
    "cells": "[[int(cell) for cell in row] for row in {}]",
    "columns": "[[int(cell) for cell in row] for row in zip(*{})]",
}
# The simplest first; a program that fails in one form may work in another. Some sets index arrays by column and row.
FORMS = (("list", "same"), ("copy", "cells"), ("tuple", "rows"), ("array", "cells"), ("columns", "columns"))


@dataclass(frozen=True)
class _Entry:
    """The entry function, if its body can be that of `solve`.

    Attributes:
        node: The function.
        parameter: Its parameter.
        renamed: The nodes that name the parameter; None if it cannot be renamed.
    """

    node: ast.FunctionDef
    parameter: str
    renamed: tuple[int, ...] | None


def candidates(module: Module, task: str, library: Library, entry: str | None = None) -> list[str]:
    """The texts of a program in the golden form, most likely first.

    Args:
        module: The program.
        task: Its task, used to find the function by name.
        library: Modules that it may import.
        entry: The function; None to find it.

    Raises:
        RefusedError: The program cannot be turned into one function that only computes.
    """
    try:
        is_whole_file = entry is None
        entry = entry or find_entry(module, task)
        selection = select(module, entry, library)
        statement = module.defining[entry][-1]
        head = docstring(*notes(module, statement.node, is_whole_file))
        own = _flat_entry(selection, statement)
        forms = _ordered_forms(selection, statement)
        helpers = [one for one in selection.statements if own is None or one is not statement]
        texts = [_helper_text(selection, one) for one in helpers]
        return [_text(selection, statement, own, head, texts, *form) for form in forms]
    except (RecursionError, MemoryError):
        raise RefusedError(f"{module.name} is nested too deeply to be read") from None


def find_entry(module: Module, task: str) -> str:
    """The name of the function that is called with the grid.

    Raises:
        RefusedError: There is no such function, or it does not take exactly one grid.
    """
    with_task = [name for name in module.defining if name.endswith(f"_{task}")]
    usual = [name for name in ENTRIES if name in module.defining]
    functions = [name for name, (*_, last) in module.defining.items() if isinstance(last.node, ast.FunctionDef)]
    only = functions if len(functions) == 1 else []
    found = [*with_task, *usual, *only]
    for name in found:
        if _arity_problem(module, name) is None:
            return name
    if found:
        raise RefusedError(f"expected one grid as argument, found {_arity_problem(module, found[0])}")
    raise RefusedError(f"has no entry function: expected one of {', '.join(ENTRIES)}, or solve_{task}")


def _arity_problem(module: Module, name: str) -> str | None:
    node = module.defining[name][-1].node
    value = node.value if isinstance(node, ast.Assign) else node
    if isinstance(value, ast.ClassDef | ast.AsyncFunctionDef):
        return f"`{name}` that is not a plain function"
    if not isinstance(value, ast.FunctionDef | ast.Lambda):
        return None
    given = value.args
    positional = len(given.posonlyargs) + len(given.args)
    required = positional - len(given.defaults) + sum(default is None for default in given.kw_defaults)
    if required <= 1 and (positional or given.vararg):
        return None
    return f"`{name}({ast.unparse(given)})`"


def _ordered_forms(selection: Selection, statement: Statement) -> list[tuple[str, str]]:
    """`FORMS`, starting with those that the annotation or the use of numpy suggests."""
    node = statement.node
    note = ""
    if isinstance(node, ast.FunctionDef):
        note = " ".join(ast.unparse(one.annotation) for one in parameters(node.args)[:1] if one.annotation).lower()
    imported = [*statement.module.imports.values(), *(one.owner for one in selection.imports)]
    uses_numpy = any(isinstance(one, Imported) and one.module == "numpy" for one in imported)
    if "array" in note or (uses_numpy and not note and not _makes_array(node)):
        first = "array"
    elif "tuple" in note:
        first = "tuple"
    else:
        first = "list"
    likely = (first, "columns" if first == "array" else first)
    return sorted(FORMS, key=lambda form: likely.index(form[0]) if form[0] in likely else len(likely))


def _makes_array(node: ast.stmt) -> bool:
    """Whether a function turns its first parameter into an array itself."""
    names = {one.arg for one in parameters(node.args)[:1]} if isinstance(node, ast.FunctionDef) else set[str]()
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and one.args]
    return any(
        isinstance(call.args[0], ast.Name) and call.args[0].id in names and ast.unparse(call.func).endswith("array")
        for call in calls
    )


# ------------------------------ the body ------------------------------


def _flat_entry(selection: Selection, statement: Statement) -> _Entry | None:
    """The entry function if its body can be inlined in `solve`; None if it must stay a function."""
    node = statement.node
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or selection.entry in selection.uses.values():
        return None
    arguments = parameters(node.args)
    returns = [one for one in _own_nodes(node) if isinstance(one, ast.Return | ast.Yield | ast.YieldFrom)]
    last = node.body[-1]
    if len(arguments) != 1 or node.args.defaults or node.args.vararg or node.args.kwonlyargs or node.args.kwarg:
        return None
    if len(returns) != 1 or returns[0] is not last or not isinstance(last, ast.Return) or last.value is None:
        return None
    parameter = arguments[0].arg
    own = bindings(node.body) | {parameter}
    others = {name for symbol, name in selection.names.items() if symbol != selection.entry}
    if own & (others | (selection.own | CONVERTING)):
        return None
    names = names_of(statement)
    if parameter != ARGUMENT and ARGUMENT in names.identifiers:
        return None
    return _Entry(node, parameter, _uses_of(parameter, node, names))


def _uses_of(parameter: str, node: ast.FunctionDef, names: Names) -> tuple[int, ...] | None:
    for one in ast.walk(node):
        declared = one.names if isinstance(one, ast.Nonlocal) else [getattr(one, "name", None), *other_names(one)]
        if parameter in declared:
            return None
    return tuple(
        id(name) for name, scope in names.uses if scope is not None and scope.node is node and name.id == parameter
    )


def _own_nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    found: list[ast.AST] = []
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            queue += ast.iter_child_nodes(node)
    return found


# ------------------------------ the text ------------------------------


def _helper_text(selection: Selection, statement: Statement) -> str:
    """A statement's text, cached for library statements without renaming."""
    names = _changes(selection, statement)
    if names:
        return statement_text(statement.module, statement.node, names)
    statement.text = statement.text or statement_text(statement.module, statement.node, {})
    return statement.text


def _text(
    selection: Selection,
    statement: Statement,
    own: _Entry | None,
    head: str,
    helpers: list[str],
    given: str,
    taken: str,
) -> str:
    numpy, imports = _imports(selection, given in ("array", "columns"))
    before = GIVEN[given].replace("NUMPY", numpy)
    parts = [*imports, *helpers]
    if own is None:
        call = f"{selection.names[selection.entry]}({before.format(ARGUMENT)})"
        parts += [f"result = {TAKEN[taken].format(call)}", "return result"]
    else:
        parts += _flat_parts(selection, statement, own, before, TAKEN[taken])
    body = shifted("\n".join(parts), "", INDENT)
    return f"def solve({ARGUMENT}):\n{head}{body}\n"


def _imports(selection: Selection, with_numpy: bool) -> tuple[str, list[str]]:
    """The name of numpy, and the imports."""
    lines = [import_line(symbol, selection.names[symbol]) for symbol in selection.imports]
    whole = [one for one in selection.imports if one.owner in (Imported("numpy", None, one.name),)]
    if whole:
        return selection.names[whole[0]], sorted(lines)
    taken = selection.identifiers | set(selection.names.values())
    numpy = selection.fresh("np") if "np" in taken else "np"
    return numpy, sorted(
        [*lines, import_line(Symbol(Imported("numpy", None, numpy), numpy), numpy)] if with_numpy else lines
    )


def _changes(selection: Selection, statement: Statement) -> dict[int, str]:
    """New names of a statement's nodes.

    Raises:
        RefusedError: A name must be changed where it cannot be replaced.
    """
    names: dict[int, str] = {}
    for node in ast.walk(statement.node):
        symbol = selection.uses.get(id(node))
        if symbol is not None and (
            isinstance(node, ast.Attribute) or getattr(node, "id", "") != selection.names[symbol]
        ):
            names[id(node)] = selection.names[symbol]
    for name in statement.bound:
        new = selection.names.get(Symbol(statement.module, name), name)
        if new == name:
            continue
        if isinstance(statement.node, ast.FunctionDef | ast.ClassDef):
            names[id(statement.node)] = new
        elif any(getattr(one, "name", None) == name or name in other_names(one) for one in ast.walk(statement.node)):
            raise RefusedError(f"two definitions are called `{name}`, and one of them cannot be renamed: rename it")
    return names


def _flat_parts(selection: Selection, statement: Statement, own: _Entry, before: str, after: str) -> list[str]:
    node, module = own.node, statement.module
    names = _changes(selection, statement)
    names.pop(id(node), None)
    parts: list[str] = []
    if before == "{}" and own.renamed is not None:
        names |= dict.fromkeys(own.renamed, ARGUMENT) if own.parameter != ARGUMENT else {}
    elif before != "{}" or own.parameter != ARGUMENT:
        converted = own.parameter
        if converted == ARGUMENT and own.renamed is not None:
            # `input_grid` stays unchanged, as in every golden solution.
            taken_names = selection.identifiers | set(selection.names.values())
            converted = selection.fresh("grid") if "grid" in taken_names else "grid"
            names |= dict.fromkeys(own.renamed, converted)
        parts.append(f"{converted} = {before.format(ARGUMENT)}")
    has_docstring = ast.get_docstring(node) is not None
    body = node.body[1:] if has_docstring else node.body
    last = body[-1]
    assert isinstance(last, ast.Return)  # checked by _flat_entry
    assert last.value is not None
    wanted = [rebuild(one, names) for one in body[:-1]]
    wanted += _wanted_end(rebuild(last.value, names), after)
    first = min([body[0].lineno, *(one.lineno for one in getattr(body[0], "decorator_list", []))])
    above = node.body[0].end_lineno if has_docstring else node.lineno
    start = first
    while start - 1 > (above or 0) and module.lines[start - 2].strip()[:1] in (b"", b"#"):
        start -= 1
    indent = module.lines[first - 1][: body[0].col_offset].decode()
    text = ""
    if first > (above or 0) and not indent.strip():
        changes = Changes(names)
        collect_edits(module, body, changes)
        if len(wanted) > len(body):
            words = after.partition("{}")
            if isinstance(last.value, ast.Tuple | ast.IfExp | ast.Lambda) and after != "{}":
                words = (words[0] + "(", "", ")" + words[2])
            end = (last.end_lineno or 0, last.end_col_offset or 0)
            keyword = last.col_offset + len("return")
            line = module.lines[last.lineno - 1]
            spaces = len(line) - keyword - len(line[keyword:].lstrip())
            opening = (last.lineno, last.col_offset, last.lineno, keyword + spaces)
            changes.edits.append((*opening, f"result = {words[0]}"))
            changes.edits.append((*end, *end, f"{words[2]}\n{indent}return result"))
        line = last.end_lineno or last.lineno
        text = cut(module, (start, 0), (line, len(module.lines[line - 1])), changes)
    return [*parts, checked(text, wanted, indent)]


def _wanted_end(value: ast.expr, after: str) -> list[ast.stmt]:
    """`result = …` and `return result`, around the value that the program returns."""
    if after == "{}" and isinstance(value, ast.Name) and value.id == "result":
        return [ast.Return(value)]

    class Filled(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return value if node.id == "VALUE" else node

    tree = ast.parse(f"result = {after.format('VALUE')}\nreturn result")
    return [Filled().visit(tree.body[0]), tree.body[1]]
