"""The installation of tensortrial's aliases in a process that finds this package on its module search path."""

import importlib
import os
import sys

try:
    aliases = importlib.import_module("tensortrial.smdebug")
except ModuleNotFoundError as exc:
    if exc.name != "tensortrial":
        raise
    # Another Python, which may have smdebug.
    sys.path.remove(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
else:
    aliases.install(shadow=True)
sys.modules.pop(__name__, None)
# The alias replaces this module.
importlib.import_module(__name__)
