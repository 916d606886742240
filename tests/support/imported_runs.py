"""What tests of importers ask of the runs that were imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensortrial


def values(run: str | Path, name: str) -> dict[int, float]:
    """Return the values of a scalar by step."""
    return {step: float(value) for step, value in tensortrial.create_trial(str(run)).tensor(name).values().items()}


def metadata(run: str | Path) -> dict[str, Any]:
    return dict(tensortrial.create_trial(str(run)).info.metadata)


def import_quietly(
    import_runs: Callable[..., list[str]], source: Any, target: Any, **options: Any
) -> tuple[list[str], list[str]]:
    """Import, and return the paths of the runs and the sentences about what was left out."""
    reported = list[str]()
    return import_runs(source, target, progress=False, report=reported.append, **options), reported


def interrupt_writer(monkeypatch: Any, after: int) -> None:
    """Make the writer fail as by Ctrl-C after some steps."""
    from tensortrial.write.writer import Writer

    put, calls = Writer.put, [0]

    def interrupted(self: Writer, *arguments: Any, **options: Any) -> None:
        calls[0] += 1
        if calls[0] > after:
            raise KeyboardInterrupt
        put(self, *arguments, **options)

    monkeypatch.setattr(Writer, "put", interrupted)
