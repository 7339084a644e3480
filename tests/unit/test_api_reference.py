"""The pages of docs/api/ name what users and extenders import. Nothing is imported here: griffe reads the sources."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest
from each import check_each

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
PACKAGES = ("data_preprocess", "recipe", "verl_ext")
# Folders of the examples in docs/extending.md, and of the demos' models.
EXAMPLES = ("recipe.mine.", "data_preprocess.demo_models.")
_DIRECTIVE = re.compile(r"^::: (?P<name>\S+)(?P<options>(?:\n {4}.+)*)", re.MULTILINE)
_MEMBERS = re.compile(r"members: \[(?P<names>.+)\]")


@pytest.fixture(scope="module")
def sources() -> griffe.GriffeLoader:
    loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
    for package in PACKAGES:
        loader.load(package)
    return loader


def _find(name: str, sources: griffe.GriffeLoader) -> griffe.Object:
    found = sources.modules_collection[name]
    return found.final_target if isinstance(found, griffe.Alias) else found


def _directives() -> Iterator[tuple[str, list[str] | None]]:
    for page in PAGES:
        for match in _DIRECTIVE.finditer(page.read_text(encoding="utf-8")):
            members = _MEMBERS.search(match["options"])
            yield match["name"], members["names"].split(", ") if members else None


def _documented(sources: griffe.GriffeLoader) -> dict[str, griffe.Object]:
    """Every module, class and function of the pages, by the path where it is defined."""
    found = {}
    for name, members in _directives():
        thing = _find(name, sources)
        found[thing.path] = thing
        if thing.is_module:
            own = [one for one in thing.members.values() if one.is_public and not one.is_alias]
            found |= {one.path: one for one in own if members is None or one.name in members}
            assert set(members or ()) <= {one.name for one in own}, name
    return found


def _examples(page: Path) -> list[str]:
    """The Python code of a page or of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return re.findall(r"^```python.*?\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)


def _imports(page: Path) -> Iterator[str]:
    """What the examples of a page import from our packages."""
    for example in _examples(page):
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_what_the_docs_import_is_in_the_reference(sources: griffe.GriffeLoader):
    pages = [
        path
        for pattern in ("*.md", "docs/**/*.md", "docs/**/*.ipynb", "recipe/**/*.md", "verl_ext/**/*.md")
        for path in ROOT.glob(pattern)
    ]
    imported = {name for page in pages for name in _imports(page)}
    imported = {name for name in imported if not name.startswith(EXAMPLES)}
    assert "recipe.fast_dapo.data_controller.DataController" in imported
    documented = _documented(sources)
    check_each(sorted(imported), lambda name: _is_in(name, documented, sources))


def _is_in(name: str, documented: dict[str, griffe.Object], sources: griffe.GriffeLoader) -> None:
    assert _find(name, sources).path in documented, f"add `::: {name}` to a page of docs/api/"


def test_everything_in_the_reference_has_a_docstring(sources: griffe.GriffeLoader):
    def check(thing: griffe.Object) -> None:
        bare = [] if thing.docstring or thing.is_attribute else [thing.path]
        # A method that overrides another is described at that one.
        if thing.is_class and not thing.bases:
            bare += [one.path for one in thing.members.values() if _is_callable(one) and not one.docstring]
        assert not bare, f"no docstring: {', '.join(bare)}"

    documented = _documented(sources)
    assert len(documented) > 120
    check_each(list(documented.values()), check)


def _is_callable(thing: griffe.Object | griffe.Alias) -> bool:
    is_special = thing.name.startswith("__")
    return thing.is_public and not is_special and (thing.is_function or "property" in thing.labels)


def test_every_page_says_what_its_directives_are_and_is_in_the_overview():
    overview = (ROOT / "docs/api/index.md").read_text(encoding="utf-8")
    assert len(PAGES) >= 10
    for page in PAGES:
        assert "a line that begins with `:::`" in page.read_text(encoding="utf-8"), page
        assert page.name == "index.md" or f"]({page.name})" in overview, page
