"""Writes a page: one HTML file with its style, scripts and data inside, which needs no network and no server.

Scripts are small files in static/, here and in the pages of recipes, put into the page as they are: no build step.
Nothing that a model wrote is ever part of the HTML: it is in compressed blocks (`blocks.py`), and the scripts show it
as text only (`textContent`). As a second wall the page's content security policy allows exactly our scripts, by their
hashes, and no request at all.
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

# Every page has these, in this order; then come its own.
SHARED_SCRIPTS = ("core.js", "keys.js", "table.js", "grids.js")


@dataclass(frozen=True)
class Page:
    """What makes a page.

    Attributes:
        title: Of the window.
        scripts: Its own files in static/, in order; of another package than this one as `own_scripts` names them.
        blocks: Name -> block of `blocks.pack`; `index` is the one that is opened first.
        with_plotly: The page draws charts: plotly.js travels with it, compressed (2 MB), unpacked at the first chart.
    """

    title: str
    scripts: tuple[str, ...]
    blocks: Mapping[str, str] = field(default_factory=dict)
    with_plotly: bool = False


def own_scripts(package: str, *files: str) -> tuple[str, ...]:
    """Files in the static/ of a package, as `Page` has them."""
    return tuple(f"{package}/{file}" for file in files)


def render(page: Page, live_version: int | None = None) -> str:
    """The page as HTML.

    Args:
        page: What to write.
        live_version: The page is served, as of this version: it leaves the blocks out, fetches them from its server,
            and asks there whether a newer version has come. None: a file.
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
        ConfigError: There is no such package.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError("plotly is not installed, which draws the charts: pip install verl-signal[report]") from None

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
            raise ValueError(f"{name} in static/ has {forbidden!r}, at which a browser stops reading it as a script")
    return text


def _static(name: str) -> str:
    package, _, file = name.rpartition("/")
    return files(package or "verl_ext.report").joinpath("static", file).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
