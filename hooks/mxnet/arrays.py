"""Conversion of MXNet's arrays to host arrays.

MXNet computes in the background: reading an array waits for its computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mxnet as mx
import numpy as np

from tensortrial.dtypes import Array, parse_dtype

# The numpy dtype of MXNet's bfloat16 arrays.
_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def arrays_in(value: Any, inside: tuple[int, ...] = ()) -> Iterator[Any]:
    """Yield the arrays in the inputs or outputs of a block, in their order.

    `inside` are the ids of the lists around `value`. One that contains itself is skipped.
    """
    if isinstance(value, mx.nd.NDArray):
        yield value
    elif isinstance(value, (tuple, list)) and id(value) not in inside:
        for each in value:
            yield from arrays_in(each, (*inside, id(value)))


def is_symbolic(value: Any, inside: tuple[int, ...] = ()) -> bool:
    """Return whether a block is called with symbols, by which MXNet finds its graph or its shapes."""
    if isinstance(value, (tuple, list)):
        return id(value) not in inside and any(is_symbolic(each, (*inside, id(value))) for each in value)
    return isinstance(value, mx.sym.Symbol)


def device_of(value: Any) -> Any:
    """Return the device of the first array in the inputs of a block; None without an array."""
    return next((array.context for array in arrays_in(value)), None)


def host_copy(array: Any) -> Array:
    """Return a copy of a dense or sparse array of any device as a host array."""
    values: Array = array.asnumpy()
    return values.view(parse_dtype("bfloat16")) if values.dtype == _BFLOAT16 else values


def weight_copy(array: Any) -> Array:
    """Return a host copy of an array that may be a weight.

    Its first prediction makes MXNet reorder a weight in memory. `asnumpy` does not wait for that, but a copy by MXNet's
    engine does. `detach` keeps the copy out of a recorded graph. MXNet cannot copy an empty array.
    """
    return host_copy(array.detach().copyto(mx.cpu()) if array.ndim > 1 and array.size else array)


def converted(value: Any) -> Array:
    """Return a user's value as an array. It may be an array of MXNet or numpy, a number, or lists of these."""
    if isinstance(value, mx.nd.NDArray):
        return weight_copy(value)
    if isinstance(value, (list, tuple)) and any(isinstance(each, mx.nd.NDArray) for each in value):
        return np.stack([converted(each) for each in value])
    return np.asarray(value)
