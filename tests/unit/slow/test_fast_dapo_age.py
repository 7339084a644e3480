"""Batches that are trained on some versions after they were generated (`fast_dapo_age.py`)."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from fast_dapo_age import BUDGET, Late, render


class Numbered:
    """Batches that say under which version they were generated."""

    def next_batch(self, policy: Any) -> int:
        return policy.version


@pytest.mark.parametrize("versions", [0, 1, 3])
def test_every_batch_is_as_late_as_asked_once_the_first_ones_are_gone(versions: int):
    late, policy = Late(Numbered(), versions), SimpleNamespace(version=0)
    ages = []
    for policy.version in range(8):
        ages.append(policy.version - late.next_batch(policy))
    # The first weights generate everything that is ahead.
    assert ages == [min(version, versions) for version in range(8)]
    assert len(late.waiting) == versions


def test_the_table_refers_to_a_methods_first_row_and_marks_what_was_not_reached():
    def runs(*rollouts: float) -> list[dict[str, float]]:
        return [{"rollouts": number, "trained": number / 2, "steps": 3.0} for number in rollouts]

    table = render({("choose", 0): runs(900, 1100), ("choose", 2): runs(1900, 2100), ("spo", 0): runs(500, BUDGET)})
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| choose", "| choose", "| spo"]
    assert rows[1][3].startswith("2,000 [1,900, 2,100]")
    assert rows[1][4].startswith("2.0")
    assert rows[2][3].startswith(">15,250")
