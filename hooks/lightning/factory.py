"""The entry point `lightning.pytorch.callbacks_factory`: a callback that an environment variable switches on."""

from __future__ import annotations

import os
from typing import Any

from tensortrial.truth import truth_of

from ..core.log import logger
from ..launch.launch import active_launch
from ..library.integrations import arguments_in

VARIABLE = "TENSORTRIAL_LIGHTNING"
"""Set it to 1, or to a JSON object of arguments for the callback: {"out_dir": "runs/x", "save_all": true}."""


def callbacks() -> list[Any]:
    """Return the callbacks that Lightning adds to each Trainer.

    There are none unless TENSORTRIAL_LIGHTNING is set or the script was started by `tensortrial run`.
    """
    value = os.environ.get(VARIABLE, "").strip()
    if truth_of(value) is False:
        return []
    if not value:
        return _launched()
    from .callback import Callback

    try:
        return [Callback(**arguments_in(VARIABLE))]
    except (TypeError, ValueError) as exc:
        # An error in the variable must not end a training that does not use this project itself.
        logger.error("nothing is saved, because of %s: %s", VARIABLE, exc)
        return []


def _launched() -> list[Any]:
    if active_launch() is None:
        return []
    from .launched import LaunchedCallback

    return [LaunchedCallback()]
