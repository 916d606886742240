"""What is kept of remote files: the right bytes, and not too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensortrial.storage.tail_cache import TailCache


@given(st.binary(max_size=50), st.data())
def test_the_cache_returns_the_bytes_of_the_file(file: bytes, data: st.DataObject) -> None:
    cache = TailCache(max_bytes=60)
    assert cache.read("a", 0, 1) is None
    for _ in range(3):
        tail = data.draw(st.integers(0, len(file)))
        cache.keep("a", file[len(file) - tail :], len(file))
        cache.keep("b", b"x" * 20, 20)
        start, length = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 50))
        found = cache.read("a", start, length)
        if found is not None:
            assert found == file[start : start + length]
        assert cache.size("a") in (None, len(file))
    # The one used last is never forgotten.
    assert cache.read("b", 0, 20) == b"x" * 20


def test_the_cache_forgets_what_was_unused_longest() -> None:
    cache = TailCache(max_bytes=10)
    for name in "abc":
        cache.keep(name, bytes(4), 4)
        cache.read("a", 0, 4)
    assert [cache.size(name) for name in "abc"] == [4, None, 4]


def test_more_of_a_file_replaces_less() -> None:
    cache = TailCache()
    cache.keep("a", b"cd", 4)
    cache.keep("a", b"abcd", 4)
    cache.keep("a", b"d", 4)
    assert cache.read("a", 0, 4) == b"abcd"
    cache.keep("a", b"e", 5)  # another file of that name
    assert cache.read("a", 0, 5) is None
    assert cache.read("a", 4, 1) == b"e"
