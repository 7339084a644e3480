"""One Ray cluster, one FSDP2 actor and one vLLM engine for many integration checks.

They take turns with one trainer (`lab.py`). Each leaves it able to make another step; the check that breaks the engine
comes last.
"""

from collections.abc import Iterator

import pytest
from lab import DATA, MODEL, Lab, open_lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration" in str(item.path):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def demo_assets() -> None:
    """`make test` makes them; a bare pytest run says what to do."""
    if not (MODEL / "config.json").exists() or not (DATA / "train.parquet").exists():
        pytest.fail("the demo's data and base model are missing: run `make demo-data`")


@pytest.fixture(scope="session")
def lab(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The shared trainer, ready for its first step."""
    with open_lab(tmp_path_factory.mktemp("lab")) as opened:
        yield opened
