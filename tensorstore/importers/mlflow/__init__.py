"""The import of MLflow's stores."""

from __future__ import annotations

from .job import import_runs

__all__ = ["import_runs"]
