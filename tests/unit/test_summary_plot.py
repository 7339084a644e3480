"""The picture of docs/benchmarks.md shows what the page's tables say."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from summary_plot import PAGE, PANELS, PICTURE, draw, number, read_table


def _texts(picture: Path) -> Counter[str]:
    return Counter(re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8")))


def test_the_picture_has_every_number_of_the_tables():
    page, texts = PAGE.read_text(encoding="utf-8"), _texts(PICTURE)
    for panel in PANELS:
        rows = read_table(page, panel.heading)[1:]
        assert len(rows) >= 4
        wanted = Counter(number(row[column]) for row in rows for column in panel.columns)
        assert wanted <= texts, f"{panel.heading}: run `python tests/benchmarks/summary_plot.py`"


def test_another_number_makes_another_picture(tmp_path: Path):
    page = PAGE.read_text(encoding="utf-8")
    name, seconds, *_ = read_table(page, "Seconds")[-1]
    changed = page.replace(f"| {name} | {seconds} |", f"| {name} | 98765 |")
    assert changed != page
    draw(changed, tmp_path / "picture.svg")
    assert _texts(tmp_path / "picture.svg")["98765"] == 1


def test_a_section_without_a_table_is_named():
    with pytest.raises(ValueError, match="expected a table under '## Seconds'"):
        read_table("# Benchmarks\n\n## Seconds\n\nNone.\n", "Seconds")
    with pytest.raises(ValueError, match="begins with a number, got 'none'"):
        number("none")
