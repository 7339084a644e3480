"""Earliest deadline first: what a batch must take is exactly what leaves room for the rest in later ones."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.deadlines import Deadlines


def _can_be_trained_in_time(live: dict[int, int], deadlines: Deadlines, batch: int = 0) -> bool:
    """By trying every composition of every batch from the given one on; a batch's number determines its version."""
    left, size = deadlines.batches_left, deadlines.batch_size
    version = deadlines.version + (0 if batch < left else 1 + (batch - left) // deadlines.batches_per_version)
    live = {v: number for v, number in live.items() if number}
    if not live:
        return True
    if min(live) + deadlines.max_staleness < version:
        return False
    return any(
        _can_be_trained_in_time({v: live[v] - x for v, x in zip(live, taken, strict=True)}, deadlines, batch + 1)
        for taken in product(*(range(number + 1) for number in live.values()))
        if sum(taken) == min(size, sum(live.values()))
    )


@settings(max_examples=150, deadline=None)
@given(
    deadlines=st.builds(
        Deadlines, st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.just(5), st.integers(0, 2)
    ),
    data=st.data(),
)
def test_a_batch_leaves_room_for_the_rest_if_and_only_if_it_has_what_is_required(deadlines: Deadlines, data):
    versions = range(5 - deadlines.max_staleness, 6)
    live = {version: data.draw(st.integers(0, 3)) for version in versions}
    if not _can_be_trained_in_time(live, deadlines):
        return
    required = deadlines.required(live)
    for taken in product(*(range(number + 1) for number in live.values())):
        if sum(taken) != min(deadlines.batch_size, sum(live.values())):
            continue
        batch = dict(zip(live, taken, strict=True))
        has_it = all(sum(batch[u] for u in live if u <= v) >= number for v, number in required.items())
        rest = {v: live[v] - batch[v] for v in live}
        assert has_it == _can_be_trained_in_time(rest, deadlines, batch=1)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3))
def test_what_has_room_can_be_trained_on_in_time_and_no_more(size: int, per_version: int, left: int, staleness: int):
    left = min(left, per_version)
    deadlines = Deadlines(size, per_version, left, 0, staleness)
    capacity = deadlines.capacity
    assert capacity == size * (left + per_version * staleness)
    if 0 < capacity <= 6:
        assert _can_be_trained_in_time({0: capacity}, deadlines)
        assert not _can_be_trained_in_time({0: capacity + 1}, deadlines)


def test_what_cannot_be_trained_on_in_time_is_not_waited_for():
    assert Deadlines(4, 1, 1, 7, 1).required({6: 9, 7: 2}) == {6: 4, 7: 4}


def test_a_share_of_what_is_open_counts_once_it_is_the_last_chance():
    deadlines = Deadlines(4, 1, 1, 7, 1)
    assert deadlines.required({6: 0.3}) == {6: 1}
    assert deadlines.required({7: 4.3}) == {7: 1}
    assert deadlines.required({7: 4.0}) == {7: 0}
    assert deadlines.required({7: 0.1 * 3 * 10 + 1}) == {7: 0}  # 4.000000000000001
