"""What each column of the schema must look like: its arrow type, then its values a batch at a time.

Rows are found with arrow's array operations and never by a Python loop over rows.
"""

# pyarrow makes the functions of pyarrow.compute at import, where a type checker cannot see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

REQUIRED_COLUMNS = ("data_source", "prompt", "ability", "reward_model", "extra_info")
ROLES = ("system", "developer", "user", "assistant", "tool")
STYLES = ("rule", "model")

# (column or column.field, what is wrong, row numbers within the batch)
BrokenRows = Iterator[tuple[str, str, pa.Array]]


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _is_list(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_)


def _text_fields(type_: pa.DataType, names: Sequence[str]) -> bool:
    if not pa.types.is_struct(type_):
        return False
    fields = {field.name: field.type for field in type_}
    return all(name in fields and _is_text(fields[name]) for name in names)


def type_error(name: str, type_: pa.DataType) -> str | None:
    """What is wrong with the type of the column `name`, or None."""
    if name in ("data_source", "ability"):
        return None if _is_text(type_) else f"expected text, got {type_}."
    if name == "prompt":
        if _is_list(type_) and _text_fields(type_.value_type, ("role", "content")):
            return None
        return f"expected a list of {{role: text, content: text}}, got {type_}. Wrap plain text as one user message."
    if name == "reward_model":
        if _text_fields(type_, ("style", "ground_truth")):
            return None
        return f"expected {{style: text, ground_truth: text}}, got {type_}. Store ground truths as text."
    fields = {field.name: field.type for field in type_} if pa.types.is_struct(type_) else {}
    if "index" not in fields:
        return f"expected a struct with a field index, got {type_}. Number the prompts: extra_info.index = 0, 1, 2, ..."
    if not (pa.types.is_integer(fields["index"]) or _is_text(fields["index"])):
        return f"index must be int or text, got {fields['index']} (pandas makes floats of integers with gaps)."
    return None


def broken_rows(name: str, column: pa.Array) -> BrokenRows:
    """Rows of a batch that break the rules of the column `name`, whose type `type_error` has accepted."""
    return _VALUE_CHECKS[name](column)


def _where(mask: pa.Array) -> pa.Array:
    return pc.indices_nonzero(pc.fill_null(mask, False))


def _check_text(name: str) -> Callable[[pa.Array], BrokenRows]:
    def check(column: pa.Array) -> BrokenRows:
        yield name, "is null or empty", _where(pc.or_kleene(pc.is_null(column), pc.equal(column, "")))

    return check


def _check_prompt(column: pa.Array) -> BrokenRows:
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    yield "prompt", "has no messages", _where(pc.equal(lengths, 0))
    parents = pc.list_parent_indices(column)
    messages = pc.list_flatten(column)
    known = pc.is_in(pc.struct_field(messages, "role"), pa.array(ROLES))
    yield "prompt.role", f"is not one of {', '.join(ROLES)}", pc.unique(parents.filter(pc.invert(known)))
    empty = pc.is_null(pc.struct_field(messages, "content"))
    yield "prompt.content", "is null", pc.unique(parents.filter(empty))


def _check_reward_model(column: pa.Array) -> BrokenRows:
    style = pc.struct_field(column, "style")
    yield (
        "reward_model.style",
        f"is not one of {', '.join(STYLES)}",
        _where(pc.invert(pc.is_in(style, pa.array(STYLES)))),
    )
    yield "reward_model.ground_truth", "is null", _where(pc.is_null(pc.struct_field(column, "ground_truth")))


def _check_extra_info(column: pa.Array) -> BrokenRows:
    yield "extra_info.index", "is missing", _where(pc.is_null(pc.struct_field(column, "index")))


_VALUE_CHECKS = {
    "data_source": _check_text("data_source"),
    "prompt": _check_prompt,
    "ability": _check_text("ability"),
    "reward_model": _check_reward_model,
    "extra_info": _check_extra_info,
}
