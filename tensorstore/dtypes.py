"""The stored form of numpy arrays: the name of a dtype, and little-endian bytes in C order."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from .errors import UnsupportedValue

Array = np.ndarray[Any, np.dtype[Any]]
IMAGE_CHANNELS = (1, 3, 4)
"""The numbers of channels of an image: gray, RGB, RGBA."""
_OTHER_COLORS = frozenset(("P", "PA", "LA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "LAB"))  # modes of PIL

# The dtypes of ml_dtypes, which numpy does not know by name. ml_dtypes is imported when one is read.
_EXTENDED = frozenset(
    (
        *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
        *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
        *("int2", "int4", "uint2", "uint4"),
    )
)


@lru_cache(maxsize=256)  # cached, because numpy creates the name at each call
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the stored name of a dtype.

    It is `float32`, `bfloat16`, `U12` (12 unicode characters), `datetime64[ns]` and so on; for a structured dtype it is
    a JSON list of its fields, each [name, dtype] or [name, dtype, shape].

    Raises:
        UnsupportedValue: The dtype holds Python objects.
    """
    if dtype.hasobject or dtype.kind == "T":
        raise UnsupportedValue(
            f"arrays of dtype {dtype} hold Python objects and cannot be stored; convert them to numbers or to "
            "fixed-width strings first, for example with .astype('U')"
        )
    if dtype.names is not None:
        return json.dumps(_description(dtype), separators=(",", ":"))
    if dtype.kind in "US" or (dtype.kind == "V" and dtype.name not in _EXTENDED):
        return dtype.str.lstrip("<>|=")
    return dtype.name


def _description(dtype: np.dtype[Any]) -> list[list[Any]]:
    described = []
    for name, field in _fields(dtype):
        kind = _description(field.base) if field.base.names is not None else dtype_name(field.base)
        described.append([name, kind, list(field.shape)] if field.shape else [name, kind])
    return described


def _fields(dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any]]]:
    assert dtype.fields is not None
    return [(name, dtype.fields[name][0]) for name in dtype.names or ()]


@lru_cache(maxsize=256)
def parse_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of a stored name, always little-endian. Raises UnsupportedValue for any other name."""
    try:
        if name in _EXTENDED:
            return np.dtype(getattr(import_module("ml_dtypes"), name))
        dtype = _described(json.loads(name)) if name.startswith("[") else np.dtype(name)
    except (AttributeError, TypeError, ValueError, SyntaxError, RecursionError) as exc:
        raise UnsupportedValue(f"{name!r} is not a dtype that this release or this machine knows") from exc
    if dtype.hasobject:
        raise UnsupportedValue(f"dtype {name!r} holds Python objects, which cannot be stored")
    return dtype.newbyteorder("<")


def _described(description: list[list[Any]]) -> np.dtype[Any]:
    fields = []
    for name, kind, *shape in description:
        field = _described(kind) if isinstance(kind, list) else parse_dtype(kind)
        fields.append((name, field, *(tuple(each) for each in shape)))
    return np.dtype(fields)


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which values are stored: little-endian, its fields without gaps or overlaps."""
    if dtype.names is None:
        return dtype.newbyteorder("<")
    return np.dtype([(name, _stored(field.base), field.shape) for name, field in _fields(dtype)])


def in_stored_dtype(array: Array) -> Array:
    """Return the values in their stored dtype; the array itself if it has that dtype."""
    if array.dtype.byteorder == ">" or array.dtype.names is not None:
        return array.astype(_stored(array.dtype), copy=False)
    return array


def storable(array: Array) -> Array:
    """Return the values as a C-contiguous, little-endian array; the array itself if it is one."""
    array = in_stored_dtype(array)
    # ascontiguousarray would make a 0-d array 1-d.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def to_bytes(array: Array) -> memoryview:
    """Return the stored bytes of a result of `storable`, without a copy."""
    if array.nbytes == 0:
        return memoryview(b"")
    return array.reshape(-1).view(np.uint8).data


def from_rows(data: Array, dtype: str, shape: tuple[int, ...]) -> list[Array]:
    """Return the arrays that were stored as the rows of `data`.

    Args:
        data: Bytes, (count, nbytes) of uint8. The arrays share its memory, and are writable if it is.
        dtype: The stored name of their dtype.
        shape: The shape of each array.

    Raises:
        ValueError: The dtype or the shape does not fit the bytes.
    """
    kind = parse_dtype(dtype)
    if len(data) == 1 or not shape or not kind.itemsize:
        return [from_bytes(row, dtype, shape) for row in data]
    arrays = list(data.view(kind).reshape(len(data), *shape))
    if arrays and arrays[0].shape != shape:  # reshape accepts -1
        raise ValueError(f"no shape is {shape}")
    return arrays


def from_bytes(data: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the array that was stored as `data`, contiguous bytes of uint8 with one dimension; see `from_rows`."""
    if -1 in shape:  # numpy divides by the size of an element, and ends the process if that is 0
        raise ValueError(f"no shape is {shape}")
    try:
        array: Array = np.ndarray(shape, parse_dtype(dtype), data)
    except TypeError as exc:
        raise ValueError(f"{exc}") from exc
    if array.nbytes != len(data):
        raise ValueError(f"{len(data)} bytes are not of {dtype} and shape {shape}")
    return array


def as_scalar(array: Array) -> float | None:
    """Return the only element of a numeric array as a float if that represents it exactly, else None."""
    if array.size != 1 or (array.dtype.kind in "cUSMmV" and array.dtype.name not in _EXTENDED):
        return None
    element = array.reshape(-1)[0]
    if array.dtype.kind in "iu":
        number = int(element)
        return float(number) if int(float(number)) == number else None
    value = float(element)
    # A long double may lose digits as a double.
    return value if value != value or array.dtype.type(value) == element else None


def to_numpys_own(array: Array) -> Array:
    """Return an array of a dtype that numpy lacks, such as bfloat16, as float32; any other array as it is."""
    # `kind` does not tell them apart: it is "V" as for a structured dtype, or "f" for float8_e5m2.
    return array.astype(np.float32) if array.dtype.name in _EXTENDED else array


def channels_last(array: Array) -> Array | None:
    """Return an image as height × width × channels; None if it has other axes.

    The channels are the last axis, or else the first one, if that has 1, 3 or 4 elements.
    """
    if array.ndim != 3 or not array.size:
        return None
    found = array if array.shape[-1] in IMAGE_CHANNELS else np.moveaxis(array, 0, -1)
    return found if found.shape[-1] in IMAGE_CHANNELS else None


def rgb(image: Any) -> Any:
    """Return an image of PIL whose mode is a palette or another color space in RGBA, and anything else as it is.

    Raises:
        UnsupportedValue: This release of PIL cannot convert the mode.
    """
    try:
        return image.convert("RGBA") if getattr(image, "mode", None) in _OTHER_COLORS else image
    except ValueError as exc:
        raise UnsupportedValue(f"an image of PIL must be gray, RGB or RGBA, got {image.mode}: {exc}") from exc


def as_image(array: Array) -> Array:
    """Return an image as height × width × channels in uint8. Floats from 0 to 1 become 0 to 255.

    Raises:
        UnsupportedValue: It is not an image.
    """
    image = channels_last(array[..., None] if array.ndim == 2 else array)
    if image is None:
        raise UnsupportedValue(
            f"an image must be height × width, or have 1, 3 or 4 channels as its last or first axis, got the shape "
            f"{list(array.shape)}"
        )
    if image.dtype == np.uint8:
        return image
    if not (image.dtype.kind in "bf" or image.dtype.name in _EXTENDED):
        raise UnsupportedValue(f"an image must be uint8 or floats from 0 to 1, got {image.dtype}; cast it to uint8")
    floats = image.astype(np.float64)
    levels = np.rint(floats * 255)  # checked after rounding, because arithmetic ends at 1.0000001 where it should at 1
    if not (levels.min() >= 0 and levels.max() <= 255):
        raise UnsupportedValue(f"the floats of an image must be from 0 to 1, got {floats.min():g} to {floats.max():g}")
    return levels.astype(np.uint8)
