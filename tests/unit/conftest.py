"""Shared by the unit tests."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Sums depend on the number of threads: weights that are to be equal need it to be."""
    torch.set_num_threads(1)
