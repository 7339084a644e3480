"""Screenshots that the browser tests made, and diagrams."""

import html as entities
import re
from collections.abc import Collection
from pathlib import Path

# <!-- screenshot: run-curves.png | What one sees on it. -->
_SCREENSHOT = re.compile(r"<!-- screenshot: ([\w-]+\.png) \| (.+?) -->", re.DOTALL)
_DIAGRAM = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*diagrams/([\w-]+)\.svg"\s*/?>')
MISSING = "No picture: there was no Chromium when this site was built. With one, `make docs` makes it."


def place_screenshots(markdown: str, uri: str, names: Collection[str]) -> str:
    """A figure for every comment that asks for a screenshot, if it is one of `names`; else a visible note."""
    up = "../" * uri.count("/")

    def figure(match: re.Match[str]) -> str:
        name, caption = match[1], " ".join(match[2].split())
        if name not in names:
            return f'!!! warning "{caption}"\n\n    {MISSING}\n'
        link = f"{up}screenshots/{name}"
        words = re.sub("`(.+?)`", r"<code>\1</code>", entities.escape(caption, quote=False))
        label = entities.escape(caption.replace("`", ""))
        picture = f'<a href="{link}"><img alt="{label}" src="{link}" loading="lazy" width="1440" height="900"></a>'
        return f'<figure class="screenshot">{picture}<figcaption>{words}</figcaption></figure>\n'

    return _SCREENSHOT.sub(figure, markdown)


def inline_diagrams(html: str, docs: Path) -> str:
    """Each `diagrams/NAME.svg` as part of the page: a separate file would not follow the page's dark mode."""

    def inline(match: re.Match[str]) -> str:
        label, name = match.groups()
        svg = (docs / "diagrams" / f"{name}.svg").read_text(encoding="utf-8")
        svg = re.sub(r"<style>.*?</style>", "", svg, flags=re.DOTALL)  # the site's own is in style.css
        svg = svg.replace('id="arrow"', f'id="arrow-{name}"').replace("url(#arrow)", f"url(#arrow-{name})")
        return f'<span class="diagram" role="img" aria-label="{label}">{svg}</span>'

    return _DIAGRAM.sub(inline, html)
