"""The import of runs that smdebug wrote."""

from __future__ import annotations

from .job import import_run, import_runs

__all__ = ["import_run", "import_runs"]
