"""Constants and small functions of smdebug.core and smdebug.analysis that scripts use."""

from __future__ import annotations

import logging
import os
from typing import Any

from tensortrial.config.reduction_config import boolean
from tensortrial.mode import ModeKeys

SCALAR_PREFIX = "scalar/"

ALLOWED_REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]
ALLOWED_NORMS = ["l1", "l2"]
ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]

DEFAULT_WORKER_NAME = "worker_0"
DEFAULT_SAGEMAKER_OUTDIR = "/opt/ml/output/tensors"
DEFAULT_SAGEMAKER_TENSORBOARD_PATH = "/opt/ml/output/tensorboard"
DEFAULT_CONFIG_FILE_PATH = "/opt/ml/input/config/debughookconfig.json"
CONFIG_FILE_PATH_ENV_STR = "SMDEBUG_CONFIG_FILE_PATH"
TENSORBOARD_CONFIG_FILE_PATH_ENV_STR = "TENSORBOARD_CONFIG_FILE_PATH"
CHECKPOINT_CONFIG_FILE_PATH_ENV_VAR = "CHECKPOINT_CONFIG_FILE_PATH"
INCOMPLETE_STEP_WAIT_WINDOW_KEY = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")


def get_logger(name: str = "smdebug") -> logging.Logger:
    """Return a logger.

    Args:
        name: Its name.

    Returns:
        The logger.
    """
    return logging.getLogger(name)


def str2bool(value: bool | str) -> bool:
    """Return the truth value that a command line's text stands for.

    Args:
        value: y, yes, t, true, on or 1; n, no, f, false, off or 0; in any case. Or a truth value.

    Returns:
        The truth value.

    Raises:
        ValueError: The text is another one.
    """
    if isinstance(value, bool):
        return value
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ValueError(f"invalid truth value {value!r}; use one of {', '.join((*_TRUE, *_FALSE))}")


def parse_bool(value: Any, default: bool = False) -> bool:
    """Return a truth value that may be a string.

    Args:
        value: The value; None for the default.
        default: What None stands for.

    Returns:
        The truth value.
    """
    return default if value is None else boolean("value", value)


def is_s3(path: str) -> tuple[bool, str, str]:
    """Return whether a path is a URL of S3, with its bucket and its path in the bucket.

    Args:
        path: The path or URL.

    Returns:
        Whether it is one, the bucket and the path; both are empty for another path.
    """
    if not path.startswith("s3://"):
        return False, "", ""
    bucket, _, prefix = path.removeprefix("s3://").partition("/")
    return True, bucket, prefix


def ensure_dir(file_path: str, is_file: bool = True) -> None:
    """Make a folder, or that of a file.

    Args:
        file_path: The path.
        is_file: Whether it is that of a file.
    """
    os.makedirs(os.path.dirname(file_path) or "." if is_file else file_path, exist_ok=True)


def str_to_mode_keys(mode: str) -> ModeKeys:
    """Return the mode of a name.

    Args:
        mode: The name, in any case.

    Returns:
        The mode.
    """
    return ModeKeys.parse(mode)


def has_training_ended(path: str) -> bool:
    """Return whether the job of a run has ended.

    Args:
        path: The run's folder or URL.

    Returns:
        True once it has; False where there is no run, or none yet.
    """
    from tensortrial.errors import RunError
    from tensortrial.read.opening import create_trial

    try:
        return create_trial(path).loaded_all_steps
    except RunError:
        return False
