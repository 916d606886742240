"""What users give to be saved, as arrays. It may be anything, of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import UnsupportedValue


def array_of(value: Any, convert: Callable[[Any], Any] = np.asarray) -> Array:
    """An array of what a user passes for a tensor.

    Raises UnsupportedValue, whatever the value's own library raises: the value is the user's mistake.
    """
    if value is None:
        raise UnsupportedValue("None is not a tensor; pass numbers, an array or a tensor")
    try:
        return text_of(convert(value))
    except UnsupportedValue:
        raise
    except Exception as exc:
        raise UnsupportedValue(f"a {type(value).__name__} cannot be made an array: {exc}") from exc


def text_of(array: Array) -> Array:
    """Fixed-width text of an array of bytes, as TensorFlow gives what is text; any other array as it is."""
    if array.dtype != object or not all(isinstance(each, bytes) for each in array.ravel()):
        return array
    return np.array([each.decode(errors="replace") for each in array.ravel()], np.str_).reshape(array.shape)
