"""The installation of a launch in this process and its child processes."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path

from tensortrial.errors import ConfigurationError
from tensortrial.script import add_to_python_path

from ..core.log import logger
from .imports import after_import
from .launch import Launch

_FRAMEWORKS = {
    "torch": "tensortrial.hooks.pytorch.launched",
    "transformers.trainer": "tensortrial.hooks.transformers.launched",
    "keras": "tensortrial.hooks.keras.launched",
    "xgboost": "tensortrial.hooks.xgboost.launched",
}
"""The modules of frameworks, each with the module whose `activate` is called after the import.

Lightning uses an entry point instead.
"""

_PATH = str(Path(__file__).resolve().parent / "path")
"""The folder of a package `sitecustomize`, which Python imports when it starts."""


def install(launch: Launch) -> None:
    """Hook the trainings of this process and of its child processes."""
    launch.to_environment()
    add_to_python_path(_PATH)
    install_here()


def install_here() -> None:
    """Hook the trainings of this process, if the environment variable of a launch is set."""
    try:
        launch = Launch.from_environment()
    except ConfigurationError as exc:
        logger.error("nothing is saved: %s", exc)
        return
    if launch is not None:
        for framework, module in _FRAMEWORKS.items():
            after_import(framework, partial(_activate, module))


def _activate(module: str) -> None:
    try:
        importlib.import_module(module).activate()
    except Exception:  # an error here must not break the script's import
        logger.exception("nothing of this framework is saved")
