"""The one definition of every statistic: numpy, one thread, each block of memory read once.

All results are float64, whatever the dtype: each block of the tensor is converted to float64 in the cache, so that a
float32 tensor cannot overflow, and l2 and variance lose nothing to rounding. NaN propagates in everything but the
counts. An empty tensor has counts of 0, and NaN for the rest. A statistic that makes no sense for a dtype is left out.

    real (floats, integers, bool as 0 and 1, the kinds of ml_dtypes)    all of STATISTICS
    complex                                                             std and variance of |x - mean|; l1, l2 and
                                                                        abs_* of the magnitudes; the counts
    strings, dates, structures, objects                                 none

Definitions, for x flattened, n = x.size:

    mean         sum(x) / n
    median       the middle value, or the mean of the two middle ones (numpy.median)
    variance     sum((x - mean)^2) / n, so ddof=0, merged over the blocks by the pairwise update of Chan, Golub and
                 LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979)
    std          sqrt(variance)
    prod         the product itself, rounded once: no order of multiplication can make it overflow or vanish half-way.
                 With an infinity: NaN if there is also a zero, else an infinity
    l1, l2       sum(|x|), sqrt(sum(x^2))
    abs_R        R of |x|; an element of a complex tensor with a NaN part has the magnitude NaN
    nan_count    elements that are NaN
    inf_count    elements that are infinite
    zero_count   elements equal to 0, negative zero too
"""

from __future__ import annotations

import difflib
import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ConfigurationError
from .sums import Floats, squares, total

REDUCTIONS = ("min", "max", "mean", "median", "std", "variance", "sum", "prod", "l1", "l2")
COUNTS = ("nan_count", "inf_count", "zero_count")
STATISTICS: tuple[str, ...] = REDUCTIONS + tuple("abs_" + name for name in REDUCTIONS) + COUNTS
COMPLEX_STATISTICS: frozenset[str] = frozenset(
    {"std", "variance", "l1", "l2", *COUNTS, *(name for name in STATISTICS if name.startswith("abs_"))}
)

Array: TypeAlias = npt.NDArray[Any]

_ALIASES = {"l1_norm": "l1", "l2_norm": "l2", "abs_l1_norm": "abs_l1", "abs_l2_norm": "abs_l2", "var": "variance"}

# A float32 block and its float64 one stay in a second-level cache of 1 MiB; the calls cost a tenth of the time.
_BLOCK = 65536
_BINNED = 16384  # a histogram takes several arrays of this size
# sum(x^2) - sum(x)^2 / n keeps nine digits while it is at least this part of sum(x^2); below, the block is centred.
CANCELLATION = 1e-6
# Rows multiplied without looking at exponents. Data with exponents under 1022 / 16 cannot overflow or vanish in them.
_ROWS = 16
_GROUP = 512  # mantissas of at least 1/2 whose product cannot vanish
SAFE_LEAST = 2.0**-960  # a product above it has lost no digits on the way, short of numbers of the same smallness
_HALF_RANGE = 2.0**1023 - 2.0**970  # half the greatest float64
LEAST_EXPONENT = -1080  # a product under 2^-1080 rounds to 0, the least float64 being 2^-1074


def parse_statistic(name: str) -> str:
    """Return the canonical name of a statistic, from STATISTICS: `l2_norm` is `l2`. ConfigurationError if unknown."""
    known = _ALIASES.get(name, name)
    if known in STATISTICS:
        return known
    near = difflib.get_close_matches(str(name), (*STATISTICS, *_ALIASES), n=1, cutoff=0.0)
    raise ConfigurationError(
        f"no statistic {name!r}; did you mean {parse_statistic(near[0])!r}? "
        f"There are {', '.join(REDUCTIONS)}, each also as abs_, and {', '.join(COUNTS)}"
    )


def statistics(array: Array, names: Iterable[str]) -> dict[str, float]:
    """Return the named statistics of the whole array, by canonical name; those its dtype does not define are left out.

    The array has any shape, dtype and memory order, and is not copied as a whole but for median and complex dtypes.
    ConfigurationError for a name that is not a statistic.
    """
    plan = _plan(names if type(names) is tuple else tuple(names))
    array = np.asarray(array)
    nature = _nature(array.dtype)
    if nature == "none":
        return {}
    if array.size == 0:
        return _of_empty(plan.names if nature == "real" else plan.complex_names)
    with np.errstate(all="ignore"):
        if nature == "complex":
            return _of_complex(array, plan.complex_names)
        if array.size == 1:
            return _of_one(float(array.reshape(1).astype(np.float64)[0]), plan.names)
        return _of_real(array, plan)


def statistic(array: Array, name: str) -> float | None:
    """Return one statistic, or None where the dtype does not define it. ConfigurationError for an unknown name."""
    return statistics(array, (name,)).get(parse_statistic(name))


def histogram(array: Array, bins: int = 64) -> tuple[list[float], list[int]] | None:
    """Return bins + 1 ascending edges and bins counts of the finite values, as numpy.histogram draws them.

    The edges go from the least to the greatest finite value; a bin holds its left edge, and the last one both. One
    value alone gets edges half a unit on each side. None without a finite value, and for complex and other dtypes.
    """
    if bins < 1:
        raise ConfigurationError(f"a histogram needs at least one bin, not {bins}")
    array = np.asarray(array)
    if array.size == 0 or _nature(array.dtype) != "real":
        return None
    with np.errstate(all="ignore"):
        low, high = _finite_range(array)
        return None if low > high else _histogram(array, low, high, bins)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the asked names need from each block; each need implies the cheaper ones it is made from."""

    names: tuple[str, ...]
    complex_names: tuple[str, ...]
    native: bool  # the extremes, and no sum
    extremes: bool
    total: bool
    magnitude: bool
    squares: bool
    spread: bool
    abs_low: bool
    abs_spread: bool
    counts: bool
    zeros: bool
    product: bool
    median: bool
    abs_median: bool


@functools.lru_cache(maxsize=256)
def _plan(names: tuple[str, ...]) -> _Plan:
    canonical = tuple(dict.fromkeys(parse_statistic(name) for name in names))
    wanted = set(canonical)
    spread, abs_spread = bool(wanted & {"std", "variance"}), bool(wanted & {"abs_std", "abs_variance"})
    product = bool(wanted & {"prod", "abs_prod"})
    counts = bool(wanted & {"nan_count", "inf_count"})
    medians = bool(wanted & {"median", "abs_median"})
    extremes = product or counts or medians or bool(wanted & {"min", "max", "abs_max", "abs_min"})
    return _Plan(
        names=canonical,
        complex_names=tuple(name for name in canonical if name in COMPLEX_STATISTICS),
        native=wanted <= {"min", "max", "abs_max", "median", *COUNTS},
        extremes=extremes,
        total=spread or bool(wanted & {"sum", "mean"}),
        magnitude=abs_spread or product or bool(wanted & {"l1", "abs_sum", "abs_mean", "abs_l1"}),
        squares=spread or abs_spread or bool(wanted & {"l2", "abs_l2"}),
        spread=spread,
        abs_low="abs_min" in wanted,
        abs_spread=abs_spread,
        counts=counts,
        zeros="zero_count" in wanted,
        product=product,
        median="median" in wanted,
        abs_median="abs_median" in wanted,
    )


@functools.lru_cache(maxsize=256)
def _nature(dtype: np.dtype[Any]) -> str:
    """Say whether a dtype is "real", "complex" or "none" of both. ml_dtypes' are known by what they convert to."""
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


@dataclass(slots=True)
class _Partial:
    """The sums over a part of a tensor that all statistics come from. A field the plan does not need stays unset."""

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    abs_low: float = math.inf
    total: float = 0.0
    magnitude: float = 0.0  # sum(|x|)
    squares: float = 0.0  # sum(x^2)
    spread: float = 0.0  # sum((x - mean)^2)
    abs_spread: float = 0.0  # sum((|x| - mean(|x|))^2)
    nans: int = 0
    infs: int = 0
    zeros: int = 0
    # These three are found from the whole tensor, after the parts have been merged.
    product: float = math.nan
    median: float = math.nan
    abs_median: float = math.nan

    def merge(self, other: _Partial) -> None:
        """Take in a disjoint part (Chan, Golub and LeVeque 1979, equation 2.1b for the spreads)."""
        if self.count:
            weight = self.count / (self.count + other.count) * other.count
            between = other.total / other.count - self.total / self.count
            self.spread += between * between * weight
            between = other.magnitude / other.count - self.magnitude / self.count
            self.abs_spread += between * between * weight
        self.count += other.count
        self.low, self.high = _least(self.low, other.low), -_least(-self.high, -other.high)
        self.abs_low = _least(self.abs_low, other.abs_low)
        self.total += other.total
        self.magnitude += other.magnitude
        self.squares += other.squares
        self.spread += other.spread
        self.abs_spread += other.abs_spread
        self.nans += other.nans
        self.infs += other.infs
        self.zeros += other.zeros


def _least(a: float, b: float) -> float:
    # Python's min() forgets a NaN in the second place.
    return b if b < a or b != b else a


def _of_empty(names: tuple[str, ...]) -> dict[str, float]:
    return {name: 0.0 if name in COUNTS else math.nan for name in names}


def _of_one(value: float, names: tuple[str, ...]) -> dict[str, float]:
    """Statistics of a single number: losses and metrics, which most saved tensors are."""
    size = abs(value)
    deviation = 0.0 if size < math.inf else math.nan
    found = (value, size, deviation, float(value != value), float(size == math.inf), float(value == 0))
    return {name: found[_SLOT_OF_ONE[name]] for name in names}


_SLOT_OF_ONE = (
    {name: 1 if name.startswith("abs_") else 0 for name in STATISTICS}
    | {"l1": 1, "l2": 1, "std": 2, "variance": 2, "abs_std": 2, "abs_variance": 2}
    | {"nan_count": 3, "inf_count": 4, "zero_count": 5}
)


def _of_real(array: Array, plan: _Plan) -> dict[str, float]:
    """Statistics of at least two real numbers."""
    partial = _Partial()
    scratch = _memory(1)
    for source, block in _native_blocks(array) if plan.native else _blocks(array):
        part = _measure(source, block, scratch[: block.size], plan)
        if part.count == array.size:
            partial = part
        else:
            partial.merge(part)
    if plan.product:
        partial.product = _product(partial, array)
    if plan.median:
        partial.median = _median(partial, array)
    if plan.abs_median:
        partial.abs_median = _abs_median(partial, array)
    return {name: _FINISHERS[name](partial) for name in plan.names}


def _blocks(array: Array, size: int = _BLOCK) -> Iterator[tuple[Array, Floats]]:
    """Yield all elements, in memory order, as one-dimensional blocks of at most `size`: as they are, and as float64.

    A block is good until the next one is asked for. The first of the pair is for what must not be slowed or changed by
    a conversion; it is the float64 block itself where numpy would be slower on the dtype.
    """
    flat = _flat(array)
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
    buffer = _memory(0)
    for start in range(0, flat.size, size):
        source = flat[start : start + size]
        block = buffer[: source.size]
        np.copyto(block, source, casting="unsafe")
        yield (source if native else block), block


def _memory(number: int) -> Floats:
    """Return one of the calling thread's two blocks of memory: the pages of fresh memory, which the operating system
    has to find and clear, cost as much as all the rest."""
    memory: tuple[Floats, Floats] | None = getattr(_of_thread, "memory", None)
    if memory is None:
        memory = _of_thread.memory = np.empty(_BLOCK), np.empty(_BLOCK)
    return memory[number]


_of_thread = threading.local()


def _native_blocks(array: Array) -> Iterator[tuple[Array, Floats]]:
    """Yield what `_blocks` yields where only the extremes are asked for: float32 then needs no conversion."""
    flat = _flat(array) if array.dtype == np.float32 else None
    if flat is None:
        yield from _blocks(array)
        return
    for start in range(0, flat.size, _BLOCK):
        source = flat[start : start + _BLOCK]
        yield source, source


def _flat(array: Array) -> Array | None:
    """Return a one-dimensional view of all elements in memory order, or None where that would take a copy."""
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


def _measure(source: Array, block: Floats, scratch: Floats, plan: _Plan) -> _Partial:
    """Reduce one block, in the cache. `scratch` has its size, and gets overwritten."""
    part = _Partial(block.size)
    if plan.extremes:
        part.low, part.high = float(np.minimum.reduce(source)), float(np.maximum.reduce(source))
        if plan.counts and not -math.inf < part.low <= part.high < math.inf:
            part.nans = int(np.count_nonzero(np.isnan(block)))
            part.infs = int(np.count_nonzero(np.isinf(block)))
    if plan.total:
        part.total = total(block)
    if plan.squares:
        part.squares = squares(block)
    if plan.spread:
        part.spread = _centred_squares(block, part.total, part.squares, scratch)
    # Without the extremes, low is +inf and high -inf, which says nothing of the signs.
    if plan.zeros and not (plan.extremes and (part.low > 0 or part.high < 0)):
        part.zeros = int(np.count_nonzero(np.equal(block, 0)))
    if plan.magnitude or plan.abs_low:
        # In the place of the block, which nobody looks at again, where it is not the tensor's own memory.
        _measure_magnitudes(block, part, scratch if source is block else block, plan)
    return part


def _measure_magnitudes(block: Floats, part: _Partial, scratch: Floats, plan: _Plan) -> None:
    same = plan.extremes and part.low >= 0
    magnitudes = block if same else np.absolute(block, out=scratch)
    if plan.magnitude:
        part.magnitude = part.total if same and plan.total else total(magnitudes)
    if plan.abs_low:
        part.abs_low = float(np.minimum.reduce(magnitudes))
    if plan.abs_spread:
        part.abs_spread = _centred_squares(magnitudes, part.magnitude, part.squares, scratch)


def _centred_squares(block: Floats, plain: float, squared: float, scratch: Floats) -> float:
    """Return sum((x - mean)^2) of a block; from the sums alone unless they would cancel. `scratch` may be the block."""
    mean = plain / block.size
    spread = squared - plain * mean
    if CANCELLATION * squared < spread < math.inf:
        return spread
    centred = np.subtract(block, mean, out=scratch)
    # The last term takes out what the rounding of the mean has put in.
    spread, residue = squares(centred), total(centred)
    return max(spread - residue * residue / block.size, 0.0) if spread < math.inf else spread


def _product(part: _Partial, array: Array) -> float:
    """Return the product of all elements, correctly 0 or infinite where it leaves the range of float64."""
    if part.low != part.low:
        return math.nan
    if part.low == -math.inf or part.high == math.inf:
        return _infinite_product(array)
    # The geometric mean of |x| is at most the arithmetic one, so most weights are done here, without another pass.
    if part.magnitude == 0 or part.count * math.log2(part.magnitude / part.count) < LEAST_EXPONENT:
        return 0.0
    mantissa, exponent = 1.0, 0
    for _, block in _blocks(array):
        factor, shift = _scaled_product(block)
        mantissa, carry = math.frexp(mantissa * factor)
        exponent += shift + carry
        if mantissa == 0:
            return 0.0
    return _ldexp(mantissa, exponent)


def _infinite_product(array: Array) -> float:
    """Return the product of numbers of which one is infinite and none NaN."""
    negatives = 0
    for _, block in _blocks(array):
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
        return _product_by_exponents(block)
    columns = block.size // _ROWS
    rows = block[: columns * _ROWS].reshape(_ROWS, columns)
    mantissa, exponent = _product_by_exponents(np.multiply.reduce(rows, axis=0))
    if not 0 < abs(mantissa) < math.inf:  # a column has overflowed or vanished, or there is a zero
        return _product_by_exponents(block)
    factor, shift = _product_by_exponents(block[columns * _ROWS :])
    return mantissa * factor, exponent + shift


def _product_by_exponents(values: Floats) -> tuple[float, int]:
    """Multiply mantissas, which lie in [1/2, 1), in groups too small to vanish, and add up the exponents."""
    exponent = 0
    while True:
        values, exponents = np.frexp(values)
        exponent += int(exponents.sum(dtype=np.int64))
        if values.size <= _GROUP:
            return float(np.multiply.reduce(values)), exponent
        values = np.multiply.reduceat(values, np.arange(0, values.size, _GROUP))


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
    # The magnitude of the least integer does not fit its own dtype.
    return _middle(np.absolute(values if values.dtype.kind == "f" else values.astype(np.float64)))


def _sortable(array: Array) -> Array:
    """Return the array in a dtype that numpy is quick to partition, and that holds its values."""
    if array.dtype.kind in "iu" or array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)


def _middle(values: Array) -> float:
    middle = sorted({(values.size - 1) // 2, values.size // 2})
    ordered = np.partition(values, middle, axis=None)
    return (float(ordered[middle[0]]) + float(ordered[middle[-1]])) / 2


def _of_complex(array: Array, names: tuple[str, ...]) -> dict[str, float]:
    """Statistics of complex numbers, from their magnitudes; std and variance from the distances to the mean."""
    values = np.atleast_1d(array).astype(np.complex128)  # numpy computes numbers of arrays without axes
    magnitudes = np.absolute(values)
    # The magnitude of inf + nan j is infinite by the C standard; here a NaN hides behind nothing.
    magnitudes[np.isnan(values)] = math.nan
    on_magnitudes = {name: _on_magnitudes(name) for name in names if name not in ("std", "variance")}
    found = statistics(magnitudes, on_magnitudes.values())
    result = {name: found[other] for name, other in on_magnitudes.items()}
    if len(result) < len(names):
        distances = np.absolute(values - values.mean())
        variance = statistics(distances, ("l2",))["l2"] ** 2 / values.size if _all_finite(values) else math.nan
        result |= {"variance": variance, "std": math.sqrt(variance)}
    return {name: result[name] for name in names}


def _on_magnitudes(name: str) -> str:
    return name.removeprefix("abs_")


def _all_finite(values: Array) -> bool:
    return bool(np.isfinite(values).all())


def _finite_range(array: Array) -> tuple[float, float]:
    """Return the least and the greatest finite value; (inf, -inf) if there is none."""
    low, high = math.inf, -math.inf
    for source, block in _blocks(array):
        least, greatest = float(np.minimum.reduce(source)), float(np.maximum.reduce(source))
        if not -math.inf < least <= greatest < math.inf:
            finite = block[np.isfinite(block)]
            if not finite.size:
                continue
            least, greatest = float(finite.min()), float(finite.max())
        low, high = min(low, least), max(high, greatest)
    return low, high


def _histogram(array: Array, low: float, high: float, bins: int) -> tuple[list[float], list[int]]:
    scale = 1.0
    if low == high:
        # Half a unit, or what makes the edges differ where the numbers are too large to notice half a unit.
        half = max(0.5, abs(low) * bins * 2.0**-50)
        low, high = low - half, high + half
    if not high - low < math.inf:
        scale = 0.5  # exact, as these are no small numbers
        low, high = max(low * scale, -_HALF_RANGE), min(high * scale, _HALF_RANGE)
    edges: Floats = np.linspace(low, high, bins + 1)
    counts = np.zeros(bins, np.int64)
    for _, block in _blocks(array, _BINNED):
        counts += _bin(block if scale == 1.0 else block * scale, edges)
    return (edges / scale).tolist(), counts.tolist()


def _bin(block: Floats, edges: Floats) -> Array:
    """Count the finite values of a block between the edges, as numpy does for uniform bins."""
    bins, low, width = edges.size - 1, edges[0], edges[-1] - edges[0]
    position = (block - low) / width * bins
    finite = np.isfinite(position)
    if not finite.all():
        block, position = block[finite], position[finite]
    index = np.minimum(position.astype(np.intp), bins - 1)
    # Rounding may have put a value that lies on an edge on its wrong side.
    index -= block < edges[index]
    index += (block >= edges[index + 1]) & (index < bins - 1)
    return np.bincount(index, minlength=bins)


_FINISHERS: dict[str, Callable[[_Partial], float]] = {
    "min": lambda part: part.low,
    "max": lambda part: part.high,
    "mean": lambda part: part.total / part.count,
    "median": lambda part: part.median,
    "std": lambda part: math.sqrt(part.spread / part.count),
    "variance": lambda part: part.spread / part.count,
    "sum": lambda part: part.total,
    "prod": lambda part: part.product,
    "l1": lambda part: part.magnitude,
    "l2": lambda part: math.sqrt(part.squares),
    "abs_min": lambda part: part.abs_low,
    "abs_max": lambda part: -_least(part.low, -part.high),
    "abs_mean": lambda part: part.magnitude / part.count,
    "abs_median": lambda part: part.abs_median,
    "abs_std": lambda part: math.sqrt(part.abs_spread / part.count),
    "abs_variance": lambda part: part.abs_spread / part.count,
    "abs_sum": lambda part: part.magnitude,
    "abs_prod": lambda part: abs(part.product),
    "abs_l1": lambda part: part.magnitude,
    "abs_l2": lambda part: math.sqrt(part.squares),
    "nan_count": lambda part: float(part.nans),
    "inf_count": lambda part: float(part.infs),
    "zero_count": lambda part: float(part.zeros),
}
