"""The files and folders through which SageMaker configures a training job."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from tensortrial.errors import ConfigurationError

logger = logging.getLogger("tensortrial.hooks")

HOOK_VARIABLE = "SMDEBUG_CONFIG_FILE_PATH"
TENSORBOARD_VARIABLE = "TENSORBOARD_CONFIG_FILE_PATH"
CHECKPOINT_VARIABLE = "CHECKPOINT_CONFIG_FILE_PATH"

HOOK_CONFIGURATION = "/opt/ml/input/config/debughookconfig.json"
TENSORBOARD_CONFIGURATION = "/opt/ml/input/config/tensorboardoutputconfig.json"
CHECKPOINT_CONFIGURATION = "/opt/ml/input/config/checkpointconfig.json"
OUTPUT_FOLDER = "/opt/ml/output/tensors"
TENSORBOARD_FOLDER = "/opt/ml/output/tensorboard"
CHECKPOINT_FOLDER = "/opt/ml/checkpoints"


def hook_configuration_path() -> str:
    """Return the path of the hook's configuration: that of the environment variable, else SageMaker's."""
    return os.environ.get(HOOK_VARIABLE) or HOOK_CONFIGURATION


_warnings: set[str] = set()


def has_hook_configuration() -> bool:
    """Return whether a hook's configuration exists, and log the path if the variable names a file that is missing."""
    path = hook_configuration_path()
    found = os.path.exists(path)
    if not found and os.environ.get(HOOK_VARIABLE):
        logger.warning("no hook is created: the file %s, which %s names, does not exist", path, HOOK_VARIABLE)
    return found


def output_folder(s3_output_path: Any) -> str:
    """Return the folder that SageMaker uploads to S3.

    Raises:
        ConfigurationError: It does not exist: the job does not run on SageMaker.
    """
    if os.path.isdir(OUTPUT_FOLDER):
        return OUTPUT_FOLDER
    direct = f"; to save to S3 directly, set LocalPath to {s3_output_path!r}" if s3_output_path else ""
    raise ConfigurationError(
        f"the configuration has no LocalPath, and SageMaker's folder {OUTPUT_FOLDER} does not exist; set LocalPath to "
        f"the folder or URL to save to{direct}"
    )


def tensorboard_output() -> tuple[bool, str | None]:
    """Return whether SageMaker's configuration asks for event files of TensorBoard, and their folder."""
    document = _read(TENSORBOARD_VARIABLE, TENSORBOARD_CONFIGURATION)
    return (False, None) if document is None else (True, document.get("LocalPath") or TENSORBOARD_FOLDER)


def checkpoint_folder() -> str | None:
    """Return the folder of the job's checkpoints; None if no configuration names one."""
    document = _read(CHECKPOINT_VARIABLE, CHECKPOINT_CONFIGURATION)
    return None if document is None else str(document.get("LocalPath") or CHECKPOINT_FOLDER)


def continues_from_checkpoint() -> bool:
    """Return whether the job was interrupted before, and goes on from a checkpoint: its folder has files already."""
    folder = checkpoint_folder()
    return folder is not None and Path(folder).is_dir() and any(Path(folder).iterdir())


def _read(variable: str, default: str) -> dict[str, Any] | None:
    """Return a configuration; None if there is none. One that cannot be read is logged: training goes on without."""
    path = os.environ.get(variable) or default
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if not isinstance(document, dict):
            raise ValueError(f"it must be a JSON object, got {document!r:.200}")
    except FileNotFoundError:
        if os.environ.get(variable):
            _warn_once(f"{variable} names the file {path}, which does not exist")
        return None
    except (OSError, ValueError) as exc:
        _warn_once(f"{path} cannot be read and is ignored: {exc}")
        return None
    return document


def _warn_once(text: str) -> None:
    """Log a warning unless it was logged before: a hook reads a configuration several times."""
    if text not in _warnings:
        _warnings.add(text)
        logger.warning("%s", text)
