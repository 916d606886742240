"""Hooks what trains in a Python process that a launched script starts. Then it is as if this package were not there."""

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

try:
    from tensortrial.hooks.launch.installation import install_here
except ImportError:
    pass  # another Python, which does not have this project
else:
    install_here()

# Another sitecustomize, which this one hides, takes its place.
_hidden = [folder for folder in sys.path if os.path.abspath(folder) != _FOLDER]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _hidden)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
