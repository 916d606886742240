"""The diagnosis of a run: all rules that its data allows, their findings in order, joined by cause."""

from __future__ import annotations

from .diagnosing import diagnose
from .result import Diagnosis, Problem, Unchecked

__all__ = ["Diagnosis", "Problem", "Unchecked", "diagnose"]
