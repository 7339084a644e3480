"""Gradients that are whole on every rank: reduced bucket by bucket, and halves compared without a full copy."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.influence.batches import buckets, flat, norm_and_agreement, rows_to_compute


@given(st.lists(st.integers(1, 40), max_size=20), st.integers(1, 100))
def test_buckets_are_all_tensors_in_their_order_within_the_bound(sizes: list[int], most: int):
    tensors = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    found = list(buckets(tensors, most))
    assert [id(tensor) for bucket in found for tensor in bucket] == [id(tensor) for tensor in tensors]
    for bucket in found:
        assert len(bucket) == 1 or sum(tensor.nbytes for tensor in bucket) <= most
    # No bucket has room for the first tensor of the next one.
    for bucket, after in itertools.pairwise(found):
        assert sum(tensor.nbytes for tensor in bucket) + after[0].nbytes > most


def test_norm_and_agreement_are_those_of_the_vectors():
    generator = torch.Generator().manual_seed(0)
    first = {name: torch.randn(shape, generator=generator) for name, shape in (("a", (3, 4)), ("b", (5,)))}
    second = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in first.items()}
    total = {name: first[name] + second[name] for name in first}
    norm, agreement = norm_and_agreement(total, first)
    assert norm == pytest.approx(float(flat(total).norm()), rel=1e-6)
    expected = torch.nn.functional.cosine_similarity(flat(first), flat(second), dim=0)
    assert agreement == pytest.approx(float(expected), abs=1e-6)


def test_one_half_alone_has_no_agreement():
    gradient = {"a": torch.ones(3)}
    norm, agreement = norm_and_agreement(gradient, gradient)
    assert norm == pytest.approx(math.sqrt(3))
    assert math.isnan(agreement)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12), st.data())
def test_rows_with_a_loss_are_computed_and_the_shortest_others(rows: list[tuple[int, bool]], data: st.DataObject):
    with_loss = [position for position, (_, has_loss) in enumerate(rows) if has_loss]
    count = data.draw(st.integers(len(with_loss), len(rows)))
    found = rows_to_compute(rows, count)
    assert found == sorted(set(found))
    assert len(found) == count
    assert set(with_loss) <= set(found)
    added, left = set(found) - set(with_loss), set(range(len(rows))) - set(found)
    assert all(rows[one][0] <= rows[other][0] for one in added for other in left)
