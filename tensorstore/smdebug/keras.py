"""The Keras hook, as scripts for smdebug use it."""

from __future__ import annotations

from typing import Any

from tensortrial.hooks.keras.backend import unconverted
from tensortrial.hooks.keras.hook import KerasHook as NativeHook

from .hooks import ScriptHook, scalar_name


class KerasHook(ScriptHook, NativeHook):  # type: ignore[misc]  # each has a recorder; that of Keras leads others
    """The Keras hook, as scripts for smdebug use it."""

    @unconverted
    def save_scalar(self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Save a number as `scalar/<name>`.

        Args:
            name: The name of the number.
            value: The number, or a tensor with one element.
            sm_metric: Add it to the collection `sm_metrics`.
            timestamp: When it was measured, in seconds since 1970; now if None.
        """
        NativeHook.save_scalar(self, scalar_name(name), value, sm_metric, timestamp)
