"""What probes ask and what is recorded of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.golden_redaction.method.probes import hidden_tokens, probe_metrics, probe_rows, probe_states
from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactedState


@given(st.integers(1, 2000), st.integers(1, 100))
def test_a_share_of_a_golden_solution_is_rounded_up(length: int, percent: int):
    assert hidden_tokens(range(length), percent / 100) == -(-length * percent // 100)


def test_at_least_one_token_is_hidden_and_at_most_all():
    assert hidden_tokens(range(3), 1e-12) == 1
    assert hidden_tokens(range(7), 1.0) == 7
    assert hidden_tokens(range(10), math.nextafter(0.3, 1)) == 3


def test_every_problem_is_probed_with_every_share():
    problems = [Problem(name, (1, 2), tuple(range(length)), (), ()) for name, length in (("a", 10), ("b", 3))]
    assert probe_states(problems, (0.5, 1.0)) == [
        (0.5, RedactedState("a", 5)),
        (1.0, RedactedState("a", 10)),
        (0.5, RedactedState("b", 2)),
        (1.0, RedactedState("b", 3)),
    ]


def test_a_pass_rate_is_the_mean_of_the_labels_that_are_known():
    states = [(0.5, RedactedState("a", 5)), (1.0, RedactedState("a", 10)), (0.5, RedactedState("b", 2))]
    rows = probe_rows(7, states, [[1, 0, None], [None, None, None], [0, 0, 1]])
    assert rows[0] == {"step": 7, "problem": "a", "share": 0.5, "k": 5, "pass_rate": 0.5}
    assert [row["pass_rate"] for row in rows] == [0.5, None, pytest.approx(1 / 3)]
    # Nothing is known about fully hidden solutions: their metric is absent instead of being a mean of nothing.
    mean = pytest.approx((1 / 2 + 1 / 3) / 2)
    assert probe_metrics(rows, 3) == {"golden/probe/0.5": mean, "val-core/golden/acc/mean@3": mean}


def test_the_accuracy_is_the_mean_of_all_rows_not_of_the_shares():
    rows = [{"share": share, "pass_rate": rate} for share, rate in ((0.5, 1.0), (0.5, 1.0), (0.5, 1.0), (1, 0.0))]
    metrics = probe_metrics(rows, 8)
    assert metrics == {"golden/probe/0.5": 1.0, "golden/probe/1": 0.0, "val-core/golden/acc/mean@8": 0.75}


def test_without_any_label_there_is_no_accuracy():
    metrics = probe_metrics([{"share": 0.5, "pass_rate": None}], 2)
    assert list(metrics) == ["val-core/golden/acc/mean@2"]
    assert math.isnan(metrics["val-core/golden/acc/mean@2"])
