"""Installs tensortrial's aliases of smdebug's names in a process that finds this package on its module search path."""

import importlib
import os
import sys

# The process that started this one has said on stderr that it shadows an installed smdebug.
os.environ.setdefault("TENSORTRIAL_SHADOW_SMDEBUG", "1")
aliases = importlib.import_module("tensortrial.smdebug")
aliases.install(shadow=True)
sys.modules.pop(__name__, None)
# The alias takes the place of this module.
importlib.import_module(__name__)
