"""Tutorial notebooks as pages: their text and code in order. The files have no outputs."""

import json
from collections.abc import Iterator
from pathlib import Path


def pages(docs: Path) -> Iterator[tuple[str, str]]:
    """Path on the site and text of a page for every notebook.

    Args:
        docs: The folder of the docs.
    """
    for path in sorted((docs / "tutorials").glob("*.ipynb")):
        yield f"tutorials/{path.stem}.md", page(path)


def page(path: Path) -> str:
    """A notebook as Markdown, with a link to its file behind the title."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *others = (_cell(cell) for cell in cells)
    heading, _, introduction = title.partition("\n")
    note = f'The notebook without its outputs: <a href="{path.name}" download>{path.name}</a>.'
    return "\n\n".join([heading, note, introduction.strip(), *others]) + "\n"


def _cell(cell: dict[str, list[str] | str]) -> str:
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
