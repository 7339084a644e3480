"""Writes a page: one HTML file with its style, scripts and data inside, which needs no network and no server.

Scripts are small files in static/, here and in the pages of recipes, put into the page as they are: no build step.
Model output is never part of the HTML: it is in compressed blocks (`blocks.py`), and the scripts show it only as text
(`textContent`). As a second barrier, the page's content security policy allows exactly our scripts, by their hashes,
and no requests.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from verl_ext.core.errors import ConfigError
from verl_ext.report.blocks import pack_text

PLOTLY = "plotly"

# Scripts of every page, in this order, before its own.
SHARED_SCRIPTS = ("core.js", "keys.js", "table.js", "grids.js")


@dataclass(frozen=True)
class Page:
    """The content of a page.

    Attributes:
        title: Title of the window.
        scripts: Its own files in static/, in order; those of other packages as named by `own_scripts`.
        blocks: Name -> block of `blocks.pack`; `index` is opened first.
        with_plotly: Whether the page draws charts: it then includes plotly.js, compressed (2 MB), unpacked at the first
            chart.
    """

    title: str
    scripts: tuple[str, ...]
    blocks: Mapping[str, str] = field(default_factory=dict)
    with_plotly: bool = False


def own_scripts(package: str, *files: str) -> tuple[str, ...]:
    """Files in a package's static/, as named in `Page`."""
    return tuple(f"{package}/{file}" for file in files)


def render(page: Page, live_version: int | None = None) -> str:
    """The page as HTML.

    Args:
        page: The page to write.
        live_version: Version of a served page, which leaves the blocks out, fetches them from its server, and polls
            there for newer versions. None: a file.
    """
    live = live_version is not None
    scripts = [_script(name) for name in (*SHARED_SCRIPTS, *page.scripts)]
    hashes = [_hash(script) for script in scripts]
    blocks = {} if live else dict(page.blocks)
    if page.with_plotly:
        hashes.append(_hash(plotly_script()))
        if not live:
            blocks[PLOTLY] = plotly_block()
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(hashes)}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=page.title,
            policy="; ".join(policy),
            style=Markup(_static("page.css")),
            scripts=[Markup(script) for script in scripts],
            blocks=blocks,
            live_version=live_version,
        )
    )


@lru_cache(maxsize=1)
def plotly_script() -> str:
    """plotly.js as the installed package has it.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError(
            "plotly is not installed, which draws the charts: pip install 'verl-signal[report]'"
        ) from None

    return get_plotlyjs()


@lru_cache(maxsize=1)
def plotly_block() -> str:
    """plotly.js as a block."""
    return pack_text(plotly_script())


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("verl_ext.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _script(name: str) -> str:
    text = _static(name)
    # An inlined script ends at the first `</script`, and `<!--` changes how it is read.
    for forbidden in ("</script", "<!--"):
        if forbidden in text.lower():
            raise ValueError(f"{name} in static/ has {forbidden!r}, which ends a script for browsers")
    return text


def _static(name: str) -> str:
    package, _, file = name.rpartition("/")
    return files(package or "verl_ext.report").joinpath("static", file).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
