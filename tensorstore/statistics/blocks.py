"""The elements of an array in blocks that fit into the processor's cache, in their dtype and as floats."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .kernels import FLOAT32, Singles, can_convert, convert, numkong
from .sums import Floats

Array: TypeAlias = npt.NDArray[Any]

# A float32 block and its float64 one stay in a second-level cache of 1 MiB; the calls cost a tenth of the time.
BLOCK = 65536
SINGLES = 2 * BLOCK
"""The elements of a block of float32 that is not converted to float64."""


@functools.lru_cache(maxsize=256)
def nature(dtype: np.dtype[Any]) -> str:
    """Return "real", "complex" or "none" for a dtype. Dtypes of ml_dtypes are probed by a conversion."""
    if dtype.kind in "biuf":
        return "real"
    if dtype.kind == "c":
        return "complex"
    # ml_dtypes registers most of its kinds as V, which numpy uses for raw bytes and structures (numpy.void), or as W.
    kind: str = dtype.kind
    if kind not in "VW" or dtype.type is np.void:
        return "none"
    try:
        with np.errstate(all="ignore"):
            np.zeros(1, dtype).astype(np.complex128 if kind == "W" else np.float64)
    except (TypeError, ValueError):
        return "none"
    return "complex" if kind == "W" else "real"


def blocks(array: Array, size: int = BLOCK) -> Iterator[tuple[Array, Floats]]:
    """Yield all elements, in memory order, as one-dimensional blocks of at most `size`: unchanged, and as float64.

    A block is valid until the next one is requested. The first of the pair is for operations that a conversion would
    slow or change; it is the float64 block itself where numpy would be slower on the dtype.
    """
    flat = flattened(array)
    if flat is None:
        yield from _strided_blocks(array, size)
        return
    dtype = flat.dtype
    if dtype == np.float64:
        for start in range(0, flat.size, size):
            source = flat[start : start + size]
            yield source, source
        return
    native = dtype == np.float32  # numpy compares these as fast as it converts them
    values = _values(dtype)
    buffer = scratch_memory(0)
    for start in range(0, flat.size, size):
        source = flat[start : start + size]
        block = buffer[: source.size]
        if values is None:
            np.copyto(block, source, casting="unsafe")
        else:
            np.take(values, source.view(np.uint8), out=block, mode="clip")  # "raise" would buffer the result
        yield (source if native else block), block


@functools.lru_cache(maxsize=256)
def _values(dtype: np.dtype[Any]) -> Floats | None:
    """Return the value of each byte in a one-byte dtype that ml_dtypes converts slowly; None for other dtypes."""
    if dtype.itemsize != 1 or dtype.kind in "biu":
        return None
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)


def native_blocks(array: Array) -> Iterable[tuple[Array, Array]]:
    """Yield the blocks of `blocks`, but float32 without conversion."""
    flat = flattened(array) if array.dtype == FLOAT32 else None
    return blocks(array) if flat is None or not flat.flags.aligned else _pieces(flat, BLOCK)


def singles(array: Array) -> Array | None:
    """Return the elements, in one dimension, if numkong can reduce them as float32; else None."""
    dtype = array.dtype
    if numkong() is None or not (dtype == FLOAT32 or can_convert(dtype)):
        return None
    flat = flattened(array)
    return flat if flat is not None and flat.flags.aligned else None


def blocks_of_singles(flat: Array, size: int = SINGLES) -> Iterable[tuple[Array, Array]]:
    """Yield pairs of one block of float32, of at most `size` elements, as `blocks` does with float64."""
    if flat.dtype != FLOAT32 or not flat.flags.c_contiguous:
        return _converted(flat, size)
    return ((flat, flat),) if flat.size <= size else _pieces(flat, size)


def _pieces(flat: Array, size: int) -> Iterator[tuple[Array, Array]]:
    for start in range(0, flat.size, size):
        block = flat[start : start + size]
        yield block, block


def _converted(flat: Array, size: int) -> Iterator[tuple[Array, Array]]:
    package = numkong()
    buffer = scratch_singles(0)
    by_numkong = package is not None and flat.flags.c_contiguous and can_convert(flat.dtype)
    for start in range(0, flat.size, size):
        source = flat[start : start + size]
        block = buffer[: source.size]
        if package and by_numkong:
            convert(package, source, block)
        else:
            np.copyto(block, source, casting="unsafe")
        yield block[:], block  # a second block, because the first one may be overwritten


def scratch_memory(number: int) -> Floats:
    """Return one of the calling thread's three blocks of memory.

    They are reused, because the operating system clears the pages of new memory, which takes as long as all the rest.
    """
    memory: tuple[Floats, ...] | None = getattr(_of_thread, "memory", None)
    if memory is None:
        memory = _of_thread.memory = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
        _of_thread.singles = tuple(block.view(np.float32) for block in memory)
    return memory[number]


def scratch_singles(number: int) -> Singles:
    """Return the same memory as float32."""
    scratch_memory(number)
    memory: tuple[Singles, ...] = _of_thread.singles
    return memory[number]


_of_thread = threading.local()


def flattened(array: Array) -> Array | None:
    """Return a one-dimensional view of all elements in memory order; None if that needs a copy."""
    flags = array.flags
    if flags.c_contiguous:
        return array.reshape(-1)
    if flags.f_contiguous:
        return array.T.reshape(-1)
    return array if array.ndim == 1 else None


def _strided_blocks(array: Array, size: int) -> Iterator[tuple[Array, Floats]]:
    # numpy's own iterator finds the order of the strides, and converts a buffer's worth at a time.
    with np.nditer(
        [array],
        ["external_loop", "buffered"],
        [["readonly"]],
        op_dtypes=[np.float64],
        casting="unsafe",
        order="K",
        buffersize=size,
    ) as chunks:
        for chunk in chunks:
            block: Floats = np.asarray(chunk)
            yield block, block
