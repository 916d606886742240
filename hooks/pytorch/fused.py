"""Statistics of the rows of a matrix in one pass over its memory, by kernels that torch.compile makes.

Operators of torch compute one sum each, from a float64 copy of the numbers: with five statistics some 50 bytes travel
for each number of two bytes. Compiled, the sums are in one kernel that reads each number once and converts it where it
adds it up.

Compilation takes seconds, so it happens only once a kind of matrix came several times: in a run that saves statistics
often, and only with TENSORTRIAL_FUSED_STATISTICS=1. Without Triton, and once a compilation has failed, the operators of
torch are used.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from tensortrial.errors import UnsupportedValue
from tensortrial.statistics.definitions import FORMULAS, STATISTICS, quantities_of

__all__ = ["FUSED", "FusedStatistics", "fused"]

logger = logging.getLogger("tensortrial.hooks")

_NOT_ONE_PASS = {"median", "abs_median", "third", "fourth"}

FUSED = tuple(name for name in STATISTICS if not quantities_of([name]) & _NOT_ONE_PASS)
"""The statistics that one pass computes. A median needs a sort, and moments about the mean the mean."""

_DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32})
_VARIABLE = "TENSORTRIAL_FUSED_STATISTICS"

# How often a kind of matrix is reduced by the operators of torch before it is compiled.
_PATIENCE = 10


# The elements that one block of threads adds up; longer rows are cut.
_BLOCK = 4096


class _Kind(NamedTuple):
    """Matrices that share kernels: the compiler lays out a kernel for the first shape that it sees."""

    columns: tuple[str, ...]
    dtype: torch.dtype
    shapes: tuple[tuple[bool, ...], ...]
    """For each part of the rows, which of its dimensions are 1; the compiler specializes on that."""


class FusedStatistics:
    """Compiles reductions, and keeps them.

    Args:
        devices: The types of devices whose matrices are reduced by compiled code.
        backend: The backend of torch.compile.
        patience: How often a kind of matrix comes before it is compiled.
    """

    def __init__(self, devices: tuple[str, ...], backend: str = "inductor", patience: int = _PATIENCE) -> None:
        self._devices, self._backend, self._patience = devices, backend, patience
        self._lock = threading.Lock()
        self._seen: Counter[_Kind] = Counter()
        self._compiled: dict[_Kind, Callable[..., torch.Tensor]] = {}
        self._failed = False

    def reduce(self, rows: torch.Tensor, columns: tuple[str, ...]) -> torch.Tensor | None:
        """Return statistics of each row, or None if the operators of torch are to compute them.

        Args:
            rows: Shape (rows, elements), neither of them 0.
            columns: Some of FUSED.

        Returns:
            Shape (rows, columns), float64.
        """
        if self._failed or rows.device.type not in self._devices or rows.dtype not in _DTYPES:
            return None
        parts = cut(rows)
        shapes = tuple(tuple(length == 1 for length in part.shape) for part in parts)
        compiled = self._function_for(_Kind(columns, rows.dtype, shapes))
        if compiled is None:
            return None
        try:
            return compiled(*parts)
        except Exception as exc:  # noqa: BLE001 - a compiler may raise anything
            self._failed = True
            logger.warning("statistics are computed by operators of torch, not compiled: %s", _in_short(exc))
            return None

    def _function_for(self, kind: _Kind) -> Callable[..., torch.Tensor] | None:
        with self._lock:
            if kind not in self._compiled:
                self._seen[kind] += 1
                if self._seen[kind] <= self._patience:
                    return None
                self._compiled[kind] = self._compile(kind.columns)
            return self._compiled[kind]

    def _compile(self, columns: tuple[str, ...]) -> Callable[..., torch.Tensor]:
        def reduce(*parts: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():  # each sum would make a float64 copy of its own
                raise UnsupportedValue("torch.compile is turned off")
            return statistics_of_parts(columns, *parts)

        # The compiler counts how often it compiles a code object again, so each kind has one of its own.
        reduce.__code__ = reduce.__code__.replace(co_name=f"reduce_{next(_numbers)}")
        options: dict[str, Any] | None = {"triton.cudagraphs": False} if self._backend == "inductor" else None
        return torch.compile(reduce, fullgraph=True, dynamic=True, backend=self._backend, options=options)


_numbers = itertools.count()


def cut(rows: torch.Tensor) -> list[torch.Tensor]:
    """Return the parts of which the rows consist: blocks of one size, and what is left.

    Left to itself, the compiler divides a long row in another way for each sum, and converts it to float64 in memory.
    """
    count = rows.shape[1]
    whole = count - count % _BLOCK
    if count <= _BLOCK:
        return [rows]
    blocks = rows.narrow(1, 0, whole).view(len(rows), -1, _BLOCK)
    return [blocks] if whole == count else [blocks, rows.narrow(1, whole, count - whole)]


def statistics_of_parts(columns: tuple[str, ...], *parts: torch.Tensor) -> torch.Tensor:
    """Return statistics of each row: shape (rows, columns).

    It is made to be compiled: the compiler joins sums over the same numbers in one kernel.

    Args:
        columns: Some of FUSED.
        parts: Of each row, shape (rows, elements) or (rows, blocks, elements of a block).
    """
    count = sum(math.prod(part.shape[1:]) for part in parts)
    first = parts[0].flatten(1).narrow(1, 0, 1).to(torch.float64)
    needs = {sum_ for quantity in quantities_of(columns) for sum_ in _MADE_FROM.get(quantity, (quantity,))}
    sums = {}
    for need in sorted(needs):
        measure, merge = _SUMS[need]
        found = [_merged(measure(part.to(torch.float64), first, part.dtype), merge) for part in parts]
        sums[need] = found[0] if len(found) == 1 else merge(torch.stack(found))
    quantities = _Quantities(sums, count)
    return torch.stack([FORMULAS[column](quantities).to(torch.float64) for column in columns], dim=1)


def _merged(values: torch.Tensor, merge: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return one number a row for the numbers of its blocks."""
    return values if values.dim() == 1 else merge(values.T)


_Measure: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.dtype], torch.Tensor]
_Merge: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def _off(x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Return the distances from the first element of the row.

    A spread is the sum of their squares, less what their mean contributes. The first element is at most sqrt(n)
    standard deviations from the mean, so that of the sixteen digits of float64 at least eight are right for 16 million
    numbers, and usually all of them.
    """
    return x - first.view(-1, *[1] * (x.dim() - 1))


def _sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=0)


# How each sum is made from numbers along the last dimension, in float64, and how partial ones are joined.
_SUMS: dict[str, tuple[_Measure, _Merge]] = {
    "low": (lambda x, first, dtype: x.amin(dim=-1), lambda x: x.amin(dim=0)),
    "high": (lambda x, first, dtype: x.amax(dim=-1), lambda x: x.amax(dim=0)),
    "abs_low": (lambda x, first, dtype: x.abs().amin(dim=-1), lambda x: x.amin(dim=0)),
    "total": (lambda x, first, dtype: x.sum(dim=-1), _sum),
    "magnitude": (lambda x, first, dtype: x.abs().sum(dim=-1), _sum),
    "squares": (lambda x, first, dtype: x.square().sum(dim=-1), _sum),
    "off": (lambda x, first, dtype: _off(x, first).sum(dim=-1), _sum),
    "off_squares": (lambda x, first, dtype: _off(x, first).square().sum(dim=-1), _sum),
    "abs_off": (lambda x, first, dtype: _off(x.abs(), first.abs()).sum(dim=-1), _sum),
    "abs_off_squares": (lambda x, first, dtype: _off(x.abs(), first.abs()).square().sum(dim=-1), _sum),
    "logs": (lambda x, first, dtype: x.abs().log2().sum(dim=-1), _sum),
    "negatives": (lambda x, first, dtype: (x < 0).sum(dim=-1), _sum),
    "nans": (lambda x, first, dtype: x.isnan().sum(dim=-1), _sum),
    "infs": (lambda x, first, dtype: x.isinf().sum(dim=-1), _sum),
    "zeros": (lambda x, first, dtype: (x == 0).sum(dim=-1), _sum),
    "subnormals": (
        lambda x, first, dtype: ((x != 0) & (x.abs() < torch.finfo(dtype).smallest_normal)).sum(dim=-1),
        _sum,
    ),
    "saturated": (lambda x, first, dtype: (x.abs() == torch.finfo(dtype).max).sum(dim=-1), _sum),
}

# What a quantity is made from, where that is not itself.
_MADE_FROM = {
    "norm": ("squares",),
    "spread": ("off", "off_squares"),
    "abs_spread": ("abs_off", "abs_off_squares"),
    "product": ("logs", "negatives"),
}


class _Quantities:
    """The quantities that the formulas of the statistics need, from sums."""

    sqrt = staticmethod(torch.sqrt)
    maximum = staticmethod(torch.maximum)

    def __init__(self, sums: dict[str, torch.Tensor], count: int) -> None:
        self.count = count
        for name, value in sums.items():
            setattr(self, name, value)
        if "squares" in sums:
            self.norm = sums["squares"].sqrt()
        if "off" in sums:
            self.spread = (sums["off_squares"] - sums["off"].square() / count).clamp(min=0)
        if "abs_off" in sums:
            self.abs_spread = (sums["abs_off_squares"] - sums["abs_off"].square() / count).clamp(min=0)
        if "logs" in sums:
            self.product = torch.exp2(sums["logs"]) * (1 - 2 * (sums["negatives"] % 2))


def _in_short(exc: Exception) -> str:
    lines = [line for line in str(exc).splitlines() if line]
    return " ".join([f"{type(exc).__name__}:", *lines[:2]])


def compiled_devices() -> tuple[str, ...]:
    """Return the types of devices whose statistics are computed by compiled code."""
    # Not by default, as long as nobody has measured on a GPU what is gained, and what the compilation costs.
    if os.environ.get(_VARIABLE) == "1" and importlib.util.find_spec("triton") is not None:
        return ("cuda",)
    return ()


fused = FusedStatistics(compiled_devices())
