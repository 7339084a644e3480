"""The documentation as a reader gets it: built strictly, opened from files, complete, and without any network."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; a warning of MkDocs, such as a broken link, fails the build."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--config-file",
        "docs/site/mkdocs.yml",
        "--site-dir",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> list[Path]:
    """Every page except the 404 page, which no file address leads to."""
    found = sorted(page for page in site.rglob("*.html") if page.name != "404.html")
    assert len(found) > 40
    return found


def _articles(pages: list[Path], site: Path) -> list[Path]:
    """The pages written by people."""
    return [page for page in pages if page.relative_to(site).parts[0] != "source"]


class Reader:
    """A browser page that records its requests and complaints."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._note_failure)
        self.page.on(
            "request",
            lambda request: request.url.startswith(("file:", "data:")) or self.complaints.append(request.url),
        )

    def _note_failure(self, request: Any) -> None:
        # Opening the next page cancels what the previous one is still loading.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url} ({request.failure})")

    def open(self, page: Path) -> Any:
        self.page.goto(page.as_uri())
        return self.page


@pytest.fixture(
    params=[(scheme, width) for scheme in ("light", "dark") for width in (1440, 390)],
    ids=["light, desktop", "light, phone", "dark, desktop", "dark, phone"],
)
def reader(browser: Any, request: pytest.FixtureRequest) -> Iterator[Reader]:
    scheme, width = request.param
    reader = Reader(browser, viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield reader
    reader.context.close()


def test_every_page_opens_asks_nothing_of_a_network_and_fits(reader: Reader, pages: list[Path], site: Path):
    for path in _articles(pages, site):
        page = reader.open(path)
        assert page.locator("h1").count() == 1, path
        # Content that is too wide scrolls in its own box.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert reader.complaints == [], path


def test_dark_follows_the_machine(browser: Any, site: Path):
    colours = set()
    for scheme in ("light", "dark"):
        reader = Reader(browser, color_scheme=scheme)
        page = reader.open(site / "concepts.html")
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        ink = page.evaluate("getComputedStyle(document.querySelector('.diagram text:not(.small)')).fill")
        assert ink == page.evaluate("getComputedStyle(document.querySelector('article p')).color")
        reader.context.close()
    assert len(colours) == 2


def test_every_link_inside_the_site_leads_somewhere(pages: list[Path], site: Path):
    anchors: dict[Path, set[str]] = {}

    def anchors_of(page: Path) -> set[str]:
        if page not in anchors:
            anchors[page] = set(re.findall(r'\sid="([^"]+)"', page.read_text(encoding="utf-8")))
        return anchors[page]

    broken, num_links = [], 0
    for page in pages:
        for link in re.findall(r'\s(?:href|src)="([^"]+)"', page.read_text(encoding="utf-8")):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            num_links += 1
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                broken.append((page.name, link))
            # `__…` are anchors that the theme's script makes.
            elif parts.fragment.removeprefix("__") == parts.fragment != "" and target.suffix == ".html":
                broken += [] if unquote(parts.fragment) in anchors_of(target) else [(page.name, link)]
    assert num_links > 1000
    assert broken == []


def test_the_search_finds_a_key_in_pages_that_were_opened_from_files(browser: Any, site: Path):
    reader = Reader(browser, viewport={"width": 1440, "height": 900})
    page = reader.open(site / "index.html")
    page.locator("[data-md-component=search-query]").click()
    page.keyboard.type("max_staleness")
    found = page.locator(".md-search-result__item a").first
    found.wait_for(timeout=20_000)
    assert any("configuration.html" in href for href in page.locator(".md-search-result__item a").evaluate_all(
        "links => links.map(link => link.href)"
    ))  # fmt: skip
    assert reader.complaints == []
    reader.context.close()


def test_formulas_are_drawn(browser: Any, site: Path):
    reader = Reader(browser)
    for recipe, least in (("fast_dapo", 3), ("golden_redaction", 3), ("tracin", 2)):
        page = reader.open(site / "recipe" / recipe / "index.html")
        formulas = page.locator(".formula svg path")
        assert formulas.count() >= least
        assert all(box["width"] > 50 and box["height"] > 10 for box in (f.bounding_box() for f in formulas.all()))
        assert "$$" not in page.locator("article").inner_text()
    reader.context.close()


def test_pictures_are_shown_or_missed_aloud(browser: Any, site: Path):
    """Which of the two depends on whether the page tests ran here before."""
    reader = Reader(browser, viewport={"width": 1440, "height": 900})
    page = reader.open(site / "report.html")
    pictures, notes = page.locator("figure.screenshot img"), page.locator(".admonition.warning")
    asked_for = (ROOT / "docs/report.md").read_text(encoding="utf-8").count("<!-- screenshot:")
    assert pictures.count() + notes.count() == asked_for >= 10
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        picture.evaluate("image => image.decode()")
        assert picture.evaluate("image => image.naturalWidth") > 500
    for note in notes.all():
        assert "no Chromium" in note.inner_text()
    assert reader.complaints == []
    reader.context.close()


def test_the_references_are_written_out(site: Path):
    configuration = (site / "configuration.html").read_text(encoding="utf-8")
    for key in ("curriculum.max_staleness", "golden.redaction.growth", "tracin.validation.k", "watchdog.interval_s"):
        assert f"<code>{key}</code>" in configuration
    metrics = (site / "metrics.html").read_text(encoding="utf-8")
    for name in ("curriculum/qualified_share", "golden/movement/{where}/intended_way", "tracin/mean_ip"):
        assert f"<code>{name}</code>" in metrics


def test_the_reference_of_the_code_has_signatures_whose_types_are_links(browser: Any, site: Path):
    reader = Reader(browser, viewport={"width": 1440, "height": 900})
    page = reader.open(site / "api" / "controller.html")
    assert page.locator("h1").inner_text().startswith("API: controller")
    text = page.locator("article").inner_text()
    assert "DataController(settings: CurriculumSettings" in text
    assert "get_training_data() -> list[TrainingGroup]" in text
    assert "Removes and returns the train_batch_size prompts that finished first" in text
    # An option with its default and its meaning.
    assert "max_staleness: int | None = Field(default=4" in text
    page.locator("article code a", has_text="CurriculumSettings").first.click()
    heading = page.locator(":target")
    heading.wait_for()
    assert "CurriculumSettings" in heading.inner_text()
    assert heading.bounding_box()["y"] < 900
    # The overview leads to every page of the reference.
    page.goto((site / "api" / "index.html").as_uri())
    pages = page.locator("article table a")
    assert pages.count() >= 9
    for link in pages.evaluate_all("links => links.map(link => link.href)"):
        page.goto(link)
        # The directives became at least one object with a signature or a docstring.
        assert page.locator("article .doc-object").count() > 1, link
        assert ":::" not in page.locator("article .doc-contents").first.inner_text()
    assert reader.complaints == []
    reader.context.close()
