"""Pages stand where they are in the repository, so one link serves readers there and readers of the site.

In the repository a link is relative to its file, as in `../recipe/tracin/README.md` or `../configs/signal/tracin.yaml`.
On the site, `docs/` is the root, README files keep their path below it, and every source file or folder that is linked
to has a page under `source/`.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "source/"
README_PAGES = (
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("recipe/*/README.md")),
    "data_preprocess/README.md",
    "verl_ext/sandbox/README.md",
)
# The site's own first page says what the repository's README says.
_ALIASES = {"README.md": "index.md"}
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".md": "markdown", ".toml": "toml", ".txt": "text"}
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2\s*$", re.DOTALL | re.MULTILINE)
_BADGE = re.compile(r"^\[!\[.+\]\(.+\)\n", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def rewrite(markdown: str, uri: str, root: Path) -> str:
    """A page's text with the links that the site needs; what is in code blocks stays.

    Args:
        markdown: Of the page.
        uri: The page's path on the site.
        root: Of the repository.
    """

    def replace(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        place = _place(target, uri, root)
        if place is None:
            return match[0]
        relative = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        # A line of a source file is no anchor of its page.
        keeps_anchor = anchor and not place.startswith(SOURCE)
        return f"]({relative}{'#' + anchor if keeps_anchor else ''})"

    return _outside_code(markdown, lambda text: _LINK.sub(replace, text))


def introduction(root: Path) -> str:
    """What README.md says between its badges and its first section, with links as a page in `docs/` has them.

    Args:
        root: Of the repository.
    """
    text = (root / "README.md").read_text(encoding="utf-8").partition("\n## ")[0].partition("\n")[2].strip()
    text = _BADGE.sub("", text).strip()

    def move(match: re.Match[str]) -> str:
        target = match[1]
        return match[0] if ":" in target or target.startswith("#") else f"](../{target})"

    return _outside_code(text, lambda part: _LINK.sub(move, part))


def source_pages(root: Path, pages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Path on the site and text of a page for every source file and folder that one of the pages links to.

    Args:
        root: Of the repository.
        pages: Path on the site -> text.
    """
    linked = set()
    for uri, text in pages.items():
        for match in _LINK.finditer(_FENCE.sub("", text)):
            place = _place(match[1].partition("#")[0], uri, root)
            if place is not None and place.startswith(SOURCE):
                linked.add(place)
    for place in sorted(linked):
        path = place.removeprefix(SOURCE).removesuffix(".md")
        yield place, _source_page(root / path.removesuffix("/index"), root)


def repository_path(uri: str) -> str:
    """Where the file of a page stands in the repository."""
    return uri if uri in README_PAGES else f"docs/{uri}"


def _place(target: str, uri: str, root: Path) -> str | None:
    """The target's path on the site; None for what needs no change (other sites, anchors, what is not there)."""
    if not target or ":" in target:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(uri)), target))
    if path in _ALIASES:
        return _ALIASES[path]
    if path in README_PAGES:
        return path
    if path.startswith("docs/") and path.split("/")[1] != "site":
        # A notebook is shown as a page.
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    if f"{path}/README.md" in README_PAGES:
        return f"{path}/README.md"
    if (root / path).is_dir():
        return f"{SOURCE}{path}/index.md"
    return f"{SOURCE}{path}.md" if (root / path).is_file() else None


def _source_page(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    head = f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# {name}\n\n"
    if path.is_dir():
        entries = sorted(entry.name for entry in path.iterdir() if entry.name[0] not in "._")
        return head + "\n".join(f"- `{entry}`" for entry in entries) + "\n"
    language = _LANGUAGES.get(path.suffix, "text")
    return f"{head}````{language}\n{path.read_text(encoding='utf-8').rstrip()}\n````\n"


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])
