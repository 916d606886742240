"""Copies of tensors come back, whatever torch says of the mode in which they were made."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensortrial.errors import UnsupportedValue
from tensortrial.hooks.pytorch.buffer_pool import TorchCopies

LARGE = 3 << 20


@pytest.mark.parametrize("size", [1, 1000, LARGE // 4])
def test_what_came_back_is_used_again(size: int) -> None:
    copies = TorchCopies()
    first, other = copies.copy(torch.zeros(size)), copies.copy(torch.ones(size))
    assert not np.shares_memory(first.array, other.array)
    first.release(first.array)
    again = copies.copy(torch.full((size,), 7.0))
    assert np.shares_memory(first.array, again.array)
    assert (again.array == 7.0).all()
    assert (other.array == 1).all()


def test_copies_of_any_size_lie_apart() -> None:
    copies = TorchCopies()
    tensors = [torch.full((size,), float(size)) for size in (1, 3, 100_000, 500_000, 500_000, 17, 600_000)]
    found = [copies.copy(tensor) for tensor in tensors]
    assert all((copy.array == tensor.numpy()).all() for copy, tensor in zip(found, tensors, strict=True))


def test_no_more_is_kept_than_the_limit() -> None:
    copies = TorchCopies(limit=2 * LARGE)
    for copy in [copies.copy(torch.zeros(LARGE // 4)) for _ in range(5)]:
        copy.release(copy.array)
        assert copies._free_bytes <= 2 * LARGE
    assert copies._free_bytes == 2 * LARGE, "what is there already stays"
    other = copies.copy(torch.zeros(LARGE // 8))
    other.release(other.array)
    assert copies._free_bytes == LARGE // 2, "shapes that may not come any more make room"
    huge = copies.copy(torch.zeros(LARGE))
    huge.release(huge.array)
    assert copies._free_bytes <= 2 * LARGE


def test_inference_mode_leaves_no_trace() -> None:
    copies = TorchCopies()
    with torch.inference_mode():
        inside = copies.copy(torch.ones(10))
    inside.release(inside.array)
    outside = copies.copy(torch.zeros(10))
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
def test_any_layout_and_dtype(tensor: torch.Tensor) -> None:
    array = TorchCopies().copy(tensor).array
    assert array.flags.c_contiguous
    assert array.shape == tensor.shape
    assert array.tolist() == tensor.tolist()


def test_what_numpy_has_no_numbers_for_is_refused() -> None:
    with pytest.raises(UnsupportedValue, match="cannot be read"):
        TorchCopies().copy(torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
