"""The Lightning package, by the name under which the job imports it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tensortrial.errors import MissingExtra

from ..library.versions import check_version

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _imported() -> Any:
    # The imported name comes first, so that a job with the older name does not load the library twice.
    names = sorted(_NAMES, key=lambda name: name not in sys.modules)
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingExtra("lightning", "lightning", "the callback for Lightning")


lightning = _imported()
check_version("lightning", lightning.__version__, oldest="2.0", newest_tested="2.6")
