"""The pool of buffers for copies of torch tensors."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch

from tensortrial.errors import UnsupportedValue
from tensortrial.hooks.pytorch.buffer_pool import BufferPool

LARGE = 3 << 20


@pytest.mark.parametrize("size", [1, 1000, LARGE // 4])
def test_a_released_buffer_is_used_again(size: int) -> None:
    pool = BufferPool()
    first, other = pool.acquire(torch.zeros(size)), pool.acquire(torch.ones(size))
    assert not np.shares_memory(first.array, other.array)
    first.release(first.array)
    again = pool.acquire(torch.full((size,), 7.0))
    assert np.shares_memory(first.array, again.array)
    assert (again.array == 7.0).all()
    assert (other.array == 1).all()


def test_buffers_of_any_size_do_not_overlap() -> None:
    pool = BufferPool()
    tensors = [torch.full((size,), float(size)) for size in (1, 3, 100_000, 500_000, 500_000, 17, 600_000)]
    found = [pool.acquire(tensor) for tensor in tensors]
    assert all((buffer.array == tensor.numpy()).all() for buffer, tensor in zip(found, tensors, strict=True))


def test_released_buffers_keep_no_more_bytes_than_the_limit() -> None:
    pool = BufferPool(limit=2 * LARGE)
    buffers = [pool.acquire(torch.zeros(LARGE // 4)) for _ in range(5)]
    arrays = [weakref.ref(buffer.array) for buffer in buffers]
    while buffers:
        buffer = buffers.pop()
        buffer.release(buffer.array)
    del buffer
    assert sum(array() is not None for array in arrays) == 2, "two buffers of this shape are kept"
    other = pool.acquire(torch.zeros(LARGE // 8))
    other.release(other.array)
    assert not any(array() is not None for array in arrays), "buffers of other shapes are freed"
    huge = pool.acquire(torch.zeros(LARGE))
    huge.release(huge.array)
    array = weakref.ref(huge.array)
    del huge
    assert array() is None, "a buffer that is larger than the limit is freed"


def test_a_buffer_made_in_inference_mode_serves_outside_of_it() -> None:
    pool = BufferPool()
    with torch.inference_mode():
        inside = pool.acquire(torch.ones(10))
    inside.release(inside.array)
    outside = pool.acquire(torch.zeros(10))
    assert outside.array is inside.array
    assert not outside.array.any()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).view(3, 4).T,
        torch.arange(6).to(torch.bfloat16),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
        torch.tensor([True, False]),
        torch.tensor(3, dtype=torch.int64),
        torch.arange(4.0).expand(3, 4),
    ],
)
def test_a_buffer_holds_a_tensor_of_any_layout_and_dtype(tensor: torch.Tensor) -> None:
    array = BufferPool().acquire(tensor).array
    assert array.flags.c_contiguous
    assert array.shape == tensor.shape
    assert array.tolist() == tensor.tolist()


def test_a_dtype_that_numpy_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedValue, match="cannot be read"):
        BufferPool().acquire(torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
