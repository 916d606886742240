"""Whether hooks store values as scripts for smdebug read them: `tensortrial.smdebug` turns it on."""

from __future__ import annotations

_enabled = False


def store_as_smdebug(enabled: bool = True) -> None:
    """Let the hooks of this process store values under the names and in the shapes that smdebug's scripts read."""
    global _enabled
    _enabled = enabled


def stores_as_smdebug() -> bool:
    """Return whether hooks store values as scripts for smdebug read them."""
    return _enabled
