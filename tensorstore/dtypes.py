"""Between numpy arrays and what is stored of them: the name of a dtype and little-endian bytes in C order."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from .errors import UnsupportedValue

Array = np.ndarray[Any, np.dtype[Any]]

# numpy knows these by class only, not by name.
_EXTENDED: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name in (
        "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
        "float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn int2 int4 uint2 uint4"
    ).split()
    if (kind := getattr(ml_dtypes, name, None)) is not None
}


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The stored name of a dtype: `float32`, `bfloat16`, `U12` (12 unicode characters), `datetime64[ns]`, or, for a
    structured dtype, its description as JSON. Raises UnsupportedValue for dtypes that hold Python objects."""
    if dtype.hasobject or dtype.kind == "T":
        raise UnsupportedValue(
            f"arrays of dtype {dtype} hold Python objects and cannot be stored; convert them to numbers or to "
            "fixed-width strings first, for example with .astype('U')"
        )
    if dtype.names is not None or dtype.subdtype is not None:
        return json.dumps(np.lib.format.dtype_to_descr(dtype.newbyteorder("<")))
    if dtype.kind in "US" or (dtype.kind == "V" and dtype.name not in _EXTENDED):
        return dtype.str.lstrip("<>|=")
    return dtype.name


@lru_cache(maxsize=256)
def parse_dtype(name: str) -> np.dtype[Any]:
    """The dtype of a stored name, always little-endian. Raises UnsupportedValue for a name that is not one."""
    if name in _EXTENDED:
        return _EXTENDED[name]
    try:
        dtype = np.dtype(_tuples(json.loads(name)) if name.startswith("[") else name)
    except (TypeError, ValueError, SyntaxError) as exc:
        raise UnsupportedValue(f"{name!r} is not a dtype that this release or this machine knows") from exc
    if dtype.hasobject:
        raise UnsupportedValue(f"dtype {name!r} would hold Python objects")
    return dtype.newbyteorder("<")


def _tuples(description: Any) -> Any:
    """JSON has lists only; numpy wants fields and shapes as tuples."""
    fields = []
    for name, kind, *shape in description:
        kind = _tuples(kind) if isinstance(kind, list) else kind
        fields.append((name, kind, *(tuple(s) for s in shape)))
    return fields


def storable(array: Array) -> Array:
    """The same values, C-contiguous and little-endian; the array itself when it is so already."""
    if array.dtype.byteorder == ">" or (array.dtype.names is not None and array.dtype.newbyteorder("<") != array.dtype):
        array = array.astype(array.dtype.newbyteorder("<"))
    # ascontiguousarray would make a 0-d array 1-d.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def to_bytes(array: Array) -> memoryview:
    """The stored bytes of an array that is `storable` already, without a copy."""
    if array.nbytes == 0:
        return memoryview(b"")
    return memoryview(array.reshape(-1).view(np.uint8))


def from_bytes(data: bytes | bytearray | memoryview, dtype: str, shape: tuple[int, ...]) -> Array:
    """The array that was stored as `data`. It shares the memory of `data` and is writable when that is."""
    return np.frombuffer(data, dtype=parse_dtype(dtype)).reshape(shape)


def as_scalar(array: Array) -> float | None:
    """The one element of a number array as a double, if the double holds it exactly; else None."""
    if array.size != 1 or array.dtype.kind in "cUSMmV" and array.dtype.name not in _EXTENDED:
        return None
    element = array.reshape(-1)[0]
    try:
        value = float(element)
    except OverflowError:
        return None
    if value != value:
        return value
    # An int of more than 53 bits, or a long double, does not survive the way through a double.
    return value if array.dtype.type(value) == element else None
