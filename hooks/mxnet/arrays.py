"""Between MXNet's arrays and host arrays. MXNet computes in the background: to read an array is to wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mxnet as mx
import numpy as np

from tensortrial.dtypes import Array, parse_dtype

from ..core.user_values import array_of

# What MXNet makes of bfloat16, which numpy does not have.
_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def arrays_in(value: Any, inside: tuple[int, ...] = ()) -> Iterator[Any]:
    """The arrays in what a block takes or gives, in their order. What is in itself, and so `inside` of what is being
    walked, is passed over."""
    if isinstance(value, mx.nd.NDArray):
        yield value
    elif isinstance(value, (tuple, list)) and id(value) not in inside:
        for each in value:
            yield from arrays_in(each, (*inside, id(value)))


def is_symbolic(value: Any, inside: tuple[int, ...] = ()) -> bool:
    """Whether a block is asked for its graph or its shapes instead of being run."""
    if isinstance(value, (tuple, list)):
        return id(value) not in inside and any(is_symbolic(each, (*inside, id(value))) for each in value)
    return isinstance(value, mx.sym.Symbol)


def device_of(value: Any) -> Any:
    """The device of the first array in what a block takes; None if it takes none."""
    return next((array.context for array in arrays_in(value)), None)


def host_copy(array: Any) -> Array:
    """A host array of its own with the values of a dense or sparse array on any device."""
    values: Array = array.asnumpy()
    return values.view(parse_dtype("bfloat16")) if values.dtype == _BFLOAT16 else values


def to_array(value: Any) -> Array:
    """An array of what a user passes for a tensor: an array of MXNet or numpy, numbers, or lists of them. Raises
    UnsupportedValue."""
    return array_of(value, _converted)


def _converted(value: Any) -> Array:
    if isinstance(value, mx.nd.NDArray):
        return host_copy(value)
    if isinstance(value, (list, tuple)) and any(isinstance(each, mx.nd.NDArray) for each in value):
        return np.stack([_converted(each) for each in value])
    return np.asarray(value)
