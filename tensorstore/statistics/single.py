"""The statistics of one array: numpy and numkong, one thread, each block of memory read once.

Each block of the tensor is converted to float64 in the cache, so that a float32 tensor cannot overflow, and l2 and
variance are precise. `definitions` defines each statistic. The spread is merged over the blocks by the pairwise update
of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979); the
third and fourth moments by that of Pebay, "Formulas for Robust, One-Pass Parallel Computation of Covariances and
Arbitrary-Order Statistical Moments", SAND2008-6212 (2008).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .blocks import (
    BLOCK,
    SINGLES,
    Array,
    blocks,
    blocks_of_singles,
    native_blocks,
    nature,
    scratch_memory,
    scratch_singles,
    singles,
)
from .definitions import COMPLEX_STATISTICS, COUNTS, DEGREES, FORMULAS, ROUNDING, parse_statistic, quantities_of
from .kernels import FLOAT32, extremes_of_finite, sums_of_float32
from .limits import NO_LIMITS, Limits, limits_of
from .sums import Floats, products, squares, total

# sum(x^2) - sum(x)^2 / n has nine digits if it is at least this part of sum(x^2). Otherwise the block is centered.
CANCELLATION = 1e-5
# The rows that are multiplied directly. Data with exponents under 1022 / 16 cannot overflow or vanish.
_ROWS = 16
_GROUP = 512  # mantissas of at least 1/2 whose product cannot vanish
SAFE_LEAST = 2.0**-960  # a product above it has lost no digits, unless it has factors as small as this
SAFE_SQUARES = 2.0**-240, 2.0**400
"""The range of sums of squares in which fourth powers of deviations have all digits."""
LEAST_EXPONENT = -1080  # a product under 2^-1080 rounds to 0, the least float64 being 2^-1074


def statistics(array: Array, names: Iterable[str]) -> dict[str, float]:
    """Return statistics of the whole array, by canonical name; those that its dtype does not define are left out.

    Args:
        array: Of any shape, dtype and memory order. It is copied as a whole only for a median and for complex dtypes.
        names: Statistics, as `parse_statistic` takes them.

    Raises:
        ConfigurationError: A name is not one of a statistic.
    """
    plan = _plan(names if type(names) is tuple else tuple(names))
    array = np.asarray(array)
    kind = nature(array.dtype)
    if kind == "none":
        return {}
    if array.size == 0:
        return _of_empty(plan.names if kind == "real" else plan.complex_names)
    if array.size == 1 and kind == "real":
        return _of_one(array, plan.names)
    if plan.quiet and (flat := singles(array)) is not None:
        partial = _measure_finite(flat, plan)
        if partial is not None:
            return _finish(partial, array, plan)
    with np.errstate(all="ignore"):
        if kind == "complex":
            return _of_complex(array, plan.complex_names)
        return _finish(_measure_all(array, plan), array, plan)


def statistic(array: Array, name: str) -> float | None:
    """Return one statistic of the whole array; None if its dtype does not define it.

    Raises:
        ConfigurationError: The name is not one of a statistic.
    """
    return statistics(array, (name,)).get(parse_statistic(name))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The quantities of each block that statistics need, directly or for another quantity."""

    names: tuple[str, ...]
    complex_names: tuple[str, ...]
    needs: frozenset[str]
    native: bool  # only the extremes
    quiet: bool  # numpy cannot warn if all elements are finite


# The quantities that are measured of each block because others, on the right, need them.
_MEASURED_FOR = {
    "extremes": {"low", "high", "abs_low", "saturated", "product", "nans", "infs", "median", "abs_median"},
    "total": {"spread"},
    "magnitude": {"abs_spread", "product"},
    "squares": {"norm", "spread", "abs_spread"},
    "counts": {"nans", "infs"},
    "moments": {"third", "fourth"},
}


@functools.lru_cache(maxsize=256)
def _plan(names: tuple[str, ...]) -> _Plan:
    canonical = tuple(dict.fromkeys(parse_statistic(name) for name in names))
    needs = quantities_of(canonical)
    native = needs <= {"low", "high", "median", "nans", "infs", "zeros"}
    return _Plan(
        names=canonical,
        complex_names=tuple(name for name in canonical if name in COMPLEX_STATISTICS),
        needs=needs.union(measured for measured, of in _MEASURED_FOR.items() if not needs.isdisjoint(of)),
        native=native,
        quiet=not native and needs.isdisjoint({"third", "fourth", "median", "abs_median"}),
    )


@dataclass(slots=True)
class _Partial:
    """The quantities of a part of a tensor, from which all statistics are computed.

    Quantities that the plan does not need are unset.
    """

    sqrt = staticmethod(math.sqrt)
    rounding: ClassVar[float] = ROUNDING

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    abs_low: float = math.inf
    total: float = 0.0
    magnitude: float = 0.0  # sum(|x|)
    squares: float = 0.0  # sum(x^2)
    spread: float = 0.0  # sum((x - mean)^2)
    abs_spread: float = 0.0  # sum((|x| - mean(|x|))^2)
    third: float = 0.0  # sum((x - mean)^3)
    fourth: float = 0.0  # sum((x - mean)^4)
    nans: float = 0.0
    infs: float = 0.0
    zeros: float = 0.0
    subnormals: float = 0.0
    saturated: float = 0.0
    # These three are computed from the whole tensor, after the parts have been merged.
    product: float = math.nan
    median: float = math.nan
    abs_median: float = math.nan
    # The mean is the sum of these two, so that the difference of two means is exact, and 0 for equal elements.
    mean: float = 0.0
    rest: float = 0.0

    @property
    def norm(self) -> float:
        return math.sqrt(self.squares)

    @staticmethod
    def maximum(one: float, other: float) -> float:
        """Return the greater number, or NaN if one is."""
        return -_least(-one, -other)

    @staticmethod
    def ratio(numerator: float, denominator: float, reliable: bool) -> float:
        """Return the ratio, or NaN if it is not reliable."""
        return numerator / denominator if reliable and denominator else math.nan

    def merge(self, other: _Partial, plan: _Plan) -> _Partial:
        """Merge a disjoint part (Chan, Golub and LeVeque 1979, equation 2.1b for the spreads), and return itself."""
        between = (other.mean - self.mean) + (other.rest - self.rest)
        if "moments" in plan.needs:
            self._merge_moments(other, between)
        weight = self.count / (self.count + other.count) * other.count
        self.spread += between * between * weight
        self.rest += between * (other.count / (self.count + other.count))
        between = other.magnitude / other.count - self.magnitude / self.count
        self.abs_spread += between * between * weight
        self.count += other.count
        self.low, self.high = _least(self.low, other.low), self.maximum(self.high, other.high)
        self.abs_low = _least(self.abs_low, other.abs_low)
        self.total += other.total
        self.magnitude += other.magnitude
        self.squares += other.squares
        self.spread += other.spread
        self.abs_spread += other.abs_spread
        self.nans += other.nans
        self.infs += other.infs
        self.zeros += other.zeros
        self.subnormals += other.subnormals
        self.saturated += other.saturated
        return self

    def _merge_moments(self, other: _Partial, between: float) -> None:
        """Merge the third and fourth moments of a part whose mean is greater by `between`.

        Pebay, SAND2008-6212, equations 2.1 and 2.2, for sums instead of means.
        """
        count = self.count + other.count
        share, others = self.count / count, other.count / count
        square = between * between
        third = self.third + other.third
        third += between * square * self.count * others * (share - others)
        third += 3 * between * (share * other.spread - others * self.spread)
        fourth = self.fourth + other.fourth
        fourth += square * square * self.count * others * (share * share - share * others + others * others)
        fourth += 6 * square * (share * share * other.spread + others * others * self.spread)
        fourth += 4 * between * (share * other.third - others * self.third)
        self.third, self.fourth = third, fourth


def _least(a: float, b: float) -> float:
    # Python's min() ignores a NaN as its second argument.
    return b if b < a or b != b else a


def _of_empty(names: tuple[str, ...]) -> dict[str, float]:
    return {name: 0.0 if name in COUNTS else math.nan for name in names}


def _number(array: Array) -> float:
    """Return the only element."""
    if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
        return float(array.item())
    with np.errstate(all="ignore"):
        return float(array.reshape(1).astype(np.float64)[0])


def _of_one(array: Array, names: tuple[str, ...]) -> dict[str, float]:
    """Return statistics of a single number. Most saved tensors are losses and metrics."""
    value = _number(array)
    size = abs(value)
    deviation = 0.0 if size < math.inf else math.nan
    found = (value, size, deviation, float(value != value), float(size == math.inf), float(value == 0), math.nan)
    if _LIMITED.isdisjoint(names):
        return {name: found[_SLOT_OF_ONE[name]] for name in names}
    limits = limits_of(array.dtype)
    saturated = size < math.inf and (array.item() if is_wide(array.dtype) else value) in (limits.lowest, limits.highest)
    all_found = (*found, float(0 < size < limits.normal), float(saturated))
    return {name: all_found[_SLOT_OF_ONE[name]] for name in names}


def _slots_of_one() -> dict[str, int]:
    """Return for each statistic its index in the numbers of `_of_one`, by its formula for one number."""
    one = _Partial(
        *(1, -3.0, -3.0, 3.0, -3.0, 3.0, 9.0, 1.0, 1.0, 19.0, 19.0),
        *(5.0, 7.0, 11.0, 13.0, 17.0, -3.0, -3.0, 3.0),
    )
    slots = {-3.0: 0, 3.0: 1, 1.0: 2, 5.0: 3, 7.0: 4, 11.0: 5, 19.0: 6, 13.0: 7, 17.0: 8}
    return {name: slots[formula(one)] for name, formula in FORMULAS.items()}


_SLOT_OF_ONE = _slots_of_one()
_LIMITED = frozenset({"subnormal_count", "saturated_count"})


def _measure_finite(flat: Array, plan: _Plan) -> _Partial | None:
    """Return the quantities of an array that numkong reduces as float32; None if an element is infinite or NaN."""
    partial: _Partial | None = None
    limits = limits_of(flat.dtype) if "subnormals" in plan.needs or "saturated" in plan.needs else NO_LIMITS
    for source, block in blocks_of_singles(flat):
        part = _Partial(block.size)
        part.total, part.squares = sums_of_float32(block)
        if not part.squares < math.inf:  # a sum of float32 cannot overflow by itself
            return None
        if "extremes" in plan.needs:
            part.low, part.high = extremes_of_finite(block) or _extremes(block)
        _measure(part, source, block, plan, limits)
        partial = part if partial is None else partial.merge(part, plan)
    return partial


def _measure_all(array: Array, plan: _Plan) -> _Partial:
    """Return the quantities of at least two real numbers of any kind."""
    partial: _Partial | None = None
    limits = limits_of(array.dtype) if "subnormals" in plan.needs or "saturated" in plan.needs else NO_LIMITS
    for source, block in _blocks(array, plan):
        part = _Partial(block.size)
        if "extremes" in plan.needs:
            part.low, part.high = _extremes(source)
        if "total" in plan.needs or "squares" in plan.needs:
            part.total, part.squares = _sums(block, "total" in plan.needs, "squares" in plan.needs)
        _measure(part, source, block, plan, limits)
        partial = part if partial is None else partial.merge(part, plan)
    return partial or _Partial()


def _blocks(array: Array, plan: _Plan) -> Iterable[tuple[Array, Array]]:
    flat = singles(array)
    if flat is not None:
        return blocks_of_singles(flat, BLOCK if "moments" in plan.needs else SINGLES)
    return native_blocks(array) if plan.native else blocks(array)


def _finish(partial: _Partial, array: Array, plan: _Plan) -> dict[str, float]:
    """Return the statistics, including product and medians, which need the whole array."""
    if "product" in plan.needs:
        partial.product = _product(partial, array)
    if "median" in plan.needs:
        partial.median = _median(partial, array)
    if "abs_median" in plan.needs:
        partial.abs_median = _abs_median(partial, array)
    if "saturated" in plan.needs and partial.saturated and is_wide(array.dtype):
        partial.saturated = float(np.count_nonzero(saturated_integers(array)))
    found = {name: FORMULAS[name](partial) for name in plan.names}
    if array.dtype.kind == "f" and array.dtype.itemsize >= 8 and not _is_safe(partial, plan):
        found |= _of_scaled(array, tuple(name for name in plan.names if name in DEGREES))
    return found


def is_wide(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype has integers that float64 cannot represent."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def saturated_integers(array: Array) -> Array:
    """Return a mask of the integers at an end of their dtype's range."""
    limits = limits_of(array.dtype)
    found: Array = np.equal(array, limits.highest)
    return found | np.equal(array, limits.lowest) if array.dtype.kind == "i" else found


def _is_safe(partial: _Partial, plan: _Plan) -> bool:
    if "squares" in plan.needs and not SAFE_SQUARES[0] < partial.squares < SAFE_SQUARES[1]:
        return False
    return math.isfinite(partial.total) and math.isfinite(partial.magnitude)


def _of_scaled(array: Array, names: tuple[str, ...]) -> dict[str, float]:
    """Return statistics whose sums would leave the range of float64, from scaled numbers."""
    values = array.astype(np.float64)
    greatest = max(-float(values.min()), float(values.max()))
    if not names or not 0 < greatest < math.inf:
        return {}
    exponent = math.frexp(greatest)[1]
    found = statistics(np.ldexp(values, -exponent, out=values), names)
    return {name: _ldexp(value, exponent * DEGREES[name]) for name, value in found.items()}


def _measure(part: _Partial, source: Array, block: Array, plan: _Plan, limits: Limits) -> None:
    """Complete the extremes and sums of a block of float32 or float64, in the cache."""
    if "counts" in plan.needs and not -math.inf < part.low <= part.high < math.inf:
        part.nans = float(np.count_nonzero(np.isnan(block)))
        part.infs = float(np.count_nonzero(np.isinf(block)))
    if "spread" in plan.needs:
        part.mean = part.total / block.size
    if "moments" in plan.needs:
        part.rest, part.spread, part.third, part.fourth = _central_moments(block, part.mean)
    elif "spread" in plan.needs:
        part.spread, part.rest = _centered_squares(block, part.total, part.squares)
    if "saturated" in plan.needs and not limits.lowest < part.low <= part.high < limits.highest:
        part.saturated = float(np.count_nonzero(block == limits.lowest) + np.count_nonzero(block == limits.highest))
    # Without the extremes, low is +inf and high -inf, which do not show the signs.
    if "zeros" in plan.needs and not ("extremes" in plan.needs and (part.low > 0 or part.high < 0)):
        part.zeros = float(np.count_nonzero(np.equal(block, 0)))
    if "magnitude" in plan.needs or "abs_low" in plan.needs or "subnormals" in plan.needs:
        _measure_magnitudes(source, block, part, plan, limits)


def _central_moments(block: Array, rounded: float) -> tuple[float, float, float, float]:
    """Return mean - `rounded`, and the sums of (x - mean)^2, (x - mean)^3 and (x - mean)^4 of a block."""
    centered = np.subtract(block, rounded, out=scratch_memory(1)[: block.size], dtype=np.float64)
    # The mean is subtracted again, to correct its rounding error.
    rest = total(centered) / block.size
    np.subtract(centered, rest, out=centered)
    squared = np.square(centered, out=scratch_memory(2)[: block.size])
    return rest, total(squared), products(squared, centered), squares(squared)


def _extremes(block: Array) -> tuple[float, float]:
    return float(np.minimum.reduce(block)), float(np.maximum.reduce(block))


def _sums(block: Array, has_total: bool, has_squares: bool) -> tuple[float, float]:
    """Return sum(x) and sum(x^2) of a block, or 0.0 for an unwanted one."""
    if block.dtype == FLOAT32:
        return sums_of_float32(block)
    return total(block) if has_total else 0.0, squares(block) if has_squares else 0.0


def _measure_magnitudes(source: Array, block: Array, part: _Partial, plan: _Plan, limits: Limits) -> None:
    same = "extremes" in plan.needs and part.low >= 0
    magnitudes = block if same else _magnitudes(source, block)
    if "magnitude" in plan.needs:
        is_known = same and "total" in plan.needs
        part.magnitude = part.total if is_known else _sums(magnitudes, True, False)[0]
    if "abs_low" in plan.needs:
        part.abs_low = part.low if same else float(np.minimum.reduce(magnitudes))
    if "subnormals" in plan.needs and limits.normal:
        part.subnormals = float(np.count_nonzero(magnitudes < limits.normal) - np.count_nonzero(magnitudes == 0))
    if "abs_spread" in plan.needs:
        part.abs_spread, _ = _centered_squares(magnitudes, part.magnitude, part.squares)


def _magnitudes(source: Array, block: Array) -> Array:
    # The block is overwritten, because it is not read again, unless it is the tensor's own memory.
    if source is not block:
        return np.absolute(block, out=block)
    scratch = scratch_singles(1) if block.dtype == FLOAT32 else scratch_memory(1)
    return np.absolute(block, out=scratch[: block.size])


def _centered_squares(block: Array, plain: float, squared: float) -> tuple[float, float]:
    """Return sum((x - mean)^2) of a block, from the sums unless they would cancel, and the mean's rounding error."""
    mean = plain / block.size
    spread = squared - plain * mean
    if CANCELLATION * squared < spread < math.inf:
        return spread, 0.0
    spread = residue = 0.0
    for start in range(0, block.size, BLOCK):
        piece = block[start : start + BLOCK]
        with np.errstate(all="ignore"):
            centered = np.subtract(piece, mean, out=scratch_memory(2)[: piece.size], dtype=np.float64)
            spread, residue = spread + squares(centered), residue + total(centered)
    # The last term corrects the rounding error of the mean.
    rest = residue / block.size
    return (max(spread - residue * rest, 0.0), rest) if spread < math.inf else (spread, 0.0)


def _product(part: _Partial, array: Array) -> float:
    """Return the product of all elements, which is 0 or infinite if it leaves the range of float64."""
    if part.low != part.low:
        return math.nan
    if part.low == -math.inf or part.high == math.inf:
        return _infinite_product(array)
    if part.low == 0 or part.high == 0:
        return 0.0  # as in an activation, in which most numbers are 0
    # The geometric mean of |x| is at most the arithmetic one, so most weights need no other pass.
    if part.magnitude == 0 or part.count * math.log2(part.magnitude / part.count) < LEAST_EXPONENT:
        return 0.0
    with np.errstate(all="ignore"):
        return _finite_product(array)


def _finite_product(array: Array) -> float:
    """Return the product of finite numbers."""
    mantissa, exponent = 1.0, 0
    for _, block in blocks(array):
        factor, shift = _scaled_product(block)
        mantissa, carry = math.frexp(mantissa * factor)
        exponent += int(shift) + carry
        if mantissa == 0:
            return 0.0
    return _ldexp(mantissa, exponent)


def _infinite_product(array: Array) -> float:
    """Return the product of numbers that include an infinity and no NaN."""
    negatives = 0
    for _, block in blocks(array):
        if np.count_nonzero(block) < block.size:
            return math.nan
        negatives += int(np.count_nonzero(block < 0))
    return -math.inf if negatives % 2 else math.inf


def _scaled_product(block: Floats) -> tuple[float, int]:
    """Return (m, e) with product m * 2^e, for a block of finite numbers; m is 0 only if one of them is."""
    if block.size <= 64 * _ROWS:
        direct = float(np.multiply.reduce(block))
        if SAFE_LEAST < abs(direct) < math.inf:
            return direct, 0
        return product_by_exponents(block)
    columns = block.size // _ROWS
    rows = block[: columns * _ROWS].reshape(_ROWS, columns)
    mantissa, exponent = product_by_exponents(np.multiply.reduce(rows, axis=0))
    if not 0 < abs(mantissa) < math.inf:  # a column has overflowed or vanished, or has a zero
        return product_by_exponents(block)
    factor, shift = product_by_exponents(block[columns * _ROWS :])
    return mantissa * factor, exponent + shift


def product_by_exponents(values: Floats) -> tuple[Any, Any]:
    """Multiply mantissas along the last axis, in groups too small to vanish, and add up the exponents.

    Mantissas lie in [1/2, 1).
    """
    exponent: Any = 0
    while True:
        values, exponents = np.frexp(values)
        exponent = exponent + exponents.sum(axis=-1, dtype=np.int64)
        if values.shape[-1] <= _GROUP:
            return np.multiply.reduce(values, axis=-1), exponent
        values = np.multiply.reduceat(values, np.arange(0, values.shape[-1], _GROUP), axis=-1)


def _ldexp(mantissa: float, exponent: int) -> float:
    try:
        return math.ldexp(mantissa, exponent)
    except OverflowError:
        return math.copysign(math.inf, mantissa)


def _median(part: _Partial, array: Array) -> float:
    return math.nan if part.low != part.low else _middle(_sortable(array))


def _abs_median(part: _Partial, array: Array) -> float:
    if part.low != part.low:
        return math.nan
    if part.low >= 0:
        return part.median if part.median == part.median else _middle(_sortable(array))
    values = _sortable(array)
    # The magnitude of the least integer overflows its dtype.
    return _middle(np.absolute(values if values.dtype.kind == "f" else values.astype(np.float64)))


def _sortable(array: Array) -> Array:
    """Return the array in a dtype that represents its values and that numpy partitions quickly."""
    if array.dtype.kind in "iu" or array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)


def _middle(values: Array) -> float:
    middle = sorted({(values.size - 1) // 2, values.size // 2})
    ordered = np.partition(values, middle, axis=None)
    low, high = float(ordered[middle[0]]), float(ordered[middle[-1]])
    mean = (low + high) / 2
    return mean if math.isfinite(mean) else low / 2 + high / 2


def _of_complex(array: Array, names: tuple[str, ...]) -> dict[str, float]:
    """Return statistics of complex numbers from magnitudes; std and variance from distances to the mean."""
    values = np.atleast_1d(array).astype(np.complex128)  # numpy computes scalars from arrays without axes
    magnitudes = np.absolute(values)
    # By the C standard the magnitude of inf + nan j is infinite, but here NaN takes precedence.
    magnitudes[np.isnan(values)] = math.nan
    on_magnitudes = {name: name.removeprefix("abs_") for name in names if name not in ("std", "variance")}
    found = statistics(magnitudes, on_magnitudes.values())
    result = {name: found[other] for name, other in on_magnitudes.items()}
    if len(result) < len(names):
        distances = np.absolute(values - values.mean())
        std = statistics(distances, ("rms",))["rms"] if np.isfinite(values).all() else math.nan
        result |= {"variance": std * std, "std": std}
    return {name: result[name] for name in names}
