"""What tests of importers ask of the runs that were imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import tensortrial


def values(run: str | Path, name: str, **options: Any) -> dict[int, float]:
    """Return the values of a scalar by step."""
    trial = tensortrial.create_trial(str(run), **options)
    return {step: float(value) for step, value in trial.tensor(name).values().items()}


def metadata(run: str | Path) -> dict[str, Any]:
    return dict(tensortrial.create_trial(str(run)).info.metadata)


def import_quietly(
    import_runs: Callable[..., list[str]], source: Any, target: Any, **options: Any
) -> tuple[list[str], list[str]]:
    """Import, and return the paths of the runs and the sentences about what was left out."""
    reported = list[str]()
    return import_runs(source, target, progress=False, report=reported.append, **options), reported


def interrupt_import(monkeypatch: Any, after: int) -> None:
    """Make imports fail as by Ctrl-C before more than so many numbers are published, in files of as many."""
    from tensortrial.importers import numbers

    write_index, published = numbers.write_index, [0]

    def interrupted(sink: Any, table: pa.Table, *arguments: Any) -> None:
        published[0] += len(table)
        if published[0] > after:
            raise KeyboardInterrupt
        write_index(sink, table, *arguments)

    monkeypatch.setattr(numbers, "write_index", interrupted)
    monkeypatch.setattr(numbers, "_FILE_ROWS", after)
