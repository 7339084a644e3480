"""The Python examples of docs/report.md name wandb's arguments as it does, and metrics that runs log."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl_ext.core.metric_glossary import VERLS_METRICS, find_entry
from verl_ext.launch.recipe import glossaries

PAGE = (Path(__file__).resolve().parents[3] / "docs/report.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r'^```python title="([\w/.]+)"\n(.+?)^```$', PAGE, re.MULTILINE | re.DOTALL))
ACCURACY = "val-core/math500/acc/mean@8"


def run(name: str) -> dict[str, Any]:
    """Run an example, and return its names."""
    names: dict[str, Any] = {}
    exec(compile(EXAMPLES[name], name, "exec"), names)
    return names


def is_logged(metric: str) -> bool:
    return any(find_entry(metric, glossary) for glossary in (*glossaries().values(), VERLS_METRICS))


def test_the_observer_draws_every_curve_over_rollouts(monkeypatch: pytest.MonkeyPatch):
    defined = []
    wandb = SimpleNamespace(define_metric=lambda name, step_metric=None: defined.append((name, step_metric)))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    run("recipe/mine/rollout_axis.py")["RolloutAxis"].observe(None, None)
    (axes, none), (every, axis) = defined
    assert (none, every) == (None, "*")
    assert re.fullmatch(axes.replace("*", ".*"), axis)
    assert is_logged(axis)


def test_the_wandb_report_has_four_panels_of_metrics_that_are_logged(monkeypatch: pytest.MonkeyPatch):
    plots, saved = [], []

    def line_plot(*, title: str, x: str = "Step", y: tuple[str, ...] = (), metric_regex: str | None = None) -> None:
        plots.append(({x} - {"Step"} | set(y), metric_regex))

    library = SimpleNamespace(
        LinePlot=line_plot,
        Runset=lambda *, entity, project: project,
        PanelGrid=lambda *, runsets, panels: panels,
        Report=lambda *, entity, project, title, blocks: SimpleNamespace(url="", save=lambda: saved.append(blocks)),
    )
    reports = SimpleNamespace(v2=library)
    monkeypatch.setitem(sys.modules, "wandb_workspaces", SimpleNamespace(reports=reports))
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports", reports)
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", library)
    run("wandb_report.py")
    assert (len(plots), len(saved)) == (4, 1)
    assert all(is_logged(name) for names, _ in plots for name in names)
    assert is_logged(ACCURACY)
    assert all(re.fullmatch(pattern, ACCURACY) for _, pattern in plots if pattern is not None)
