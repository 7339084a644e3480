"""Influence scores on a CUDA device: exact under FSDP2 with packed bfloat16 rows, and at the size of Qwen2.5-1.5B.

How long they take is measured by tests/benchmarks/tracin_overhead.py --device cuda.
"""

from pathlib import Path

import pytest
from gpu_cases import influence_at_size, sharded_scores


@pytest.mark.parametrize("checkpointing", [False, True])
def test_scores_under_fsdp2_are_those_of_autograd_and_change_nothing(tmp_path: Path, checkpointing: bool):
    found = sharded_scores("cuda", tmp_path, checkpointing)
    assert found.error < 0.05  # bfloat16 against float32
    assert found.identity_error < 1e-2
    assert found.is_undisturbed


def test_at_1_5b_scores_are_exact_and_memory_does_not_grow_with_the_samples():
    errors, peaks = influence_at_size("cuda", "1.5B", seq_len=1024)
    assert errors["scoring"] < 0.05
    assert errors["one_pass"] < 0.05
    assert peaks["scoring"][32] <= 1.02 * peaks["scoring"][8]
    assert peaks["scoring"][32] <= 1.05 * peaks["plain"][32]
    assert peaks["one_pass"][32] <= 1.05 * peaks["one_pass"][8]
