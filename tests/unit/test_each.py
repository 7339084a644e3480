"""A test of a list names every entry that fails."""

import sys

import pytest
from each import check_each


def _is_even(number: int) -> None:
    assert number % 2 == 0, "an odd number"


def test_a_list_without_a_fault_passes():
    check_each([2, 4], _is_even)


def test_every_entry_that_fails_is_named_with_its_reason_and_place():
    with pytest.raises(pytest.fail.Exception) as caught:
        check_each([1, 2, 3, "four"], _is_even)
    message = str(caught.value)
    assert message.startswith("3 of 4 failed:")
    assert "--- 1 (test_each.py:" in message
    assert "AssertionError: an odd number" in message
    assert "--- 2 " not in message
    assert "--- 3 (" in message
    assert "--- four (" in message
    assert "TypeError" in message


def test_a_program_that_ends_is_a_fault_of_its_entry():
    with pytest.raises(pytest.fail.Exception, match=r"1 of 2 failed:\n--- 2 \(.*\)\nSystemExit: 2"):
        check_each([0, 2], lambda code: code and sys.exit(code))


def test_an_empty_list_is_a_fault():
    with pytest.raises(pytest.fail.Exception, match="the list is empty"):
        check_each([], _is_even)


def test_a_skip_stays_a_skip():
    def skip(_: int) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        check_each([1], skip)
