"""The import of Aim's repositories."""

from __future__ import annotations

from .job import import_runs

__all__ = ["import_runs"]
