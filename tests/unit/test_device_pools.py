"""Devices of trainer and engines on the machines of a cluster."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from verl_ext.cluster.pools import DevicePool, first_without_room


def _fits(pools: list[DevicePool], devices: list[int]) -> bool:
    """Whether they fit, by trying every way to place them."""
    if not pools:
        return True
    first, *others = pools
    for places in permutations(range(len(devices)), first.nodes):
        left = [number - first.devices * (place in places) for place, number in enumerate(devices)]
        if min(left) >= 0 and _fits(others, left):
            return True
    return False


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=1),
    st.lists(st.integers(0, 8), min_size=3, max_size=3),
)
def test_one_pool_fits_where_any_way_to_place_it_does(sizes: list[tuple[int, int]], devices: list[int]):
    pools = [DevicePool("trainer", *size) for size in sizes]
    assert (first_without_room(pools, devices) is None) == _fits(pools, devices)


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.integers(0, 3), st.integers(1, 4)),
    st.lists(st.integers(0, 8), min_size=3, max_size=3),
)
def test_what_is_accepted_can_be_placed(trainer: tuple[int, int], rollout: tuple[int, int], devices: list[int]):
    pools = [DevicePool("trainer", *trainer), DevicePool("rollout", *rollout)]
    missing = first_without_room(pools, devices)
    if missing is None:
        assert _fits(pools, devices)
    elif len(set(devices)) == 1:  # with identical machines, nothing that fits is refused
        assert not _fits(pools, devices)


def test_the_pool_that_is_named_is_the_first_without_room():
    trainer, rollout = DevicePool("trainer", 1, 4), DevicePool("rollout", 1, 4)
    assert first_without_room([trainer, rollout], [8]) is None
    assert first_without_room([trainer, rollout], [4, 4]) is None
    assert first_without_room([trainer, rollout], [7]) is rollout
    assert first_without_room([trainer, rollout], [3]) is trainer
    assert first_without_room([trainer, DevicePool("rollout", 0, 4)], [4]) is None
