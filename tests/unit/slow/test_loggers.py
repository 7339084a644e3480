"""TensorBoard and wandb get the names and the axes of our pages; their own files are read back."""

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.tracking import Tracking

from verl_ext.report import curves
from verl_ext.report.run_records import read_run
from verl_ext.run.metrics_stream import STEP, MetricsStream
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.run_totals import RunTotals
from verl_ext.run.status import StatusFile
from verl_ext.trainer.trainer import SignalTrainer

ROOT = Path(__file__).resolve().parents[3]
ACCURACY = "val-core/sums/acc/mean@1"


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A trainer without workers: verl's validation and metrics of a step are given."""
    made = object.__new__(SignalTrainer.in_mode("sync"))
    made.run_folder = RunFolder(tmp_path / "run")
    made.metrics_stream = MetricsStream(made.run_folder.metrics)
    made.status, made.totals = StatusFile(made.run_folder.status), RunTotals()
    made.val_accuracy = made.val_accuracy_before = None
    made.global_steps, made.total_training_steps, made.val_dataset = 0, 3, [0] * 8
    monkeypatch.setattr(PPOTrainer, "_validate", lambda self: {ACCURACY: 0.25 + 0.1 * self.global_steps})
    monkeypatch.setattr(
        PPOTrainer, "_compute_metrics", lambda *_, **named: _[2].update({STEP: named["global_steps"], "actor/lr": 0.1})
    )
    return made


def _run(trainer: Any, tracking: Tracking) -> None:
    """As verl's `fit` logs: a validation before training, then one record per step, the last one with a validation."""
    tracking.log(data=trainer._validate(), step=trainer.global_steps)
    for step in range(1, trainer.total_training_steps + 1):
        trainer.global_steps = step
        trainer.totals.rollouts_generated += 100
        metrics = trainer._validate() if step == trainer.total_training_steps else {}
        trainer._compute_metrics(None, metrics, {"step": 2.5}, global_steps=step, epoch=0)
        tracking.log(data=metrics, step=step)
    tracking.finish()


def test_tensorboard_has_every_curve_and_axis_of_our_pages(
    trainer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "tensorboard"))
    _run(trainer, Tracking("project", "experiment", ["tensorboard"]))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    logged = {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    records = read_run(trainer.run_folder.path).metrics
    table = curves.columns(records)
    steps = table[STEP]
    assert steps == [0, 1, 2, 3]
    # What only the page has: how long the first validation took.
    assert set(table) - set(logged) == {"timing_s/testing"}
    for name in set(table) & set(logged):
        ours = {step: value for step, value in zip(steps, table[name], strict=True) if value is not None}
        assert {step: logged[name].get(step) for step in ours} == pytest.approx(ours), name
    assert logged[ACCURACY] == pytest.approx({0: 0.25, 3: 0.55})
    for axis, values in (("rollouts", [0, 100, 200, 300]), ("seconds", [0, 2.5, 5.0, 7.5]), ("step", steps)):
        assert [logged[curves.AXES[axis][0]][step] for step in steps] == values


def test_the_axes_are_documented():
    page = (ROOT / "docs/report.md").read_text(encoding="utf-8").partition("## TensorBoard and wandb")[2]
    for axis, (metric, _) in curves.AXES.items():
        assert re.search(rf"^\| {axis} \| `{re.escape(metric)}`", page, re.MULTILINE), axis


THE_RUN = """
import sys
sys.path.insert(0, "mine")
from verl.utils.tracking import Tracking
from rollout_axis import RolloutAxis
tracking = Tracking("project", "experiment", ["wandb"], config={"trainer": {}})
observer = RolloutAxis(None)
for step in (1, 2):
    observer.observe(None)
    tracking.log(data={"actor/lr": 0.1, "training/total/rollouts_generated": 100 * step}, step=step)
tracking.finish()
"""


@pytest.mark.release
def test_the_documented_observer_gives_wandb_its_axis(tmp_path: Path):
    page = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    code = r'^```python title="recipe/mine/rollout_axis.py"\n(.+?)^```$'
    (example,) = re.findall(code, page, re.DOTALL | re.MULTILINE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rollout_axis.py").write_text(example, encoding="utf-8")
    offline = os.environ | {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", THE_RUN]
    done = subprocess.run(command, cwd=tmp_path, env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    metrics = [record.metric for record in _records(file.read_bytes()) if record.HasField("metric")]
    # wandb replaces the star by each name when the run is synchronised.
    axes = {metric.name or metric.glob_name: metric.step_metric for metric in metrics}
    assert axes["*"] == "training/total/rollouts_generated"
    assert axes["training/total/*"] == ""


def _records(content: bytes) -> Iterator[Any]:
    """Records of wandb's file: 7 bytes, then less than one block of LevelDB's log (checksum, length, kind, data)."""
    from wandb.proto.wandb_internal_pb2 import Record

    place = 7
    while place + 7 <= len(content):
        _, length, kind = struct.unpack_from("<IHB", content, place)
        assert kind == 1  # whole
        record = Record()
        record.ParseFromString(content[place + 7 : place + 7 + length])
        yield record
        place += 7 + length
