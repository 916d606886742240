"""Asynchronous copies of JAX arrays to the host.

An array is first copied on its own device, queued behind its computation, because a later jitted function that the
original is donated to deletes it. The transfer to the host runs during training, and the writer's thread waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from tensortrial.dtypes import Array, dtype_name
from tensortrial.errors import UnsupportedValue

from ..core.user_values import array_of

Bounds = tuple[tuple[int, int], ...]


class Part(NamedTuple):
    """The part of an array that this process holds, or one of several separate parts."""

    suffix: str
    """The text that is appended to the name of the array."""
    fetch: Callable[[], Array]
    """Waits for the values, and returns them."""
    nbytes: int


def parts_of(value: Any) -> Iterator[Part]:
    """Yield the parts of an array that this process holds.

    Args:
        value: An array of JAX, or a value that numpy can convert to an array.

    Yields:
        The whole array, if all its devices belong to this process or each has all of it. Otherwise the block that the
        shards of this process fill, or each of these shards, if they fill none.

    Raises:
        UnsupportedValue: It has no values, or none in this process, or its dtype cannot be stored.
    """
    if not isinstance(value, jax.Array):
        array = array_of(value)
        dtype_name(array.dtype)
        copy = array.copy()
        yield Part("", lambda: copy, copy.nbytes)
        return
    value = readable(value)
    if value.is_fully_addressable:
        yield _whole(value)
        return
    shards: dict[Bounds, jax.Array] = {}
    for shard in value.addressable_shards:
        # Replicas have equal bounds, and one of them is enough.
        shards.setdefault(_bounds(shard.index, value.shape), shard.data)
    yield from _assembled(shards, value.dtype)


def readable(array: Any) -> Any:
    """Return an array of JAX whose values can be read: for a random key, its data.

    Raises:
        UnsupportedValue: The values cannot be read.
    """
    if isinstance(array, jax.core.Tracer):
        raise traced()
    if array.is_deleted():
        raise UnsupportedValue(
            f"the array of shape {array.shape} has been deleted, because a jitted function to which it was donated "
            "(donate_argnums) has reused its memory; save it before that call, or save what the function returns"
        )
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(array)
    dtype_name(np.dtype(array.dtype))
    return array


def traced() -> UnsupportedValue:
    """Return the error for a value inside a function that JAX traces."""
    return UnsupportedValue(
        "it has no value yet, because the call is inside a function that JAX traces (jit, grad, scan, vmap); return it "
        "from the function and save it outside, or call hook.log_in_jit or hook.save_tree_in_jit there"
    )


def number_later(value: Any) -> Callable[[], float]:
    """Return a function that waits for the number in an array of one element, and returns it.

    Raises:
        UnsupportedValue: It is not a real number, or cannot be read.
    """
    part = _only_part(_real(value))
    return lambda: float(part.fetch().reshape(()))


def column_later(value: Any) -> tuple[int, Callable[[], Array]]:
    """Return the length of an array with one axis, and a function that waits for the array and returns it.

    Raises:
        UnsupportedValue: It has other axes, no real numbers, or cannot be read.
    """
    array = _real(value if isinstance(value, jax.Array) else array_of(value))
    if array.ndim != 1:
        raise UnsupportedValue(f"it must have one axis, that of the steps, got an array of shape {array.shape}")
    return array.shape[0], _only_part(array).fetch


def _real(array: Any) -> Any:
    is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    if is_key or array.dtype.kind in "cMmOSTU":
        raise UnsupportedValue(f"a scalar must be a real number, got an array of dtype {array.dtype}")
    return readable(array) if isinstance(array, jax.Array) else array


def _only_part(array: Any) -> Part:
    found = list(parts_of(array))
    if len(found) != 1:
        raise UnsupportedValue(f"this process holds {len(found)} separate shards of it; save it by save_tensor")
    return found[0]


def _whole(array: jax.Array) -> Part:
    copy = _copied(array)
    return Part("", lambda: np.asarray(copy), array.nbytes)


def _copied(array: jax.Array) -> jax.Array:
    # Older versions of `device_put` ignore a request to copy. `copy` is compiled once for each shape.
    copies = jax.__version_info__ >= (0, 10)
    copy: jax.Array = jax.device_put(array, array.sharding, may_alias=False) if copies else array.copy()
    copy.copy_to_host_async()
    return copy


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> Bounds:
    return tuple(each.indices(size)[:2] for each, size in zip(index, shape, strict=True))


def _assembled(shards: dict[Bounds, jax.Array], dtype: Any) -> Iterator[Part]:
    """Yield the block that the shards fill, or else each shard."""
    copies = {bounds: _copied(data) for bounds, data in shards.items()}
    origin = [min(begins) for begins in _by_axis(copies, 0)]
    shape = tuple(max(ends) - begin for ends, begin in zip(_by_axis(copies, 1), origin, strict=True))
    if math.prod(shape) == sum(copy.size for copy in copies.values()):
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        yield Part("", lambda: _joined(copies, origin, shape, dtype), nbytes)
        return
    for number, copy in enumerate(copies.values()):
        yield Part(f"/shard_{number}", lambda copy=copy: np.asarray(copy), copy.nbytes)  # type: ignore[misc]


def _by_axis(shards: dict[Bounds, Any], end: int) -> list[list[int]]:
    axes = zip(*shards, strict=True)
    return [[bounds[end] for bounds in axis] for axis in axes]


def _joined(shards: dict[Bounds, jax.Array], origin: list[int], shape: tuple[int, ...], dtype: Any) -> Array:
    block: Array = np.empty(shape, dtype)
    for bounds, data in shards.items():
        place = tuple(slice(begin - first, end - first) for (begin, end), first in zip(bounds, origin, strict=True))
        block[place] = np.asarray(data)
    return block
