"""The installation of the launch in child processes. Afterwards Python continues as without this package."""

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

try:
    from tensortrial.hooks.launch.installation import install_here
except ImportError:
    pass  # a child process by another Python, which lacks this project
else:
    install_here()

# Import another sitecustomize that this one hides.
_hidden = [folder for folder in sys.path if os.path.abspath(folder) != _FOLDER]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _hidden)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
