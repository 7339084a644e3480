"""docs/simulation.md has the simulator's figures: a column of its table of modes, simulated again."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.fast_dapo.simulation.command import simulate
from recipe.fast_dapo.simulation.scenario import Scenario

PAGE = Path(__file__).resolve().parents[3] / "docs/simulation.md"
SCENARIO = Scenario(sigma=0.8, num_steps=16, warmup_steps=4)
COLUMN = 3  # of this sigma
# More than the page's figures are rounded by, and less than any change of the simulator that a reader would notice.
TOLERANCE = 0.01


def cell(row: str) -> list[float]:
    """The figures of a row in this column of the table for two phases."""
    table = re.search(r"^\| two phases \|.*\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert table is not None, "docs/simulation.md has no table for two phases"
    rows = {line.split("|")[1].strip(): line.split("|")[1 + COLUMN] for line in table[1].splitlines()}
    return [float(figure.replace(",", "")) for figure in re.findall(r"\d[\d,]*(?:\.\d+)?", rows[row])]


def prompts_per_hour(scenario: Scenario) -> float:
    return simulate(scenario, num_seeds=3)["prompts_a_hour"][0]


def test_the_table_of_modes_is_what_the_simulator_says():
    streaming = prompts_per_hour(SCENARIO)
    merged = prompts_per_hour(replace(SCENARIO, schedule="merged"))
    ahead = prompts_per_hour(replace(SCENARIO, mode="colocate_async"))
    assert cell("sync, streaming: prompts per hour") == pytest.approx([streaming], rel=TOLERANCE)
    assert cell("sync, merged (the shipped schedule): prompts per hour") == pytest.approx([merged], rel=TOLERANCE)
    assert cell("colocate_async") == pytest.approx([ahead / streaming, ahead / merged], rel=TOLERANCE)
