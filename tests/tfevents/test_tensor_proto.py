"""Tensors as TensorFlow writes them, in each of its two ways."""

from __future__ import annotations

import contextlib
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.smdebug_runs import DTYPES, key, tensor_proto, text, varint
from tensortrial.tfevents.tensor_proto import tensor


def proto(code: int, shape: tuple[int, ...], elements: bytes) -> memoryview:
    dims = b"".join(text(2, key(1, 0) + varint(size)) for size in shape)
    return memoryview(key(1, 0) + varint(code) + text(2, dims) + elements)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (0, 4)], ids=str)
def test_every_dtype_comes_back(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = tensor(memoryview(tensor_proto(array)))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    assert found.flags.writeable


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_strings_come_back(strings: list[str]) -> None:
    assert tensor(memoryview(tensor_proto(np.array(strings)))).tolist() == strings


def test_strings_that_are_no_text_stay_bytes() -> None:
    assert tensor(memoryview(tensor_proto(np.array([b"\xff\xfe", b"a"])))).tolist() == [b"\xff\xfe", b"a"]


@pytest.mark.parametrize(
    ("code", "elements", "expected"),
    [
        (1, key(5, 5) + struct.pack("<f", 1.5) + key(5, 5) + struct.pack("<f", 2), np.array([1.5, 2], "f4")),
        (1, text(5, struct.pack("<2f", 1.5, 2)), np.array([1.5, 2], "f4")),
        (2, text(6, struct.pack("<2d", 1.5, 2)), np.array([1.5, 2])),
        (3, text(7, varint(-1) + varint(300)), np.array([-1, 300], "i4")),
        (3, key(7, 0) + varint(-1) + key(7, 0) + varint(5), np.array([-1, 5], "i4")),
        (6, text(7, varint(-128) + varint(127)), np.array([-128, 127], "i1")),
        (9, text(10, varint(-(2**63)) + varint(2**63 - 1)), np.array([-(2**63), 2**63 - 1])),
        (10, text(11, varint(1) + varint(0)), np.array([True, False])),
        (8, text(9, struct.pack("<4f", 1, 2, 3, 4)), np.array([1 + 2j, 3 + 4j], "c8")),
        (18, text(12, struct.pack("<4d", 1, 2, 3, 4)), np.array([1 + 2j, 3 + 4j])),
        (19, text(13, varint(0x3C00) + varint(0xC000)), np.array([1, -2], "f2")),
        (14, text(13, varint(0x3F80) + varint(0xC000)), np.array([1, -2], ml_dtypes.bfloat16)),
        (22, text(16, varint(2**32 - 1) + varint(0)), np.array([2**32 - 1, 0], "u4")),
        (23, text(17, varint(2**64 - 1) + varint(0)), np.array([2**64 - 1, 0], "u8")),
        (25, text(18, bytes([0x38, 0xC0])), np.array([1, -2], ml_dtypes.float8_e4m3fn)),
    ],
)
def test_elements_in_fields_of_their_own(code: int, elements: bytes, expected: np.ndarray) -> None:
    found = tensor(proto(code, (2,), elements))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_a_last_element_is_repeated() -> None:
    assert tensor(proto(3, (2, 2), text(7, varint(1) + varint(7)))).tolist() == [[1, 7], [7, 7]]
    assert tensor(proto(1, (2,), b"")).tolist() == [0, 0]


@pytest.mark.parametrize(
    "bad",
    [
        proto(20, (), b""),  # a resource
        proto(1, (3,), text(4, b"\0" * 8)),
        proto(1, (3,), text(4, b"\0" * 7)),
        proto(1, (-1,), b""),
        proto(1, (1 << 40, 1 << 40), b""),
        proto(1, (1,), text(5, struct.pack("<2f", 1, 2))),
        memoryview(b"\x0a"),
        memoryview(b"\xff" * 11),
        memoryview(b"\x0f\x00"),
        memoryview(b"\x12\x7f\x00"),
    ],
)
def test_what_is_no_tensor_is_a_value_error(bad: memoryview) -> None:
    with pytest.raises(ValueError):
        tensor(bad)


@given(st.binary(max_size=60))
def test_garbage_is_an_array_or_a_value_error(garbage: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(tensor(memoryview(garbage)), np.ndarray)
