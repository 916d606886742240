"""The log of all hooks."""

from __future__ import annotations

import logging

logger = logging.getLogger("tensortrial.hooks")
