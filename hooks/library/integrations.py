"""Functions that the callbacks for training libraries share: folders, arguments, logs and checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from numbers import Real
from typing import Any

from tensortrial.errors import ConfigurationError, UnsupportedValue
from tensortrial.mode import ModeKeys
from tensortrial.truth import truth_of

from ..core.base_hook import BaseHook
from ..core.user_values import as_number

OUT_DIR_VARIABLE = "TENSORTRIAL_OUT_DIR"


def default_out_dir(parent: str | os.PathLike[str], resumes: bool, name: str = "tensortrial") -> str:
    """Return the folder of a run for which the user chose none: TENSORTRIAL_OUT_DIR, else `<parent>/<name>`.

    If that run exists, -2, -3 and so on is appended, unless the newest one there is continued.
    """
    if found := os.environ.get(OUT_DIR_VARIABLE):
        return found
    first = newest = os.path.join(os.fspath(parent), name)
    count = 1
    while os.path.isdir(newest):
        count += 1
        previous, newest = newest, f"{first}-{count}"
    return previous if resumes and count > 1 else newest


def arguments_in(variable: str) -> dict[str, Any]:
    """Return the arguments for a callback from an environment variable, which is unset, 1, true or a JSON object.

    Raises:
        ConfigurationError: The value is anything else.
    """
    value = os.environ.get(variable, "").strip()
    if not value or truth_of(value):
        return {}
    try:
        found = json.loads(value)
    except ValueError as exc:
        raise ConfigurationError(f"{variable} must be 1, or a JSON object of arguments for a callback: {exc}") from exc
    if not isinstance(found, dict):
        raise ConfigurationError(f"{variable} must be 1, or a JSON object of arguments for a callback, got {value}")
    return found


def numbers_in(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of a library's logs that are numbers, or arrays or tensors of one element."""
    found = {}
    for name, value in logs.items():
        is_one = value.numel() == 1 if hasattr(value, "numel") else getattr(value, "size", 0) == 1
        if is_one or isinstance(value, Real):
            with suppress(UnsupportedValue):  # text or a complex number
                found[name] = as_number(value)
    return found


def continue_at(hook: BaseHook, step: int) -> None:
    """Let a training that resumes from a checkpoint replace the steps that were saved after the checkpoint.

    `step` is the number of the step in mode TRAIN that comes next.
    """
    if hook.mode_steps.get(ModeKeys.TRAIN, -1) >= step:
        hook.resume_at(step, ModeKeys.TRAIN)
