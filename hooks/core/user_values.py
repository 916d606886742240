"""The values that a caller passes to a hook, converted to what the run stores. They may be of any library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, UnsupportedValue, message_of, shown


def check_dictionary(values: Any, of: str) -> None:
    """Raise ConfigurationError unless a caller's argument is a dictionary `of` numbers or tensors."""
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"it takes a dictionary of {of} by their names, got {shown(values)}")


def array_of(value: Any, convert: Callable[[Any], Any] = np.asarray) -> Array:
    """Convert a user's value of a tensor to an array.

    Raises:
        UnsupportedValue: The value cannot be converted. Any error of its own library becomes this one, because the
            mistake is the caller's.
    """
    if value is None:
        raise UnsupportedValue("a tensor must be numbers, an array or a tensor, got None")
    try:
        if np.ma.is_masked(value):
            raise UnsupportedValue("a tensor has no mask, got a masked array: fill it, as by filled(numpy.nan)")
        return text_of(convert(value))
    except UnsupportedValue:
        raise
    except Exception as exc:
        raise UnsupportedValue(
            f"a tensor must be numbers, an array or a tensor, got a {type(value).__name__}: {message_of(exc)}"
        ) from exc


def text_of(array: Array) -> Array:
    """Return an array of bytes objects as fixed-width text; any other array unchanged.

    TensorFlow returns text as bytes objects.
    """
    if array.dtype != object or not all(isinstance(each, bytes) for each in array.ravel()):
        return array
    return np.array([each.decode(errors="replace") for each in array.ravel()], np.str_).reshape(array.shape)


def as_number(value: Any, errors_of_training: tuple[type[Exception], ...] = ()) -> float:
    """Return a number, or the number in an array or a tensor of one element.

    Raises:
        UnsupportedValue: The value is not a number. The `errors_of_training` are passed through.
    """
    if isinstance(value, Mapping):
        raise UnsupportedValue(
            f"a scalar must be a number, got the dictionary {shown(value)}; save its numbers under names of their own, "
            "such as 'eval/loss'"
        )
    try:
        # PyTorch and pandas warn of `float` of a tensor that requires a gradient, and of a Series. A masked one is NaN.
        return float(value.item() if hasattr(value, "item") and not isinstance(value, np.ma.MaskedArray) else value)
    except errors_of_training:
        raise
    except Exception as exc:  # whatever a foreign `__float__` raises
        raise UnsupportedValue(
            f"a scalar must be a number, got {shown(value)}: {message_of(exc)}; save_tensor saves arrays"
        ) from exc


def as_nanoseconds(timestamp: Any) -> int:
    """Return a time in seconds since 1970 in nanoseconds, as the index stores it.

    Raises:
        UnsupportedValue: It is not such a time.
    """
    try:
        found = int(timestamp * 1e9)
    except Exception as exc:  # as above
        raise UnsupportedValue(
            f"timestamp must be seconds since 1970, got {shown(timestamp)}: {message_of(exc)}"
        ) from exc
    if not 0 <= found < 1 << 63:
        raise UnsupportedValue(f"timestamp must be seconds since 1970, got {shown(timestamp)}")
    return found
