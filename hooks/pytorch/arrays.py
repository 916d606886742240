"""Conversions between torch tensors and host arrays."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch

from tensortrial.dtypes import Array, parse_dtype
from tensortrial.errors import UnsupportedValue, message_of

from ..core.user_values import array_of

# Dtypes that numpy lacks: their names, and a dtype of the same size for their bytes.
_EXTENDED = {torch.bfloat16: ("bfloat16", torch.int16)}
for _name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
    if hasattr(torch, _name):
        _EXTENDED[getattr(torch, _name)] = (_name, torch.uint8)

# The classes of most tensors. They are not checked for the attributes of a DTensor, because that takes longer than all
# the rest.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

Entered: TypeAlias = dict[int, list[Any]]
"""Containers by their ids, each as often as it was entered."""
_MOST_TIMES = 8
_LEAVES = frozenset({int, float, bool, str, bytes, type(None)})
"""The classes of values that have no members. A list may have a million of them."""


def tensors_in(
    value: Any, key: str | None = None, above: tuple[int, ...] = (), entered: Entered | None = None
) -> Iterator[tuple[str | None, torch.Tensor]]:
    """Yield the tensors in a module's inputs or outputs, with their keys.

    Args:
        value: A tensor, or a container of tensors and other containers. One that contains itself is entered once.
        key: The key of `value`. A tensor that is identified by its position has none.
        above: The ids of the containers that `value` is in.
        entered: The containers that were entered before.

    Raises:
        UnsupportedValue: A container cannot be read.
    """
    entered = {} if entered is None else entered
    if isinstance(value, torch.Tensor):
        yield key, value
    elif type(value) not in _LEAVES and id(value) not in above:
        members = _read(_members(value, key), value)
        for name, each in members if members and _enters(value, entered) else ():
            yield from tensors_in(each, name, (*above, id(value)), entered)


def _enters(value: Any, entered: Entered) -> bool:
    """Return whether to enter a container. The objects of a graph lead to one another in too many ways for all."""
    times = entered.setdefault(id(value), [])
    times.append(value)  # keeps it alive, so that no other one gets its id
    return len(times) <= _MOST_TIMES


def _members(value: Any, key: str | None) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield _joined(key, name), each
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield _joined(key, field.name), getattr(value, field.name, None)
    elif isinstance(value, SimpleNamespace):
        for name, each in vars(value).items():
            yield _joined(key, name), each
    elif isinstance(value, (tuple, list, deque)):
        for position, each in enumerate(value):
            # A number as a key would be taken for the position of another member.
            has_numbers = isinstance(each, dict) and any(str(name).isdecimal() for name in each)
            yield _joined(key, position) if has_numbers or key is not None else None, each


def hiding_in(value: Any, above: tuple[int, ...] = (), entered: Entered | None = None) -> Iterator[type[Any]]:
    """Yield the classes of objects whose tensors `tensors_in` does not find: sets, and objects with attributes."""
    entered = {} if entered is None else entered
    is_leaf = type(value) in _LEAVES or isinstance(value, (torch.Tensor, torch.nn.Module, type))
    if is_leaf or id(value) in above:
        return
    members = [each for _, each in _read(_members(value, None), value)]
    for each in members if members and _enters(value, entered) else ():
        yield from hiding_in(each, (*above, id(value)), entered)
    if not members and any(isinstance(each, torch.Tensor) for each in _read(_hidden(value), value)):
        yield type(value)


def _read(parts: Iterator[Any], value: Any) -> list[Any]:
    try:
        return list(parts)
    except Exception as exc:  # a user's object may raise anything when it is read
        raise UnsupportedValue(f"a {type(value).__name__} cannot be read: {message_of(exc)}") from exc


def is_nested(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is nested, without a call of its class, which may raise an error."""
    with torch._C.DisableTorchFunctionSubclass():
        return bool(tensor.is_nested)


def _hidden(value: Any) -> Iterator[Any]:
    if isinstance(value, (set, frozenset)):
        yield from value
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        for name in vars(kind).get("__slots__", ()):
            yield getattr(value, name, None)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this process holds: dense, dequantised, and detached from the graph.

    Raises:
        UnsupportedValue: The tensor has no values, or they cannot be read.
    """
    plain = type(tensor) in PLAIN
    try:
        if tensor.is_meta:
            raise UnsupportedValue("a tensor on the device meta has no values")
        # Unlike `detach`, `data` does not release the GIL, for which the writer's thread may be waiting.
        tensor = tensor.data if plain else tensor.detach()
        if not plain and hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
        elif tensor.is_quantized or (not plain and type(tensor).dequantize is not torch.Tensor.dequantize):
            tensor = tensor.dequantize()
        tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
        if not plain and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            tensor = tensor.clone()  # waits for the result of a collective operation
            if type(tensor) not in PLAIN:
                raise UnsupportedValue(f"a {type(tensor).__name__} cannot be read: its clone is no plain tensor")
        if type(tensor) in PLAIN and not tensor.untyped_storage().nbytes() and tensor.numel():
            raise UnsupportedValue("its memory is freed, as by code that moves parameters elsewhere between their uses")
        return tensor
    except UnsupportedValue:
        raise
    except Exception as exc:  # a subclass of Tensor may raise anything
        raise unsupported(tensor, exc) from exc


def nested_parts(name: str, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Return named tensors: the concatenated members of a nested tensor, and their lengths as `<name>_lengths`.

    The axis is the one in which the lengths differ, or the first if they are equal.

    Raises:
        UnsupportedValue: The members differ in several axes.
    """
    try:
        members = tensor.detach().unbind()
        shapes = [tuple(each.shape) for each in members]
        axes = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1] or [0]
        if len(axes) > 1:
            raise ValueError(f"its members differ in axes {axes}")
        lengths = torch.tensor([shape[axes[0]] for shape in shapes], device="cpu")
        return [(name, torch.cat(members, axes[0])), (f"{name}_lengths", lengths)]
    except Exception as exc:
        raise UnsupportedValue(f"a nested {tensor.dtype} tensor cannot be read: {message_of(exc)}") from exc


def host_copy(tensor: torch.Tensor) -> Array:
    """Return a copy of a dense tensor on any device, as an array.

    Raises:
        UnsupportedValue: The values cannot be read.
    """
    try:
        if not tensor.is_cpu:
            return as_numpy(tensor.cpu())
        # The copy is by torch: after `tensor.numpy()`, torch treats the training's memory as shared, and FSDP cannot
        # free it. A copy by numpy would be 1 us faster for a small tensor.
        return as_numpy(tensor.clone(memory_format=torch.contiguous_format))
    except Exception as exc:
        raise unsupported(tensor, exc) from exc


def host_dtype(tensor: torch.Tensor) -> str:
    """Return the name of the dtype that `host_copy` returns."""
    return as_numpy(torch.empty(0, dtype=tensor.dtype, device="cpu")).dtype.name


def to_array(value: Any) -> Array:
    """Return a user's value as an array, which may share its memory.

    Args:
        value: An array, a tensor, a number, or lists of them.

    Raises:
        UnsupportedValue: The value cannot be converted.
    """
    if isinstance(value, torch.Tensor):
        return host_copy(local_part(value))
    return array_of(value, _stacked)


def _stacked(value: Any) -> Array:
    if isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
        return np.stack([to_array(each) for each in value])
    return np.asarray(value)


def to_tensor(value: Any) -> torch.Tensor:
    """Return a user's value as a tensor: itself, or a new one on the host.

    Raises:
        UnsupportedValue: The value cannot be converted.
    """
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.as_tensor(value, device="cpu")
    except Exception as exc:  # a user's object may raise anything when it is read
        raise UnsupportedValue(
            f"a tensor must be numbers, an array or a tensor, got a {type(value).__name__}: {message_of(exc)}"
        ) from exc


def as_numpy(tensor: torch.Tensor) -> Array:
    """Return an array that shares the memory of a tensor, which must be dense and on the CPU."""
    extended = _EXTENDED.get(tensor.dtype)
    if extended is None:
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        return tensor.numpy()
    name, same_size = extended
    return tensor.contiguous().view(same_size).numpy().view(parse_dtype(name))


def unsupported(tensor: torch.Tensor, exc: Exception) -> UnsupportedValue:
    """Return the error for a tensor whose values cannot be read."""
    with torch._C.DisableTorchFunctionSubclass():
        kind = f"a {tensor.dtype} tensor of layout {tensor.layout} on {tensor.device}"
    return UnsupportedValue(f"{kind} cannot be read: {message_of(exc)}")


def _joined(key: str | None, name: object) -> str:
    return str(name) if key is None else f"{key}_{name}"
