"""The digest of a raw value: 64 bits that change when any bit of the value, its dtype or its shape changes.

    digest = XXH3_64(header || L_0 || L_1 || ...)

L_i is XXH3_64 of the i-th leaf of the value's bytes, as 8 bytes, little-endian. A leaf has 16 KiB, the last one may
have less. These are the stored bytes: little-endian, in C order. The header is the dtype and the shape as
UTF-8 text, such as `float32[3,4]`. Leaves are independent of each other, so that a device can hash all of them at once.

XXH3 is not cryptographic: it detects accidents, not forgeries. A random change is missed once in 2^64 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from struct import pack
from typing import Any

import numpy as np
import xxhash

from ..dtypes import Array, dtype_name, storable, to_bytes

LEAF_BYTES = 16 << 10
LEAF_DTYPE = np.dtype("<u8")
_PASSING_BYTES = 32 * LEAF_BYTES
_LEAVES = [slice(begin, begin + LEAF_BYTES) for begin in range(0, _PASSING_BYTES, LEAF_BYTES)]

# Any, because mypy does not know in Python 3.11 that arrays are buffers.
_hash: Callable[[Any], int] = xxhash.xxh3_64_intdigest


@lru_cache(maxsize=1024)
def digest_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a digest: the stored name of the dtype and the shape."""
    return f"{dtype}[{','.join(map(str, shape))}]".encode()


def digest_of(data: bytes | bytearray | memoryview | Array, header: bytes) -> int:
    """Return the digest of a value.

    Args:
        data: The stored bytes, contiguous; an array must be of uint8, with one dimension.
        header: The value's `digest_header`.
    """
    nbytes = len(data)
    if nbytes <= LEAF_BYTES:  # as for most values of a run
        return _hash(header + _hash(data).to_bytes(8, "little")) if nbytes else _hash(header)
    view: Any = data
    leaves = _leaves(memoryview(view), 0, nbytes)
    return _hash(header + pack(f"<{len(leaves)}Q", *leaves))


def leaves_of(data: bytes | bytearray | memoryview | Array) -> Array:
    """Return the hashes of the leaves of a value, or of a piece of it that begins with a leaf: an array of LEAF_DTYPE.

    Args:
        data: The stored bytes, contiguous; an array must be of uint8, with one dimension.
    """
    view: Any = data
    return np.array(_leaves(memoryview(view), 0, len(data)), LEAF_DTYPE)


def _leaves(view: memoryview, begin: int, end: int) -> list[int]:
    """Return the hashes of the leaves that begin in a range of a value's bytes, which begins with a leaf."""
    leaves: list[int] = []
    for first in range(begin, end, _PASSING_BYTES):
        passing, count = view[first : first + _PASSING_BYTES], -(-(end - first) // LEAF_BYTES)
        leaves += map(_hash, map(passing.__getitem__, _LEAVES[:count]))
    return leaves


class PassingDigest:
    """The digest of a value that is computed while its bytes are written, so that they are read from memory once.

    Args:
        data: The stored bytes, contiguous.
        header: The value's `digest_header`.
        found: Receives the digest, after the last byte has passed.
    """

    def __init__(self, data: memoryview, header: bytes, found: list[int]) -> None:
        self._data, self._header, self._found = data, header, found
        self._leaves: list[int] = []

    def passing(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes from `begin` to `end` in pieces, each after the leaves that begin in it are hashed.

        The ranges of several calls must follow one another.
        """
        data, leaves = self._data, self._leaves
        for first in range(begin, end, _PASSING_BYTES):
            last = min(end, first + _PASSING_BYTES)
            leaves += _leaves(data, len(leaves) * LEAF_BYTES, last)
            yield data[first:last]
        if end == len(data):
            self._found.append(digest_of_leaves(np.array(leaves, LEAF_DTYPE), self._header))


def digest_of_array(array: Array) -> int:
    """Return the digest of an array's stored value, for any byte order and memory layout."""
    kept = storable(array)
    return digest_of(to_bytes(kept), digest_header(dtype_name(kept.dtype), kept.shape))


def digest_of_leaves(leaves: Array, header: bytes) -> int:
    """Return the digest of a value from the hashes of its leaves, an array of LEAF_DTYPE."""
    return _hash(header + leaves.tobytes())


def digests_of_rows(data: Array, header: bytes) -> list[int]:
    """Return the digests of values of one dtype and shape, whose bytes are the rows of `data`, (count, nbytes)."""
    if data.shape[1] > LEAF_BYTES or not data.shape[1]:
        return [digest_of(row.data, header) for row in data]
    return [_hash(header + _hash(row).to_bytes(8, "little")) for row in data]


def passing_page(
    page: memoryview, prefix: int, values: Iterable[tuple[int, bytes]], found: list[int]
) -> Iterator[memoryview]:
    """Yield consecutive values in pieces, each after the digests of its values were computed.

    Args:
        page: The values, each after a prefix.
        prefix: The size of the prefix in bytes.
        values: The sizes of the values in bytes, with their headers.
        found: Receives the digests.
    """
    begin = end = 0
    for size, header in values:
        first = end + prefix
        end = first + size
        if 0 < size <= LEAF_BYTES:  # like `digest_of`, but without a call for each value
            found.append(_hash(header + _hash(page[first:end]).to_bytes(8, "little")))
        else:
            found.append(digest_of(page[first:end], header))
        if end - begin >= _PASSING_BYTES // 2:
            yield page[begin:end]
            begin = end
    yield page[begin:end]
