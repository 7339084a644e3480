"""Two runs at a time on one machine, each with its own Ray cluster: Ray gives both the same job id."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attempts import last_step, run

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

STEPS = 6
# Weights are sent after every step, and before the first.
OVERRIDES = [f"trainer.total_training_steps={STEPS}", "trainer.save_freq=-1", "trainer.test_freq=-1"]


def test_both_end_well(demo_assets: None, tmp_path: Path):
    folders = [tmp_path / name for name in ("first", "second")]
    with ThreadPoolExecutor(len(folders)) as pool:
        ended = list(pool.map(lambda folder: run(folder, *OVERRIDES), folders))
    for folder, result in zip(folders, ended, strict=True):
        assert result.returncode == 0, result.stderr[-3000:]
        assert last_step(folder / "metrics.jsonl") == STEPS
