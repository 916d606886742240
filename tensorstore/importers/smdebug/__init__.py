"""The import of runs that smdebug wrote."""

from __future__ import annotations

from .job import import_run

__all__ = ["import_run"]
