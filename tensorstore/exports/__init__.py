"""Exports of runs to databases, table formats and files: `tensortrial.export` and its targets, one file a target."""

from .job import Export, export

__all__ = ["Export", "export"]
