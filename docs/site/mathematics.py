"""Formulas as drawings, by matplotlib's own typesetter: the same in every browser, without a script or a network."""

import html as entities
import re

from matplotlib import rc_context
from matplotlib.path import Path
from matplotlib.textpath import TextPath

# What arithmatex leaves of `$$ … $$`.
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
# Commands that matplotlib does not know, and what stands for them.
_STAND_INS = {r"\Big/": "/", r"\frac": r"\dfrac"}
_SIZE = 16


def render(html: str) -> str:
    """The page with every formula drawn; its LaTeX is the label that screen readers say."""
    return _BLOCK.sub(lambda match: _formula(entities.unescape(match[1])), html)


def _formula(latex: str) -> str:
    latex = " ".join(latex.split())
    label = entities.escape(latex, quote=True)
    for command, stand_in in _STAND_INS.items():
        latex = latex.replace(command, stand_in)
    with rc_context({"mathtext.fontset": "cm"}):
        drawing = TextPath((0, 0), f"${latex}$", size=_SIZE)
    box = drawing.get_extents().padded(2)
    # SVG counts downwards.
    outline = "".join(
        _LETTERS[code] + " ".join(f"{x:.2f},{-y:.2f}" for x, y in points.reshape(-1, 2) if code != Path.CLOSEPOLY)
        for points, code in drawing.iter_segments(simplify=False)
    )
    view = f"{box.x0:.1f} {-box.y1:.1f} {box.width:.1f} {box.height:.1f}"
    size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" {size}><path d="{outline}"/></svg>'
    return f'<div class="formula" role="img" aria-label="{label}" title="{label}">{svg}</div>'
