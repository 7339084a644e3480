"""How the tests run: the platform, the number of examples, and what `--fast` leaves out."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

# verl chooses its platform when it is first used: the tests that import its workers run on the CPU platform.
os.environ.setdefault("VERL_PLATFORM", "cpu")

# No deadlines of hypothesis: a busy machine is not a fault of the code. Other tests bound time generously, if at all.
# The same examples every time, so that results depend only on the code; `--fast`, in the edit loop, draws new ones.
hypothesis.settings.register_profile("full", deadline=None, derandomize=True)
hypothesis.settings.register_profile("fast", deadline=None, max_examples=20)

# Each takes seconds to import, in every process.
HEAVY = ("ray", "tensordict", "torch", "transfer_queue", "transformers", "verl", "vllm")
SLOW = Path(__file__).parent / "unit" / "slow"


class _Refusal(Loader):
    """Loads nothing: a heavy library is still reported as installed, but importing it fails."""

    def create_module(self, spec: ModuleSpec) -> None:
        raise ImportError(
            f"a fast unit test loads none of {', '.join(HEAVY)}, and this one loads {spec.name}: import it in the "
            "function that needs it, or move the test to tests/unit/slow"
        )

    def exec_module(self, module: ModuleType) -> None:
        """Never reached."""


class _HeavyLibraries(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in HEAVY else None
        if spec is not None:
            spec.loader = _Refusal()
        return spec


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="a contributor's loop: no tests/unit/slow, no heavy library, fewer examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    is_fast = config.getoption("--fast")
    hypothesis.settings.load_profile("fast" if is_fast else "full")
    if is_fast:
        sys.meta_path.insert(0, _HeavyLibraries())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--fast") and collection_path == SLOW else None
