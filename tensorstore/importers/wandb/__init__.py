"""The import of Weights & Biases: its exports, and the .wandb files of its runs."""

from __future__ import annotations

from .job import import_runs

__all__ = ["import_runs"]
