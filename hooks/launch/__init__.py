"""Hooks for a script that knows nothing of them: `python -m tensortrial run train.py`.

Nothing of a framework is imported before the script does so. When it has, the framework's own module prepares for a
training: `hooks/<framework>/launched.py`.
"""

from __future__ import annotations

from .installation import install
from .launch import Launch

__all__ = ["Launch", "install"]
