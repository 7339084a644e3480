"""One Ray cluster, one FSDP2 actor and one vLLM engine for many integration checks.

The checks take turns with one trainer (`lab.py`). Each leaves it able to make another step; the check that breaks the
engine comes last. Checks of other configurations use their own trainer afterwards.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from golden_assets import GoldenAssets, make_golden_assets
from lab import DATA, MODEL, Lab, open_lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration" in str(item.path):
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def demo_assets() -> None:
    """`make test` makes them; a bare pytest run fails with instructions."""
    if not (MODEL / "config.json").exists() or not (DATA / "train.parquet").exists():
        pytest.fail("the demo's data and base model are missing: run `make demo-data`")


@pytest.fixture(scope="session")
def golden_assets(tmp_path_factory: pytest.TempPathFactory) -> GoldenAssets:
    """Tasks, model and data of golden redaction; about a minute."""
    return make_golden_assets(tmp_path_factory.mktemp("golden_assets"))


class Labs:
    """One trainer at a time, because a process has one Ray cluster."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._stack = ExitStack()
        self._open: tuple[str, Lab] | None = None

    def get(self, name: str, *overrides: str, recipe: str = "fast_dapo") -> Lab:
        """The trainer of this name, ready for its next step; the previous trainer is shut down."""
        if self._open is None or self._open[0] != name:
            self.close()
            folder = self._folders.mktemp(name)
            self._open = name, self._stack.enter_context(open_lab(folder, *overrides, recipe=recipe))
        return self._open[1]

    def close(self) -> None:
        self._open = None
        self._stack.close()


@pytest.fixture(scope="session")
def labs(demo_assets: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    labs = Labs(tmp_path_factory)
    yield labs
    labs.close()


@pytest.fixture
def lab(labs: Labs) -> Lab:
    """The shared trainer, ready for its first step."""
    return labs.get("fast_dapo")
