"""The table of statistics: complete, read by every implementation, and shown in the documentation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tensortrial.format.schema import INDEX_SCHEMA
from tensortrial.statistics.batched import statistics_of_many
from tensortrial.statistics.definitions import (
    DEFINITIONS,
    QUANTITIES,
    STATISTICS,
    quantities_of,
)
from tensortrial.statistics.derived import DERIVATIONS, derive
from tensortrial.statistics.single import statistics

DOCS = Path(__file__).parents[3] / "docs"


class Recorder:
    """Stands for an implementation, and keeps which quantities a formula reads."""

    sqrt = staticmethod(math.sqrt)
    maximum = staticmethod(max)
    ratio = staticmethod(lambda numerator, denominator, reliable: numerator / denominator if reliable else math.nan)

    def __init__(self) -> None:
        self.read: list[str] = []

    def __getattr__(self, name: str) -> float:
        self.read.append(name)
        return 4.0


def test_every_statistic_has_a_definition_in_the_order_of_the_index() -> None:
    assert tuple(DEFINITIONS) == STATISTICS
    assert tuple(name for name in INDEX_SCHEMA.names if name in STATISTICS) == STATISTICS


@pytest.mark.parametrize("name", STATISTICS)
def test_a_formula_reads_the_quantities_that_its_definition_names(name: str) -> None:
    recorder = Recorder()
    DEFINITIONS[name].formula(recorder)
    quantities = set(recorder.read) - {"rounding"}
    assert quantities - {"count"} == set(DEFINITIONS[name].needs)
    assert QUANTITIES.keys() >= quantities


def test_every_quantity_is_used() -> None:
    assert quantities_of(STATISTICS) | {"count"} == QUANTITIES.keys()


def test_statistics_of_one_number_follow_the_formulas() -> None:
    for value in (-2.5, 0.0, 7.0):
        twice = statistics(np.array([value, value]), STATISTICS)
        once = statistics(np.array([value]), STATISTICS)
        same = [name for name in STATISTICS if not set(DEFINITIONS[name].needs) & {"total", "magnitude", "norm"}]
        same = [name for name in same if not name.endswith(("prod", "_count"))] + ["mean", "abs_mean"]
        assert [once[name] for name in same] == [twice[name] for name in same]
        assert once["prod"] == once["sum"] == value
        assert once["l1"] == once["l2"] == once["abs_sum"] == once["abs_prod"] == abs(value)
        assert once["zero_count"] == (value == 0)
        assert once["rms"] == abs(value)
        assert twice["rms"] == pytest.approx(abs(value))
        assert all(math.isnan(each[name]) for each in (once, twice) for name in ("skewness", "kurtosis"))


def test_small_arrays_have_every_statistic_of_the_table() -> None:
    arrays = [np.array([1.5, -2.0, 0.25]), np.array([3.0, 4.0])]
    found = statistics_of_many(arrays, STATISTICS)
    for array, each in zip(arrays, found, strict=True):
        assert each == pytest.approx(statistics(array, STATISTICS))


def test_a_product_that_may_overflow_half_way_is_computed_alone() -> None:
    arrays = [np.array([1e300, 1e-300, 1e300, 1e-300]), np.array([2.0, -3.0])]
    for name in ("prod", "abs_prod"):
        assert statistics_of_many(arrays, (name,)) == [statistics(array, (name,)) for array in arrays]


def test_statistics_of_one_formula_derive_from_one_another() -> None:
    for name, definition in DEFINITIONS.items():
        for other in STATISTICS:
            if DEFINITIONS[other].meaning == definition.meaning and not name.endswith("_count"):
                assert derive(name, {other: 3.0}, [2]) == 3.0


def test_derivations_are_between_statistics_of_the_table() -> None:
    for derivation in DERIVATIONS:
        assert {derivation.name, *derivation.needs} <= {*DEFINITIONS, "size"}


def test_the_documentation_shows_the_table() -> None:
    rows = [f"| `{name}` | {each.meaning.replace('|', chr(92) + '|')} |" for name, each in DEFINITIONS.items()]
    assert "\n".join(["| statistic | definition |", "|---|---|", *rows]) in (DOCS / "saving.md").read_text()
