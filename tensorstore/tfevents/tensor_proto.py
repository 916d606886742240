"""TensorFlow's TensorProto: a tensor as a message.

The elements are in `tensor_content`, little-endian, or in the repeated field of their type, where the last element is
repeated until the tensor is full.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from ..dtypes import Array
from .wire import Value, fields, message, number, signed, varints

_STRING = 7
# The dtypes by TensorFlow's DataType. A quantized integer is kept as an integer.
_KINDS = {
    **dict.fromkeys((6, 11), "i1"),
    **dict.fromkeys((4, 12), "u1"),
    **dict.fromkeys((5, 15), "i2"),
    **dict.fromkeys((16, 17), "u2"),
    **dict.fromkeys((3, 13), "i4"),
    **dict(zip((22, 9, 23, 10), ("u4", "i8", "u8", "?"), strict=True)),
    **dict(zip((19, 1, 2, 8, 18), ("f2", "f4", "f8", "c8", "c16"), strict=True)),
    **dict(zip((14, 24, 25), (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn), strict=True)),
}
_DTYPES: dict[int, np.dtype[np.generic]] = {code: np.dtype(kind) for code, kind in _KINDS.items()}
_HALVES = {14, 19}
_FLOATS = {5: "<f4", 6: "<f8", 9: "<c8", 12: "<c16"}
_INTEGERS = {7, 10, 11, 13, 16, 17}
_STRINGS, _BYTES = 8, 18
_MOST_FILLED = 1 << 24
"""The most elements that a repeated last element may fill, so that a few forged bytes cannot use all memory."""


def tensor(proto: memoryview) -> Array:
    """Return a new array. Raises ValueError for an invalid message or an unsupported dtype."""
    dtype, content = 0, None
    shape: tuple[int, ...] = ()
    elements: list[tuple[int, Value]] = []
    for field, value in fields(proto):
        if field == 1:
            dtype = number(value)
        elif field == 2:
            shape = _shape(message(value))
        elif field == 4:
            content = message(value)
        elif field in _FLOATS or field in _INTEGERS or field in (_STRINGS, _BYTES):
            elements.append((field, value))
    # smdebug leaves the dtype of strings out.
    if dtype == _STRING or (not dtype and elements and elements[0][0] == _STRINGS):
        return _filled(_strings([message(value) for _, value in elements]), shape)
    if dtype not in _DTYPES:
        raise ValueError(f"a tensor of TensorFlow's dtype {dtype}, which cannot be kept")
    kind = _DTYPES[dtype]
    if content is not None:
        return np.frombuffer(content, kind.newbyteorder("<")).reshape(shape).copy()
    return _filled(_elements(elements, kind, dtype in _HALVES), shape)


def _shape(proto: memoryview) -> tuple[int, ...]:
    sizes = []
    for field, value in fields(proto):
        if field == 2:
            sizes.append(next((signed(number(size)) for key, size in fields(message(value)) if key == 1), 0))
        elif field == 3 and value:
            raise ValueError("a tensor of unknown rank")
    if any(size < 0 for size in sizes):
        raise ValueError(f"a tensor of unknown shape {sizes}")
    return tuple(sizes)


def _elements(elements: list[tuple[int, Value]], kind: np.dtype[np.generic], are_bits: bool) -> Array:
    parts = [_part(field, value) for field, value in elements]
    if not parts:
        return np.zeros(0, kind)
    found = np.concatenate(parts)
    if are_bits:
        return found.astype(np.uint16).view(kind)
    if elements[0][0] == _BYTES:
        return found.view(kind)
    return found.astype(kind)


def _part(field: int, value: Value) -> Array:
    if isinstance(value, int):
        return np.array([value], np.uint64)
    if field in _FLOATS:
        return np.frombuffer(value, _FLOATS[field])
    if field == _BYTES:
        return np.frombuffer(value, np.uint8)
    return np.fromiter(varints(value), np.uint64)


def _strings(values: list[memoryview]) -> Array:
    texts = [bytes(value) for value in values]
    try:
        return np.array([text.decode() for text in texts], np.str_)
    except UnicodeDecodeError:
        return np.array(texts, np.bytes_)


def _filled(elements: Array, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    if len(elements) > size or size > max(len(elements), _MOST_FILLED):
        raise ValueError(f"a tensor of shape {shape} with {len(elements)} elements")
    if len(elements) < size:
        # TensorFlow writes zeros without any element.
        last = elements[-1:] if len(elements) else np.zeros(1, elements.dtype)
        elements = np.concatenate([elements, np.broadcast_to(last, size - len(elements))])
    return elements.reshape(shape)
