"""The requirements of a run on its files' columns: their arrow types, then their values batch by batch.

Accepted is what verl's `RLHFDataset` and reward managers can use:

    prompt        a list of messages with role and content: text, or a list of parts {type: text | image | …, …};
                  the column's name is `data.prompt_key`
    data_source   text, required by verl's reward function; of any type for a user's function
    reward_model  a struct with ground_truth, of any type but never null
    extra_info    a struct, or absent

A reward model, or a user's reward manager, scores without the second and the third. Nothing else is required (no
`ability`, no `reward_model.style`); valid but unusual values give a note.

Rows are found with arrow's array operations and never by a Python loop over rows.
"""

# pyarrow makes the functions of pyarrow.compute at import, where a type checker cannot see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

ROLES = ("system", "developer", "user", "assistant", "tool")

# (column or column.field, what is wrong, row numbers within the batch)
Rows = Iterator[tuple[str, str, pa.Array]]


@dataclass(frozen=True)
class FileRules:
    """Requirements of a run on its files.

    Attributes:
        prompt_key: Column of the messages, as `data.prompt_key`.
        needs_ground_truth: Whether a reward function scores, which gets `data_source` and `reward_model.ground_truth`
            from verl.
        needs_source_name: Whether it is verl's, which is chosen by the text in `data_source`.
    """

    prompt_key: str = "prompt"
    needs_ground_truth: bool = True
    needs_source_name: bool = True

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that every file must have."""
        return (self.prompt_key, "data_source", "reward_model") if self.needs_ground_truth else (self.prompt_key,)


def is_text(type_: pa.DataType) -> bool:
    """Whether values are text."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def is_json(type_: pa.DataType) -> bool:
    """Whether values differ in type between rows, as in JSON: Hugging Face's `Json`."""
    return isinstance(type_, pa.JsonType)


def field_type(type_: pa.DataType, name: str) -> pa.DataType | None:
    """Type of a struct's field; None if there is no such field or the type is not a struct."""
    if not pa.types.is_struct(type_) or type_.get_field_index(name) < 0:
        return None
    return type_.field(name).type


def _is_list(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_)


def content_type(type_: pa.DataType) -> pa.DataType | None:
    """Type of the messages' content in a column of prompts; None if they are not messages of one type."""
    return field_type(type_.value_type, "content") if _is_list(type_) else None


def _is_content(type_: pa.DataType | None) -> bool:
    if type_ is None:
        return False
    has_parts = _is_list(type_) and (is_json(type_.value_type) or field_type(type_.value_type, "type") is not None)
    return is_text(type_) or is_json(type_) or has_parts


def type_error(name: str, type_: pa.DataType, rules: FileRules) -> str | None:
    """The problem with the type of the column `name`, or None."""
    if name == rules.prompt_key:
        role = field_type(type_.value_type, "role") if _is_list(type_) else None
        if is_json(type_) or (_is_list(type_) and is_json(type_.value_type)):
            return None
        if role is not None and is_text(role) and _is_content(content_type(type_)):
            return None
        return (
            "expected a list of {role: text, content: text}, or content as a list of {type: text, …}, got "
            f"{type_}. Wrap plain text as one user message."
        )
    if name == "data_source" and rules.needs_source_name and not is_text(type_):
        return f"expected text, by which verl chooses its reward function, got {type_}."
    has_truth = is_json(type_) or field_type(type_, "ground_truth") is not None
    if name == "reward_model" and rules.needs_ground_truth and not has_truth:
        return f"expected a struct with a field ground_truth, got {type_}."
    if name == "extra_info" and not (pa.types.is_struct(type_) or pa.types.is_null(type_) or is_json(type_)):
        return f"expected a struct, got {type_}. Store its fields one by one, or leave the column out."
    return None


def broken_rows(name: str, column: pa.Array, rules: FileRules) -> Rows:
    """Rows of a batch that cannot be used, for a column whose type `type_error` has accepted."""
    if name == rules.prompt_key:
        yield from _check_prompt(name, column)
    elif name == "data_source" and rules.needs_source_name:
        yield name, "is null or empty", _where(pc.or_kleene(pc.is_null(column), pc.equal(column, "")))
    elif name == "reward_model" and rules.needs_ground_truth:
        truth = column if is_json(column.type) else pc.struct_field(column, "ground_truth")
        yield f"{name}.ground_truth", "is null", _where(pc.is_null(truth))


def unusual_rows(name: str, column: pa.Array, rules: FileRules) -> Rows:
    """Rows that verl trains on although a chat template may not support their values."""
    if name == rules.prompt_key and content_type(column.type) is not None:
        role = pc.struct_field(pc.list_flatten(column), "role")
        odd = pc.and_(pc.is_valid(role), pc.invert(pc.is_in(role, pa.array(ROLES, role.type))))
        rows = pc.unique(pc.list_parent_indices(column).filter(odd))
        yield f"{name}.role", f"is none of {', '.join(ROLES)}", rows


def _where(mask: pa.Array) -> pa.Array:
    return pc.indices_nonzero(pc.fill_null(mask, False))


def _check_prompt(name: str, column: pa.Array) -> Rows:
    if not _is_list(column.type):
        yield name, "is null", _where(pc.is_null(column))
        return
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    yield name, "has no messages", _where(pc.equal(lengths, 0))
    if content_type(column.type) is None:
        return
    parents = pc.list_parent_indices(column)
    messages = pc.list_flatten(column)
    role = pc.struct_field(messages, "role")
    yield f"{name}.role", "is null", pc.unique(parents.filter(pc.is_null(role)))
    # An assistant's message may consist only of tool calls.
    is_other = pc.fill_null(pc.not_equal(role, "assistant"), True)
    empty = pc.and_(pc.is_null(pc.struct_field(messages, "content")), is_other)
    yield f"{name}.content", "is null", pc.unique(parents.filter(empty))
