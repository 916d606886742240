"""The differences of two runs, tensor by tensor, as `tensortrial.compare` finds them."""

from __future__ import annotations

import json
import shlex
from typing import Any

from ..comparison import Comparison, Difference, compare
from ..nested import flat
from .open_run import OpenRun
from .payload import number

_MOST_ROWS = 2_000
_OF_A_PROCESS = ("process_id",)


def difference(a: OpenRun, b: OpenRun, rtol: float | None = None, atol: float | None = None) -> dict[str, Any]:
    """Return the tensors that differ between two runs, the first difference first, as docs/page.md describes.

    Elements agree if |a-b| <= atol + rtol*|b|; without both, bit by bit.
    """
    found = a.kept(
        ("difference", b.name, b.refresh(), rtol, atol), lambda: compare(a.trial, b.trial, rtol=rtol, atol=atol)
    )
    first = found.first
    rows = [_row(each, first is not None and each == first.difference) for each in found.differences]
    rows.sort(key=lambda row: not row["first"])
    return {
        "sentence": found.sentence,
        "lastAgreeing": first.last_agreeing if first is not None else None,
        "lines": _lines(found, a.name, b.name),
        "rows": rows[:_MOST_ROWS],
        "more": max(0, len(rows) - _MOST_ROWS),
        "same": found.same,
        "about": _about(a, b),
    }


def _about(a: OpenRun, b: OpenRun) -> list[list[Any]]:
    """Return differences of metadata, commit, command, packages and hyperparameters: name, value of a, value of b."""
    of_a, of_b = (_facts(run) for run in (a, b))
    both = {name: (of_a.get(name), of_b.get(name)) for name in [*of_a, *of_b]}
    return [[name, *values] for name, values in both.items() if len({*map(json.dumps, values)}) > 1]


def _facts(run: OpenRun) -> dict[str, Any]:
    environment = {key: value for key, value in run.trial.environment().items() if key not in _OF_A_PROCESS}
    if command := environment.get("command"):
        environment["command"] = shlex.join(command)
    notes = {"framework": run.info.framework, "versions": run.info.versions}
    return flat({**run.info.metadata, **notes, **environment})


def _row(found: Difference, is_first: bool) -> dict[str, Any]:
    return {
        "name": found.label,
        "mode": found.mode,
        "worker": found.worker or found.worker_b,
        "step": found.step,
        "kind": found.kind,
        "what": str(found),
        "maxAbs": number(found.max_abs),
        "ulps": found.ulps if found.ulps is None else str(found.ulps),
        "elements": found.elements,
        "first": is_first,
    }


def _lines(found: Comparison, a: str, b: str) -> list[str]:
    """Return sentences about tensors of only one run, tensors that could not be compared, and other limits."""
    only = [*found.only_a.lines(a), *found.only_b.lines(b)]
    return [*only, *(f"not compared: {path}: {why}" for path, why in found.damaged.items()), *found.notes]
