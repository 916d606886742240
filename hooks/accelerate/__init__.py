"""The tracker for Hugging Face Accelerate.

from tensortrial.hooks.accelerate import Tracker

tracker = Tracker("runs/net", include_collections=["gradients"])
accelerator = Accelerator(log_with=tracker, gradient_accumulation_steps=4)
"""

from __future__ import annotations

from .tracker import Tracker

__all__ = ["Tracker"]
