"""The glossary of metrics, written from the code's own (`metric_glossary.py` of each recipe)."""

from collections.abc import Mapping

from verl_ext.launch.recipe import glossaries


def page() -> str:
    """A table for each recipe, in the order of the code."""
    return "\n\n".join(f"## {title}\n\n{_table(entries)}" for title, entries in glossaries().items())


def _table(entries: Mapping[str, tuple[str, str]]) -> str:
    # Counts of the whole run differ from those of a step in nothing but the time that they count.
    shown = {name: entry for name, entry in entries.items() if not name.startswith("curriculum/total/")}
    total = {name for name in entries if name not in shown}
    rows = ["| metric | unit | |", "| --- | --- | --- |"]
    for name, (unit, meaning) in shown.items():
        twin = name.replace("curriculum/", "curriculum/total/", 1)
        since = " Also `…/total/…`." if twin in total else ""
        rows.append(f"| `{name}` | {_cell(unit)} | {_cell(meaning)}{'.' if since else ''}{since} |")
    alone = sorted(total - {name.replace("curriculum/", "curriculum/total/", 1) for name in shown})
    rows += [f"| `{name}` | {_cell(entries[name][0])} | {_cell(entries[name][1])} |" for name in alone]
    return "\n".join(rows)


def _cell(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("*", r"\*")
    return escaped.replace("_", r"\_")
