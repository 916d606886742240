"""Between torch's tensors and host arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from tensortrial.dtypes import Array, parse_dtype
from tensortrial.errors import UnsupportedValue

# numpy has no such numbers of its own: by name, and as what their bytes travel.
_EXTENDED = {torch.bfloat16: ("bfloat16", torch.int16)}
for _name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
    if hasattr(torch, _name):
        _EXTENDED[getattr(torch, _name)] = (_name, torch.uint8)

# Not even asked for what a DTensor has: most tensors are these, and the question takes longer than all else here.
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def tensors_in(
    value: Any, key: str | None = None, above: tuple[int, ...] = ()
) -> Iterator[tuple[str | None, torch.Tensor]]:
    """The tensors in what a module takes or gives, with their keys; those by position have none. What contains itself
    is entered once: `above` are the ids of the containers that this one is in."""
    if isinstance(value, torch.Tensor):
        yield key, value
    elif id(value) not in above:
        for name, each in _members(value, key):
            yield from tensors_in(each, name, (*above, id(value)))


def _members(value: Any, key: str | None) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield _joined(key, name), each
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield _joined(key, field.name), getattr(value, field.name, None)
    elif isinstance(value, (tuple, list)):
        for position, each in enumerate(value):
            yield None if key is None else _joined(key, position), each


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of a tensor, dense, as it is computed with, and without history. Raises
    UnsupportedValue."""
    plain = type(tensor) in _PLAIN
    if tensor.is_meta:
        raise UnsupportedValue("a tensor on the device meta has no values")
    try:
        tensor = tensor.detach()
        if not plain and hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
        elif tensor.is_quantized or (not plain and _dequantizes(type(tensor))):
            tensor = tensor.dequantize()
        return tensor if tensor.layout is torch.strided else tensor.to_dense()
    except Exception as exc:  # a class of its own may raise anything
        raise unsupported(tensor, exc) from exc


def _dequantizes(kind: type[torch.Tensor]) -> bool:
    return kind.dequantize is not torch.Tensor.dequantize


def values_and_lengths(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The members of a nested tensor, one after another along the axis in which they differ (the first if they do not),
    and their lengths there. Raises UnsupportedValue for what differs in several axes."""
    try:
        members = tensor.detach().unbind()
        shapes = [tuple(each.shape) for each in members]
        axes = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1] or [0]
        if len(axes) > 1:
            raise ValueError(f"its members differ in axes {axes}")
        lengths = torch.tensor([shape[axes[0]] for shape in shapes], device="cpu")
        return torch.cat(members, axes[0]), lengths
    except Exception as exc:
        raise UnsupportedValue(f"a nested {tensor.dtype} tensor cannot be read: {exc}") from exc


def host_copy(tensor: torch.Tensor) -> Array:
    """An array of its own with the values of a dense tensor on any device. Raises UnsupportedValue."""
    try:
        if not tensor.is_cpu:
            return as_numpy(tensor.cpu())
        # Of the training's own tensor no array may be made, not even to copy from: torch would take the memory for
        # shared from then on, and FSDP could not free it (1 us a call that numpy's copy of a small tensor saves).
        return as_numpy(tensor.clone(memory_format=torch.contiguous_format))
    except Exception as exc:
        raise unsupported(tensor, exc) from exc


def host_dtype(tensor: torch.Tensor) -> str:
    """The name of the dtype that `host_copy` would have."""
    return as_numpy(torch.empty(0, dtype=tensor.dtype, device="cpu")).dtype.name


def to_array(value: Any) -> Array:
    """An array of what a user passes for a tensor: an array, a tensor, numbers, or lists of them. It may share memory
    with what was passed. Raises UnsupportedValue."""
    if isinstance(value, torch.Tensor):
        return host_copy(local_part(value))
    try:
        if isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
            return np.stack([to_array(each) for each in value])
        return np.asarray(value)
    except UnsupportedValue:
        raise
    except Exception as exc:  # as above
        raise UnsupportedValue(f"a {type(value).__name__} cannot be made an array: {exc}") from exc


def to_tensor(value: Any) -> torch.Tensor:
    """A tensor of what a user passes for one, on the host if it is none yet. Raises UnsupportedValue."""
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.as_tensor(value, device="cpu")
    except Exception as exc:  # what a foreign object does when it is read may raise anything
        raise UnsupportedValue(f"a {type(value).__name__} cannot be made a tensor: {exc}") from exc


def as_numpy(tensor: torch.Tensor) -> Array:
    """The same memory as an array. The tensor is dense and on the CPU."""
    extended = _EXTENDED.get(tensor.dtype)
    if extended is None:
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        array: Array = tensor.numpy()
        return array
    name, same_size = extended
    return tensor.contiguous().view(same_size).numpy().view(parse_dtype(name))


def unsupported(tensor: torch.Tensor, exc: Exception) -> UnsupportedValue:
    """What to raise for a tensor whose values cannot be had."""
    return UnsupportedValue(
        f"a {tensor.dtype} tensor of layout {tensor.layout} on {tensor.device} cannot be read: {exc}"
    )


def _joined(key: str | None, name: object) -> str:
    return str(name) if key is None else f"{key}_{name}"
