"""What the environment says of all hooks of a process."""

from __future__ import annotations

import os

_OFF_VARIABLES = ("TENSORTRIAL", "USE_SMDEBUG")


def switched_on() -> bool:
    """Return whether hooks save anything: not with TENSORTRIAL=0 or USE_SMDEBUG=0."""
    return all(os.environ.get(name, "1").lower() not in ("0", "false") for name in _OFF_VARIABLES)
