"""Agent loops and tools named in rows: the column agent_name, and two entries of extra_info."""

# pyarrow makes the functions of pyarrow.compute at import, where a type checker cannot see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from verl_ext.data.data_files import open_file
from verl_ext.data.schema_rules import field_type

_LOOP = "agent_name"


@dataclass
class AgentRows:
    """Names in the files of one configuration entry, which verl joins.

    Attributes:
        loops: Names in the column; None without the column, when the default loop takes the rows.
        num_without_name: Rows without a name, if there is a column.
        selected_tools: Names in extra_info.tool_selection.
        tools_with_arguments: Names in extra_info.tools_kwargs.
    """

    loops: set[str | None] = field(default_factory=set)
    num_without_name: int = 0
    selected_tools: set[str] = field(default_factory=set)
    tools_with_arguments: set[str] = field(default_factory=set)


def read_agent_rows(files: Sequence[str]) -> AgentRows:
    """Read files that passed the checks of the data."""
    found, has_column = AgentRows(), False
    for path in dict.fromkeys(files):
        with open_file(path) as file:
            names = [name for name in (_LOOP, "extra_info") if name in file.schema.names]
            has_column |= _LOOP in names
            if _LOOP not in names:
                found.num_without_name += file.num_rows
            for batch in file.batches(names) if names else ():
                if _LOOP in names:
                    values = batch.column(names.index(_LOOP))
                    found.loops |= {str(name) for name in pc.unique(values).to_pylist() if name}
                    found.num_without_name += sum(not name for name in values.to_pylist())
                if "extra_info" in names:
                    _look_at(batch.column(names.index("extra_info")), found)
    if not has_column:
        found.loops, found.num_without_name = {None}, 0
    return found


def _look_at(extra_info: pa.Array, found: AgentRows) -> None:
    selection = field_type(extra_info.type, "tool_selection")
    if selection is not None and (pa.types.is_list(selection) or pa.types.is_large_list(selection)):
        chosen = pc.list_flatten(pc.struct_field(extra_info, "tool_selection"))
        found.selected_tools |= {str(name) for name in pc.unique(chosen).to_pylist() if name is not None}
    arguments = field_type(extra_info.type, "tools_kwargs")
    if arguments is not None and pa.types.is_struct(arguments):
        found.tools_with_arguments |= {each.name for each in arguments}
