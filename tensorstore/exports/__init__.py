"""Exports of runs to databases, table formats and files: `tensortrial.export` and its targets, one file a target."""

from .job import Export, export
from .run_table import run_table

__all__ = ["Export", "export", "run_table"]
