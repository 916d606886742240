"""The first difference of two runs: by digests, or within a tolerance by values and statistics."""

from __future__ import annotations

from .comparing import compare
from .result import Comparison, Difference, FirstDifference, Only

__all__ = ["Comparison", "Difference", "FirstDifference", "Only", "compare"]
