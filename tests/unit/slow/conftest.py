"""Unit tests that load torch, transformers, verl or Ray, start processes, or train models; `--fast` leaves them out."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Sums depend on the number of threads, so weights are equal only if it is fixed."""
    torch.set_num_threads(1)
