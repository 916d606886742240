"""The derivation of statistics from other saved ones, for rules, `reduction_value` and named queries.

Derivations with cancellation are left out: `variance` is not derived from `l2` and `mean`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache

_Formula = Callable[..., float]


@dataclass(frozen=True)
class Derivation:
    """The formula of a statistic from others, in Python and in SQL; `size` is the number of elements."""

    name: str
    needs: tuple[str, ...]
    formula: _Formula
    sql: str


def _norm(variance: float, mean: float, size: float) -> float:
    return math.sqrt(size * (variance + mean * mean))


DERIVATIONS = (
    Derivation("variance", ("std",), lambda std: std * std, '"std" * "std"'),
    Derivation("std", ("variance",), math.sqrt, 'sqrt("variance")'),
    Derivation("abs_variance", ("abs_std",), lambda std: std * std, '"abs_std" * "abs_std"'),
    Derivation("abs_std", ("abs_variance",), math.sqrt, 'sqrt("abs_variance")'),
    Derivation("l1", ("abs_l1",), lambda l1: l1, '"abs_l1"'),
    Derivation("l1", ("abs_sum",), lambda total: total, '"abs_sum"'),
    Derivation("l1", ("abs_mean", "size"), lambda mean, size: mean * size, '"abs_mean" * {size}'),
    Derivation("abs_l1", ("l1",), lambda l1: l1, '"l1"'),
    Derivation("abs_sum", ("l1",), lambda l1: l1, '"l1"'),
    Derivation("mean", ("sum", "size"), lambda total, size: total / size, '"sum" / {size}'),
    Derivation("sum", ("mean", "size"), lambda mean, size: mean * size, '"mean" * {size}'),
    Derivation("abs_mean", ("l1", "size"), lambda l1, size: l1 / size, '"l1" / {size}'),
    Derivation("l2", ("abs_l2",), lambda l2: l2, '"abs_l2"'),
    Derivation("l2", ("rms", "size"), lambda rms, size: rms * math.sqrt(size), '"rms" * sqrt({size})'),
    Derivation("rms", ("l2", "size"), lambda l2, size: l2 / math.sqrt(size), '"l2" / sqrt({size})'),
    Derivation("l2", ("variance", "mean", "size"), _norm, 'sqrt({size} * ("variance" + "mean" * "mean"))'),
    Derivation(
        "l2",
        ("abs_variance", "abs_mean", "size"),
        _norm,
        'sqrt({size} * ("abs_variance" + "abs_mean" * "abs_mean"))',
    ),
    Derivation("abs_l2", ("l2",), lambda l2: l2, '"l2"'),
    Derivation(
        "abs_max",
        ("min", "max"),
        lambda least, most: max(abs(least), abs(most)),
        'case when "min" is not null and "max" is not null then greatest(abs("min"), abs("max")) end',
    ),
    Derivation("abs_prod", ("prod",), abs, 'abs("prod")'),
)
"""Derivations, in the order in which they are tried."""
_BY_NAME = {
    name: tuple(each for each in DERIVATIONS if each.name == name) for name in {each.name for each in DERIVATIONS}
}


def derive(name: str, saved: Mapping[str, float], shape: Sequence[int]) -> float | None:
    """Return a statistic, such as `abs_mean`, that can be derived from saved ones; None if it cannot.

    `shape` may be unknown, `[-1]`.
    """
    size = math.prod(shape)
    known = {**saved, "size": float(size)} if size > 0 else dict(saved)
    return known[name] if name in saved else _derived(name, known, frozenset({name}))


def _derived(name: str, known: Mapping[str, float], open_names: frozenset[str]) -> float | None:
    """Return a statistic by the first formula whose inputs are known or can be derived; None if there is none.

    `open_names` are the statistics that callers are deriving already.
    """
    for derivation in _BY_NAME.get(name, ()):
        found = [
            known[need] if need in known else None if need in open_names else _derived(need, known, open_names | {need})
            for need in derivation.needs
        ]
        if None not in found:
            return _computed(derivation.formula, found)
    return None


def _computed(formula: _Formula, values: Sequence[float | None]) -> float:
    try:
        return float(formula(*values))
    except ValueError:  # warnings of the root of infinity minus infinity
        return math.nan


# The bytes of plain numbers, by numpy's dtypes. The size of other tensors is null.
_ITEM_BYTES = {
    1: ("bool", "int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    2: ("int16", "uint16", "float16", "bfloat16"),
    4: ("int32", "uint32", "float32"),
    8: ("int64", "uint64", "float64"),
}
SIZED = frozenset(name for names in _ITEM_BYTES.values() for name in names)
"""The dtypes of which `expression` knows the number of elements."""
SIZE = "nullif(nbytes / case {} end, 0)".format(
    " ".join(f"when dtype in ({', '.join(map(repr, names))}) then {nbytes}" for nbytes, names in _ITEM_BYTES.items())
)
"""SQL for the number of elements, null for dtypes that are not plain numbers."""


@cache
def expression(name: str, size: str = SIZE) -> str:
    """Return SQL over the view `tensors` for a statistic that was saved, or can be derived from saved ones.

    `size` is the number of elements: `SIZE`, null for dtypes that are not plain numbers, or a column that has it.
    """
    return size if name == "size" else _expression(name, frozenset({name}), size)


def _expression(name: str, open_names: frozenset[str], size: str) -> str:
    terms = [f'"{name}"']
    for derivation in _BY_NAME.get(name, ()):
        if open_names.isdisjoint(derivation.needs):
            inner = open_names | set(derivation.needs)
            text = _QUOTED.sub(lambda found, inner=inner: _expression(found[1], inner, size), derivation.sql)  # type: ignore[misc]
            terms.append(text.format(size=size))
    return terms[0] if len(terms) == 1 else f"coalesce({', '.join(terms)})"


def has_expression(name: str, saved: AbstractSet[str], open_names: AbstractSet[str] = frozenset()) -> bool:
    """Return whether `expression` of a statistic has a value in rows with the statistics `saved`, and maybe `size`."""
    return name in saved or any(
        open_names.isdisjoint(each.needs)
        and all(has_expression(need, saved, {name, *open_names, *each.needs}) for need in each.needs)
        for each in _BY_NAME.get(name, ())
    )


def of_scalar(name: str) -> str:
    """Return SQL over the view `tensors` for a statistic of a scalar, which has one element."""
    return _OF_SCALARS.get(name, "null")


_OF_SCALARS = {
    **dict.fromkeys(("min", "max", "mean", "median", "sum", "prod"), "scalar"),
    **dict.fromkeys(
        ("l1", "l2", "rms", *(f"abs_{each}" for each in ("min", "max", "mean", "median", "sum", "prod", "l1", "l2"))),
        "abs(scalar)",
    ),
    **dict.fromkeys(("std", "variance", "abs_std", "abs_variance"), "scalar - scalar"),
    "nan_count": "cast(isnan(scalar) as double)",
    "inf_count": "cast(isinf(scalar) as double)",
    "zero_count": "cast(scalar = 0 as double)",
}
_QUOTED = re.compile(r'"(\w+)"')
