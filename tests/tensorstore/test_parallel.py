"""Work in several threads returns its results in order, and raises the first of its errors."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from tensortrial.parallel import in_threads


def test_results_come_in_the_order_of_the_items() -> None:
    met = threading.Barrier(3)

    def square(number: int) -> int:
        met.wait(30)
        return number * number

    assert in_threads(square, range(6), 3) == [0, 1, 4, 9, 16, 25]
    assert in_threads(abs, [], 2) == []
    assert in_threads(abs, [-1], 2) == [1]


def test_the_first_error_ends_the_work() -> None:
    met, done = threading.Barrier(2), list[int]()

    def work(number: int) -> None:
        if number < 2:
            met.wait(30)
            raise ValueError(f"item {number}")
        done.append(number)

    with pytest.raises(ValueError, match="item 0"):
        in_threads(work, range(1000), 2)
    assert not done


def test_an_error_keeps_no_result_alive() -> None:
    kept = list[weakref.ref[Result]]()

    def work(number: int) -> Result:
        if number:
            raise ValueError("the second item")
        result = Result()
        kept.append(weakref.ref(result))
        return result

    gc.disable()
    try:
        with pytest.raises(ValueError, match="second") as raised:
            in_threads(work, range(2), 2)
        del raised
        assert [each() for each in kept] == [None] * len(kept)
    finally:
        gc.enable()


class Result:
    """A result that a weak reference may name."""
