"""The hook of an unmodified script: `python -m tensortrial run train.py`."""

from __future__ import annotations

from ...launch.launch import active_launch
from .models import LaunchedModels

__all__ = ["activate"]


def activate() -> None:
    """Hook the models that begin to train in this process."""
    launch = active_launch()
    if launch is not None:
        LaunchedModels(launch).install()
