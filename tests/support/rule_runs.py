"""What the tests of built-in rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tensortrial
from tensortrial.rules import Finding

Write = Callable[..., tensortrial.Trial]
LOSSES = {"collections": ("losses",)}
GRADIENTS = {"collections": ("gradients",)}


def fired(findings: list[Finding]) -> list[int | None]:
    """Return the steps of findings."""
    return [finding.step for finding in findings]


def losses(values: Iterable[float | None], name: str = "loss") -> list[dict[str, float] | None]:
    """Return steps that save a loss, or nothing for None."""
    return [None if value is None else {name: value} for value in values]
