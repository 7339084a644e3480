"""Figures as files, for reports and the documentation."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path, name: str) -> None:
    """Write a figure; as SVG, the same figure makes the same file, and letters stay letters, which is half of its size.

    Args:
        figure: To save.
        path: Its suffix is the format.
        name: From which the identifiers in an SVG file are made.
    """
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
