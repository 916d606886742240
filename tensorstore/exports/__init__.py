"""Runs, taken to where other data lies: `tensortrial.export` and its targets, one file a target."""

from .job import Export, export

__all__ = ["Export", "export"]
