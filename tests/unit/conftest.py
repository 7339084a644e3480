"""Shared by the unit tests."""

import hypothesis
import pytest
import torch

# No assertion on time, neither hypothesis's own: a busy machine is not a fault of the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Sums depend on the number of threads: weights that are to be equal need it to be."""
    torch.set_num_threads(1)
