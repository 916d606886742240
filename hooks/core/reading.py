"""Reading, for scripts that save and read. Imported when used: it needs DuckDB, and a training job seldom reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensortrial.read.trial import Trial


def create_trial(*args: Any, **options: Any) -> Trial:
    """Open a run: see `tensortrial.create_trial`."""
    import tensortrial

    return tensortrial.create_trial(*args, **options)
