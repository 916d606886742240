"""The digest changes with any bit of a value, its dtype and its shape, and never between releases."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tensortrial.dtypes import dtype_name, storable, to_bytes
from tensortrial.statistics.digest import (
    LEAF_BYTES,
    digest_header,
    digest_of,
    digest_of_array,
    digests_of_rows,
    passing_page,
)

SMALL = {
    "float32": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "float64": np.array([np.nan, -0.0, np.inf]),
    "float16": np.ones((1, 2), np.float16),
    "bfloat16": np.arange(3).astype(ml_dtypes.bfloat16),
    "float8": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
    "int4": np.arange(4).astype(ml_dtypes.int4),
    "int64": np.arange(2),
    "big-endian": np.arange(3, dtype=">i4"),
    "bool": np.array([True, False, True]),
    "complex": np.array([1 + 2j], np.complex64),
    "text": np.array(["a", "üb"]),
    "bytes": np.array([b"ab", b"c"]),
    "raw": np.zeros(2, "V3"),
    "time": np.array(["2026-01-01"], "datetime64[ns]"),
    "structure": np.zeros(2, [("a", np.float32), ("b", np.int16, (2,))]),
    "no dimension": np.array(1.5),
    "strided": np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2],
    "Fortran": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
}

# Of arrays in test_the_formula_never_changes.
PINNED = [0x7C22D8460C15545F, 0x5C0F1DE21F274E2F, 0x3FE5380C18088DA8, 0xFE936ED900086E7E, 0xC61674FCDB3E4783]


def header_of(array: Any) -> bytes:
    return digest_header(dtype_name(array.dtype), array.shape)


@pytest.mark.parametrize("array", SMALL.values(), ids=SMALL)
def test_every_bit_changes_the_digest(array: Any) -> None:
    kept = storable(array)
    data, header = bytes(to_bytes(kept)), header_of(kept)
    found = {digest_of(data, header)}
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        found.add(digest_of(changed, header))
    assert len(found) == 1 + 8 * len(data)


@pytest.mark.parametrize("nbytes", [LEAF_BYTES - 1, LEAF_BYTES, LEAF_BYTES + 1, 5 * LEAF_BYTES + 3])
def test_every_tenth_bit_of_a_value_with_leaves_changes_the_digest(nbytes: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
    header = digest_header("uint8", (nbytes,))
    found = {digest_of(data, header)}
    bits = [*range(0, 8 * nbytes, 997), 8 * nbytes - 1]
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
        found.add(digest_of(data, header))
        data[bit // 8] ^= 1 << bit % 8
    assert len(found) == 1 + len(bits)


def test_the_formula_never_changes() -> None:
    large = (np.arange(3 * LEAF_BYTES // 4 + 5) * 2654435761 % 2**32).astype("<u4")
    assert digest_of_array(np.arange(12, dtype=np.float32).reshape(3, 4)) == PINNED[0]
    assert digest_of_array(np.array(2.5)) == PINNED[1]
    assert digest_of_array(np.zeros((0, 3), np.int8)) == PINNED[2]
    assert digest_of_array(large) == PINNED[3]
    assert digest_of_array(np.ones(3, ml_dtypes.bfloat16)) == PINNED[4]


def test_the_formula_is_the_one_that_is_documented() -> None:
    array = np.arange(3 * LEAF_BYTES + 40, dtype=np.uint8).reshape(-1, 8)
    data = array.tobytes()
    leaves = [xxhash.xxh3_64_digest(data[at : at + 16384])[::-1] for at in range(0, len(data), 16384)]
    assert digest_of_array(array) == xxhash.xxh3_64_intdigest(b"uint8[6149,8]" + b"".join(leaves))


def test_values_with_the_same_bytes_have_other_digests_in_another_dtype_or_shape() -> None:
    array = np.zeros((2, 3), np.int32)
    alike = [array, array.T, array.ravel(), array[None], array.astype(np.float32), array.view(np.uint32), array[:0]]
    alike += [np.zeros((3, 0), np.int32), np.zeros((0,), np.int32), np.zeros((1, 23), "U1")[:, :0], np.zeros((), "V24")]
    assert len({digest_of_array(each) for each in alike}) == len(alike)


def test_the_order_of_values_changes_the_digest() -> None:
    array = np.arange(40_000.0)
    swapped = array.copy()
    swapped[[0, 30_000]] = swapped[[30_000, 0]]
    negated = array.copy()
    negated[[5, 6]] *= -1  # two flips of the same bit
    square = array.reshape(200, 200)
    digests = {digest_of_array(each) for each in (array, swapped, negated, array[::-1], square, square.T)}
    assert len(digests) == 6


@given(st.binary(max_size=300), st.integers(1, 4))
def test_values_in_memory_of_any_layout_have_the_digest_of_their_stored_bytes(data: bytes, step: int) -> None:
    array = np.frombuffer(data, np.uint8)[::step]
    expected = digest_of(array.tobytes(), header_of(array))
    assert digest_of_array(array) == expected
    wide = array.astype(np.int32)
    assert digest_of_array(wide.astype(">i4")) == digest_of_array(wide)


@pytest.mark.parametrize("nbytes", [0, 5, LEAF_BYTES, LEAF_BYTES + 1, 900_000])
def test_many_values_have_the_digests_of_each(nbytes: int) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (3, nbytes + 4), np.uint8)
    header = digest_header("uint8", (nbytes,))
    expected = [digest_of(row[4:].tobytes(), header) for row in rows]
    assert digests_of_rows(rows[:, 4:], header) == expected
    found = list[int]()
    pieces = passing_page(rows.reshape(-1).data, 4, [(nbytes, header)] * 3, found)
    assert (b"".join(pieces), found) == (rows.tobytes(), expected)
