"""Messages that are written come back."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortrial.tfevents.wire import (
    bytes_field,
    double_field,
    doubles_field,
    fields,
    float_field,
    message,
    number,
    signed,
    varint_field,
)

NUMBERS = st.integers(1, 1 << 20)


@given(NUMBERS, st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number(field: int, value: int) -> None:
    ((found, read),) = fields(memoryview(varint_field(field, value)))
    assert (found, signed(number(read))) == (field, value)


@given(st.lists(st.tuples(NUMBERS, st.binary(max_size=300))))
def test_bytes_one_field_after_the_other(contents: list[tuple[int, bytes]]) -> None:
    written = b"".join(bytes_field(field, content) for field, content in contents)
    assert [(field, bytes(message(value))) for field, value in fields(memoryview(written))] == contents


@given(NUMBERS, st.floats(), st.floats(width=32), st.lists(st.floats()))
def test_floats(field: int, double: float, single: float, many: list[float]) -> None:
    written = double_field(field, double) + float_field(field, single) + doubles_field(field, many)
    (_, one), (_, two), (_, three) = fields(memoryview(written))
    assert bytes(message(one)) == struct.pack("<d", double)
    assert bytes(message(two)) == struct.pack("<f", single)
    assert bytes(message(three)) == struct.pack(f"<{len(many)}d", *many)


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_what_single_precision_cannot_hold_is_an_infinity(value: float) -> None:
    ((_, read),) = fields(memoryview(float_field(2, value)))
    (found,) = struct.unpack("<f", message(read))
    assert found == math.copysign(math.inf, value)
