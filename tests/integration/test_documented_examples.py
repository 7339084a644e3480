"""The examples of docs/extending.md, as a user's files, on real Ray, FSDP2 and vLLM."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROOT, TINY

from verl_ext.run.metrics_stream import read_metrics

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.timeout(900)]

PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
# Without the whole recipe, which is a package: tests/unit/slow/test_documentation.py starts it.
EXAMPLES = dict(
    re.findall(
        r'^```python title="recipe/mine/((?:brief|uncut|half_first)\.py)"\n(.+?)^```$', PAGE, re.MULTILINE | re.DOTALL
    )
)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with the three files, whose modules are imported from there by their bare names."""
    folder = tmp_path_factory.mktemp("mine")
    for name, code in EXAMPLES.items():
        (folder / name).write_text(code, encoding="utf-8")
    return folder


def _run(mine: Path, recipe: str, *overrides: str) -> list[dict]:
    environment = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(mine), environment.get("PYTHONPATH")]))
    run_dir = mine / f"run_{recipe}"
    result = subprocess.run(
        [sys.executable, "-m", f"recipe.{recipe}.main", f"run_dir={run_dir}", *overrides],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    assert json.loads((run_dir / "summary.json").read_text())["global_steps"] == 1
    return read_metrics(run_dir / "metrics.jsonl")


def test_a_controller_and_a_reward_of_ones_own_train(demo_assets: None, mine: Path):
    records = _run(
        mine,
        "fast_dapo",
        *TINY,
        "trainer.total_training_steps=1",
        "trainer_class=half_first.HalfFirstTrainer",
        f"reward.custom_reward_function.path={mine}/brief.py",
        "reward.custom_reward_function.name=compute_score",
        "+reward.custom_reward_function.reward_kwargs.price=0.02",
    )
    assert records[-1]["curriculum/unaccounted_rollouts"] == 0
    assert records[-1]["curriculum/trained"] == 8


def test_a_selector_of_ones_own_takes_rollouts_out_of_the_update(demo_assets: None, mine: Path):
    records = _run(
        mine,
        "tracin",
        *(word for word in TINY if not word.startswith(("+experiment", "data.gen_batch_size"))),
        "+experiment=tracin_arithmetic",
        "tracin.enable=false",
        # Some answers have more tokens and are cut.
        "data.max_response_length=4",
        "data.train_batch_size=8",
        "actor_rollout_ref.rollout.n=4",
        "trainer.total_training_steps=1",
        "selectors=[uncut.Uncut]",
    )
    assert 0 < records[-1]["uncut/cut_share"] < 1
