"""The statistics of torch tensors, computed on the tensors' device.

Nothing here waits for the device: no value is read back and no branch depends on one, so the calls queue up behind the
training's kernels, and the results are copied to the host later. Tensors of one size and dtype are stacked and reduced
together: on a GPU, a few dozen launches replace a thousand for a model's many small tensors. Everything is computed in
float64, a part of a large tensor at a time, so that temporary memory stays under 0.5 GiB (only median copies and sorts
a whole tensor). On MPS, which lacks float64, everything is float32, including the result, with l2 scaled so that
intermediate results cannot overflow.

The formulas are those of `tensortrial.statistics.definitions`. Only the product differs from numpy's: it is
2^sum(log2|x|), with the sign by the number of negative factors. Intermediate results cannot overflow or vanish. It is
exact to about 1e-12 in float64, 1e-4 in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch

from tensortrial.statistics.definitions import (
    COMPLEX_STATISTICS,
    COUNTS,
    DEGREES,
    FORMULAS,
    STATISTICS,
    parse_statistic,
    quantities_of,
)
from tensortrial.statistics.limits import NO_LIMITS, Limits

__all__ = ["device_statistics", "device_statistics_by_axis"]

Tensor: TypeAlias = torch.Tensor
Sums: TypeAlias = dict[str, Tensor]

# The elements that are converted to float64 at once: 128 MiB, and again as much for a magnitude or a logarithm.
_CHUNK = 1 << 24

# The sums that each quantity is computed from; a missing one is a sum itself. `logs` is sum(log2|x|).
_MADE_FROM = {
    "spread": ("total", "spread"),
    "abs_spread": ("magnitude", "abs_spread"),
    "third": ("total", "spread", "third"),
    "fourth": ("total", "spread", "third", "fourth"),
    "product": ("logs", "negatives"),
}


@torch.no_grad()
def device_statistics(tensors: Sequence[Tensor], names: Iterable[str]) -> Tensor:
    """Return a row of statistics for each tensor: shape (len(tensors), len(names)), on the tensors' device.

    The result is float64, on MPS float32. Undefined statistics are NaN: most statistics of an empty tensor, the order
    statistics of complex numbers, and all of a bit-packed or quantised dtype.

    Args:
        tensors: Dense, of any shape and dtype, on one device.
        names: Statistics, as `parse_statistic` takes them.

    Raises:
        ConfigurationError: A name is not one of a statistic.
    """
    columns = [parse_statistic(name) for name in names]
    if not tensors:
        return torch.empty((0, len(columns)), dtype=torch.float64, device="cpu")
    rows: list[Tensor | None] = [None] * len(tensors)
    for members in _groups(tensors):
        matrix = _of_group([tensors[i] for i in members], columns)
        for i, row in zip(members, matrix.unbind(0), strict=True):
            rows[i] = row
    return torch.stack([row for row in rows if row is not None])


@torch.no_grad()
def device_statistics_by_axis(tensor: Tensor, names: Iterable[str], axis: int) -> dict[str, Tensor]:
    """Return statistics for each index along an axis, by canonical name: each of shape (tensor.shape[axis],).

    Statistics that the dtype does not define are left out. The results have the dtype of `device_statistics`.

    Args:
        tensor: Dense, with this axis.
        names: Statistics, as `parse_statistic` takes them.
        axis: Negative ones count from the last axis.

    Raises:
        ConfigurationError: A name is not one of a statistic.
    """
    columns = [name for name in dict.fromkeys(map(parse_statistic, names)) if name in _defined(tensor.dtype)]
    if not columns:
        return {}
    slices = tensor.movedim(axis, 0)
    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    if tensor.numel() == 0:
        empty = torch.full((len(slices),), math.nan, dtype=wide, device=tensor.device)
        return {name: torch.zeros_like(empty) if name in COUNTS else empty for name in columns}
    size = max(1, _CHUNK * len(slices) // tensor.numel())
    parts = [_real_or_complex(part.reshape(len(part), -1), columns, wide) for part in torch.split(slices, size)]
    return {name: torch.cat([part[name] for part in parts]) for name in columns}


def _groups(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Return groups of positions of tensors that can be stacked: of one size and dtype, and of limited total size."""
    groups: list[list[int]] = []
    last: dict[tuple[int, torch.dtype], list[int]] = {}
    for i, tensor in enumerate(tensors):
        key = (tensor.numel(), tensor.dtype)
        group = last.get(key)
        if group is None or (len(group) + 1) * tensor.numel() > _CHUNK:
            group = last[key] = []
            groups.append(group)
        group.append(i)
    return groups


def _of_group(tensors: list[Tensor], columns: list[str]) -> Tensor:
    """Return shape (len(tensors), len(columns)) for tensors of one size and dtype."""
    first = tensors[0]
    wide = torch.float32 if first.device.type == "mps" else torch.float64
    defined = _defined(first.dtype)
    undefined = torch.full((len(tensors),), math.nan, dtype=wide, device=first.device)
    found: Sums = {}
    if first.numel() == 0:
        found = {name: torch.zeros_like(undefined) for name in COUNTS if name in defined}
    elif wanted := [column for column in columns if column in defined]:
        flats = [_flat(tensor) for tensor in tensors]
        rows = torch.stack(flats) if len(flats) > 1 else flats[0].unsqueeze(0)
        found = _real_or_complex(rows, wanted, wide)
    if not columns:
        return undefined.new_empty((len(tensors), 0))
    return torch.stack([found.get(column, undefined) for column in columns], dim=1)


def _defined(dtype: torch.dtype) -> frozenset[str]:
    if dtype.is_complex:
        return COMPLEX_STATISTICS
    real = dtype in _INTEGERS or (dtype.is_floating_point and dtype not in _PACKED)
    return frozenset(STATISTICS) if real else frozenset()


@functools.lru_cache(maxsize=64)
def _limits_of(dtype: torch.dtype) -> Limits:
    if dtype == torch.bool:
        return NO_LIMITS
    if dtype.is_floating_point:
        known = torch.finfo(dtype)
        return Limits(known.smallest_normal, known.min, known.max)
    whole = torch.iinfo(dtype)
    return Limits(0.0, float(whole.min) if whole.min else -math.inf, float(whole.max))


def _known_dtypes(*names: str) -> frozenset[torch.dtype]:
    # Older releases of torch lack some of them.
    return frozenset(getattr(torch, name) for name in names if hasattr(torch, name))


_INTEGERS = _known_dtypes("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_WIDE = _known_dtypes("int64", "uint64")
_PACKED = _known_dtypes("float4_e2m1fn_x2")
_SORTABLE = _known_dtypes("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


def _flat(tensor: Tensor) -> Tensor:
    """Return all elements in the order of memory, so that a transposed tensor needs no copy."""
    strides = tensor.stride()
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    return tensor.permute(order).reshape(-1)


def _real_or_complex(rows: Tensor, columns: list[str], wide: torch.dtype) -> Sums:
    """Return the named statistics of each row of a matrix, each of shape (len(rows),)."""
    if not rows.dtype.is_complex:
        return statistics_of_rows(rows, columns, wide)
    values = rows.to(torch.complex64 if wide == torch.float32 else torch.complex128)
    nan = torch.isnan(values)
    magnitudes = values.abs().masked_fill(nan, math.nan)
    simple = [name for name in columns if name not in ("std", "variance")]
    found = statistics_of_rows(magnitudes, [name.removeprefix("abs_") for name in simple], wide)
    result = {name: found[name.removeprefix("abs_")] for name in simple}
    if len(simple) < len(columns):
        distances = (values - values.mean(dim=1, keepdim=True)).abs()
        # inf - inf may be NaN in only one part of a complex number, where its magnitude would hide it.
        distances.masked_fill_(~torch.isfinite(magnitudes), math.nan)
        result["variance"] = distances.square().mean(dim=1)
        result["std"] = result["variance"].sqrt()
    return result


def statistics_of_rows(rows: Tensor, columns: list[str], wide: torch.dtype) -> Sums:
    """Return the named statistics of each row of a matrix of real numbers, computed in the dtype `wide`."""
    if rows.dtype == torch.float64 == wide and (scaled := [name for name in columns if name in DEGREES]):
        exponents = _exponents(rows)
        found = _plain_statistics(rows, scaled, wide, -exponents.unsqueeze(1))
        found = {name: _scaled(found[name], DEGREES[name] * exponents) for name in scaled}
        return found | _plain_statistics(rows, [name for name in columns if name not in DEGREES], wide)
    return _plain_statistics(rows, columns, wide)


def _exponents(rows: Tensor) -> Tensor:
    """Return the power of 2 of the largest magnitude of each row; 0 if it is 0 or not finite."""
    low, high = torch.aminmax(rows, dim=1)
    greatest = torch.maximum(-low, high)
    known = (greatest > 0) & torch.isfinite(greatest)
    return torch.frexp(torch.where(known, greatest, torch.ones_like(greatest))).exponent.to(rows.dtype)


def _scaled(values: Tensor, exponents: Tensor) -> Tensor:
    """Return values * 2^exponents, by three factors that do not overflow float64 because exponents are below 2200."""
    part = torch.trunc(exponents / 3)
    return (values * torch.exp2(part)).mul_(torch.exp2(part)).mul_(torch.exp2(exponents - 2 * part))


def _plain_statistics(rows: Tensor, columns: list[str], wide: torch.dtype, exponents: Tensor | None = None) -> Sums:
    """Return statistics of rows, multiplied by 2^exponents before their sums."""
    if not columns:
        return {}

    def converted(part: Tensor) -> Tensor:
        return part.to(wide) if exponents is None else _scaled(part, exponents)

    needs = {sum_ for quantity in quantities_of(columns) for sum_ in _MADE_FROM.get(quantity, (quantity,))}
    count = rows.shape[1]
    limits = _limits_of(rows.dtype)
    if count <= _CHUNK:
        sums = _sums(converted(rows), needs, limits)
    else:  # such a tensor is the only row
        parts = torch.split(rows, _CHUNK, dim=1)
        found = [_sums(converted(part), needs, limits) for part in parts]
        sums = _merge(found, [part.numel() for part in parts])
    if "saturated" in needs and rows.dtype in _WIDE:
        bits = rows.view(torch.int64)
        signed = rows.dtype == torch.int64
        ends = (torch.iinfo(torch.int64).max, torch.iinfo(torch.int64).min) if signed else (-1,)
        sums["saturated"] = torch.stack([(bits == end).sum(dim=1) for end in ends]).sum(dim=0).to(wide)
    if "median" in needs:
        sums["median"] = _median(_sortable(rows), wide)
    if "abs_median" in needs:
        sums["abs_median"] = _median(_absolute(_sortable(rows)), wide)
    quantities = _Quantities(sums, count)
    return {column: FORMULAS[column](quantities) for column in columns}


class _Quantities:
    """The sums of some tensors, as attributes for the formulas of the statistics."""

    sqrt = staticmethod(torch.sqrt)
    maximum = staticmethod(torch.maximum)
    rounding = 1e-26  # a tensor in several parts has the rounding error of their sums

    @staticmethod
    def ratio(numerators: Tensor, denominators: Tensor, reliable: Tensor) -> Tensor:
        """Return the ratios, NaN where they are not reliable."""
        return (numerators / denominators).masked_fill(~reliable, math.nan)

    def __init__(self, sums: Sums, count: int) -> None:
        self.count = count
        vars(self).update(sums)
        if "logs" in sums:
            self.product = torch.exp2(sums["logs"]) * (1 - 2 * (sums["negatives"] % 2))


def _sums(values: Tensor, needs: set[str], limits: Limits) -> Sums:
    """Reduce each row of a float matrix to the sums that are needed, each of shape (rows,)."""
    sums: Sums = {}
    if needs >= {"low", "high"}:
        sums["low"], sums["high"] = torch.aminmax(values, dim=1)
    for need in needs - sums.keys() & _REDUCERS.keys():
        sums[need] = _REDUCERS[need](values)
    if needs & {"third", "fourth"}:
        centered = values - values.mean(dim=1, keepdim=True)
        centered -= centered.mean(dim=1, keepdim=True)  # the remainder from the rounding of the mean
        squared = centered.square()
        sums["spread"] = squared.sum(dim=1)
        sums["third"], sums["fourth"] = (squared * centered).sum(dim=1), squared.square().sum(dim=1)
    if "saturated" in needs:
        sums["saturated"] = ((values == limits.lowest) | (values == limits.highest)).sum(dim=1)
    if needs & {"abs_low", "abs_spread", "logs", "subnormals"}:
        magnitudes = values.abs()
        if "subnormals" in needs:
            sums["subnormals"] = ((magnitudes > 0) & (magnitudes < limits.normal)).sum(dim=1)
        for need in needs & _REDUCERS_OF_MAGNITUDES.keys():
            sums[need] = _REDUCERS_OF_MAGNITUDES[need](magnitudes)
    return {need: value.to(values.dtype) for need, value in sums.items()}


def _vector_norm(values: Tensor, order: int) -> Tensor:
    return torch.linalg.vector_norm(values, order, dim=1)


def _norm(values: Tensor) -> Tensor:
    if values.dtype == torch.float64:
        return _vector_norm(values, 2)
    greatest = values.abs().amax(dim=1, keepdim=True)
    scale = torch.where((greatest > 0) & torch.isfinite(greatest), greatest, torch.ones_like(greatest))
    return _vector_norm(values / scale, 2) * scale.squeeze(1)


def _spread(values: Tensor) -> Tensor:
    return torch.var(values, dim=1, correction=0) * values.shape[1]


_REDUCERS: dict[str, Callable[[Tensor], Tensor]] = {
    "low": lambda x: x.amin(dim=1),
    "high": lambda x: x.amax(dim=1),
    "total": lambda x: x.sum(dim=1),
    "magnitude": lambda x: _vector_norm(x, 1),
    "norm": _norm,
    "spread": _spread,
    "negatives": lambda x: (x < 0).sum(dim=1),
    "nans": lambda x: torch.isnan(x).sum(dim=1),
    "infs": lambda x: torch.isinf(x).sum(dim=1),
    "zeros": lambda x: (x == 0).sum(dim=1),
}
_REDUCERS_OF_MAGNITUDES: dict[str, Callable[[Tensor], Tensor]] = {
    "abs_low": lambda x: x.amin(dim=1),
    "abs_spread": _spread,
    # log2(0) is -inf, so a zero makes the product 0, and NaN if there is also an infinity, as multiplication does.
    "logs": lambda x: x.log2().sum(dim=1),
}


def _merge(parts: list[Sums], counts: list[int]) -> Sums:
    """Join the sums of the disjoint parts of one tensor."""
    joined = {need: torch.cat([part[need] for part in parts]) for need in parts[0]}
    merged = {need: _MERGERS.get(need, torch.sum)(values).reshape(1) for need, values in joined.items()}
    if "third" in merged:
        merged |= _merged_moments(parts, counts)
    for spread, total in (("spread", "total"), ("abs_spread", "magnitude")):
        if spread in merged:
            # sum(n_i (mean_i - mean)^2), without a tensor of counts, which would have to be copied to the device.
            mean = merged[total] / sum(counts)
            between = [(part[total] / n - mean).square() * n for part, n in zip(parts, counts, strict=True)]
            merged[spread] = merged[spread] + torch.stack(between).sum(dim=0)
    return merged


def _merged_moments(parts: list[Sums], counts: list[int]) -> Sums:
    """Return the third and fourth moment of a tensor from those of its parts, each about the mean of the part."""
    mean = torch.stack([part["total"] for part in parts]).sum(dim=0) / sum(counts)
    thirds, fourths = [], []
    for part, count in zip(parts, counts, strict=True):
        off = part["total"] / count - mean
        square = off.square()
        thirds.append(part["third"] + 3 * off * part["spread"] + count * off * square)
        fourth = part["fourth"] + 4 * off * part["third"]
        fourths.append(fourth + 6 * square * part["spread"] + count * square.square())
    return {"third": torch.stack(thirds).sum(dim=0), "fourth": torch.stack(fourths).sum(dim=0)}


_MERGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "low": torch.amin,
    "high": torch.amax,
    "abs_low": torch.amin,
    "norm": lambda x: _norm(x.unsqueeze(0)),
}


def _sortable(values: Tensor) -> Tensor:
    """Return the values in a dtype that represents them and that every device can sort."""
    if values.dtype in _SORTABLE:
        return values
    small = values.dtype.itemsize <= 2 or values.device.type == "mps"
    return values.to(torch.float32 if small else torch.float64)


def _absolute(values: Tensor) -> Tensor:
    # The magnitude of the least integer overflows its dtype.
    if not values.dtype.is_floating_point:
        values = values.to(torch.float32 if values.device.type == "mps" else torch.float64)
    return values.abs()


def _median(values: Tensor, wide: torch.dtype) -> Tensor:
    """Return the mean of the two middle values of each row; NaN if the row has one."""
    if values.device.type != "cpu":  # a GPU sorts in parallel, but selects within one block of threads
        return middle_of_sorted(values, wide)
    count = values.shape[1]
    low, high = (torch.kthvalue(values, 1 + k, dim=1).values.to(wide) for k in ((count - 1) // 2, count // 2))
    return _mean_of_two(low, high).masked_fill(torch.isnan(values.amax(dim=1)), math.nan)


def middle_of_sorted(values: Tensor, wide: torch.dtype) -> Tensor:
    """Return the median of each row as a GPU computes it; NaN if the row has one."""
    ordered = torch.sort(values, dim=1).values
    count = values.shape[1]
    low, high = ordered[:, (count - 1) // 2].to(wide), ordered[:, count // 2].to(wide)
    return _mean_of_two(low, high).masked_fill(torch.isnan(ordered[:, -1]), math.nan)  # NaN sorts last


def _mean_of_two(low: Tensor, high: Tensor) -> Tensor:
    mean = (low + high) / 2
    return torch.where(torch.isfinite(mean), mean, low / 2 + high / 2)
