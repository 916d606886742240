"""TensorBoard's own reader of event files, without TensorFlow where that is installed too: it would take seconds."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest


def read_events(folder: Path) -> object:
    """The folder's EventAccumulator, with everything in it loaded."""
    pytest.importorskip("tensorboard")
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "histograms", "tensors"), 0))
    return found.Reload()
