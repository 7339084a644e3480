"""The benchmark's methods on the demo's base model: a few batches each, verl's sampler on its own TransferQueue."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from fast_dapo_efficiency import Job, Runs

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def results(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """One short run per method, each in its own process; the second call reads the runs that the first one kept."""
    jobs = [Job(method, 3e-4, seed=0, steps=2) for method in ("uniform_rloo", "filter_groups", "sequential")]
    path = tmp_path_factory.mktemp("efficiency") / "runs.jsonl"
    finished = Runs(path).finish(jobs, workers=1)
    assert Runs(path).finish(jobs, workers=1) == finished
    return {result["job"]["method"]: result for result in finished}


def test_uniform_sampling_trains_on_everything_and_mostly_on_nothing(results: dict[str, dict]):
    result = results["uniform_rloo"]
    assert result["generated"] == result["trained"] == 2 * 16 * 16
    assert 0 < result["informative_share"] < 0.5


@pytest.mark.parametrize("method", ["filter_groups", "sequential"])
def test_filtering_and_screening_train_on_informative_groups_only(results: dict[str, dict], method: str):
    result = results[method]
    assert result["informative_share"] == 1
    assert result["trained"] == 2 * 16 * 16
    assert result["generated"] > result["trained"]


def test_a_look_at_the_accuracy_is_that_of_the_base_model_at_first(results: dict[str, dict]):
    first = {result["history"][0]["accuracy"] for result in results.values()}
    assert len(first) == 1
    assert 0.1 < first.pop() < 0.4
