"""What MkDocs calls while it builds the site; the work is in the files next to this one.

Nothing that is written here goes into git: README files of the repository become pages where they stand, links to
source files lead to pages with their text, and two references are written from the configuration and the code.
"""

import sys
from pathlib import Path, PurePosixPath
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The glossaries are imported from the code; the files next to this one have no package.
sys.path[:0] = [str(HERE), str(ROOT)]

import configuration_reference  # noqa: E402
import mathematics  # noqa: E402
import metrics_reference  # noqa: E402
import notebooks  # noqa: E402
import pictures  # noqa: E402
import repository_links  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

from verl_ext.launch.recipe import recipes  # noqa: E402

ASSETS = ("search_from_file.js", "style.css")
SCREENSHOTS = ROOT / "outputs" / "screenshots"
# Replaced by what is written from the repository; on GitHub such a line is an invisible comment.
WRITERS = {
    "<!-- the introduction of the README -->": lambda: repository_links.introduction(ROOT),
    "<!-- the configuration reference -->": lambda: configuration_reference.page(ROOT / "configs"),
    "<!-- the glossary of metrics -->": metrics_reference.page,
}


def on_config(config: Any) -> None:
    """A page of the menu for every recipe that has a README."""
    pages = [{recipe.title: f"recipe/{recipe.name}/README.md"} for recipe in recipes()]
    (menu,) = (entry["Recipes"] for entry in config.nav if "Recipes" in entry)
    menu += [page for page in pages if set(page.values()) <= set(repository_links.README_PAGES)]


def on_files(files: Files, config: Any) -> Files:
    """Pages from elsewhere in the repository, the pictures, and every source file that a page links to."""

    def add(uri: str, **content: Any) -> None:
        files.append(File.generated(config, uri, **content))

    for uri in repository_links.README_PAGES:
        add(uri, abs_src_path=str(ROOT / uri))
    for uri, text in notebooks.pages(ROOT / "docs"):
        add(uri, content=text)
    pages = {file.src_uri: _with_references(file.content_string) for file in files.documentation_pages()}
    for uri, text in repository_links.source_pages(ROOT, pages):
        add(uri, content=text)
    for name in ASSETS:
        add(f"assets/{name}", abs_src_path=str(HERE / name))
    for picture in sorted(SCREENSHOTS.glob("*.png")):
        add(f"screenshots/{picture.name}", abs_src_path=str(picture))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The written references, pictures, and links as the site has them."""
    uri = page.file.src_uri
    if uri.startswith(repository_links.SOURCE):
        return markdown
    # Those of `on_files`: a test of a page may write another one meanwhile.
    names = {PurePosixPath(file.src_uri).name for file in files if file.src_uri.startswith("screenshots/")}
    markdown = pictures.place_screenshots(_with_references(markdown), uri, names)
    return repository_links.rewrite(markdown, uri, ROOT)


def _with_references(markdown: str) -> str:
    for marker, write in WRITERS.items():
        if marker in markdown:
            markdown = markdown.replace(marker, write())
    return markdown


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Formulas and diagrams as part of the page, so that they follow its colours."""
    return pictures.inline_diagrams(mathematics.render(html), ROOT / "docs")


def on_post_build(config: Any) -> None:
    """The index once more as a script: a page that was opened from a file may not read JSON."""
    search = Path(config.site_dir) / "search"
    index = (search / "search_index.json").read_text(encoding="utf-8")
    (search / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
