"""The files and folders of a training job in SageMaker: its configuration, and its steps at the last checkpoint."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensortrial.errors import ConfigurationError
from tensortrial.mode import ModeKeys

from ..log import logger

HOOK_VARIABLE = "SMDEBUG_CONFIG_FILE_PATH"
TENSORBOARD_VARIABLE = "TENSORBOARD_CONFIG_FILE_PATH"
CHECKPOINT_VARIABLE = "CHECKPOINT_CONFIG_FILE_PATH"

HOOK_CONFIGURATION = "/opt/ml/input/config/debughookconfig.json"
TENSORBOARD_CONFIGURATION = "/opt/ml/input/config/tensorboardoutputconfig.json"
CHECKPOINT_CONFIGURATION = "/opt/ml/input/config/checkpointconfig.json"
OUTPUT_FOLDER = "/opt/ml/output/tensors"
TENSORBOARD_FOLDER = "/opt/ml/output/tensorboard"
CHECKPOINT_FOLDER = "/opt/ml/checkpoints"
_STATE_FILE = "metadata.json"


def hook_configuration_path() -> str:
    """Return the path of the hook's configuration: that of the environment variable, else SageMaker's."""
    return os.environ.get(HOOK_VARIABLE) or HOOK_CONFIGURATION


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


def _checkpoint_folder() -> str | None:
    """Return the folder of the job's checkpoints; None if no configuration names one."""
    document = _read(CHECKPOINT_VARIABLE, CHECKPOINT_CONFIGURATION)
    return None if document is None else str(document.get("LocalPath") or CHECKPOINT_FOLDER)


def continues_from_checkpoint() -> bool:
    """Return whether the job was interrupted before, and goes on from a checkpoint: its folder has files already."""
    folder = _checkpoint_folder()
    return folder is not None and Path(folder).is_dir() and any(Path(folder).iterdir())


class CheckpointSteps:
    """The steps at the last checkpoint in the folder that SageMaker's configuration names, if it names one.

    SageMaker keeps the folder, and starts an interrupted job again with an empty out_dir. The steps are kept next to
    the checkpoints, in the file of smdebug. The one worker of a job that `writes` does so when the folder has changed.
    """

    def __init__(self, writes: bool) -> None:
        self._folder = _checkpoint_folder()
        self.writes = writes and self._folder is not None
        """True if steps are kept."""
        self._changed_at = self._newest_change() if self.writes else 0

    def read(self) -> dict[ModeKeys, int]:
        """Return the number of the newest step of each mode, of GLOBAL over all modes; empty if none were kept."""
        if self._folder is None:
            return {}
        path = os.path.join(self._folder, _STATE_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                newest = json.load(file)[-1]["latest-mode-step"]
            return {ModeKeys.parse(mode): int(step) for mode, step in newest.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as exc:
            logger.warning("steps are counted from 0, because %s cannot be read: %s", path, exc)
            return {}

    def keep(self, newest: Mapping[ModeKeys, int]) -> None:
        """Keep the newest steps, if a checkpoint was written since the last call. An error is logged."""
        changed_at = self._newest_change()
        if changed_at != self._changed_at:
            self._changed_at = changed_at
            self._write(newest)

    def _newest_change(self) -> int:
        try:
            with os.scandir(self._folder) as entries:
                times = [entry.stat().st_mtime_ns for entry in entries if not entry.name.startswith(_STATE_FILE)]
        except FileNotFoundError:
            return 0  # a checkpoint, or the folder, that was removed meanwhile
        except OSError as exc:
            self._give_up(exc)
            return 0
        return max(times, default=0)

    def _write(self, newest: Mapping[ModeKeys, int]) -> None:
        latest = newest[ModeKeys.GLOBAL]
        state = {
            "training-run": 0,
            "latest-global-step-saved": latest,
            "latest-global-step-seen": latest,
            "latest-mode-step": {mode.name: step for mode, step in newest.items()},
        }
        path = os.path.join(self._folder or "", _STATE_FILE)
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump([state], file)
            os.replace(f"{path}.new", path)
        except OSError as exc:
            self._give_up(exc)

    def _give_up(self, exc: OSError) -> None:
        self.writes = False
        logger.warning("the steps are not kept next to the checkpoints in %s: %s", self._folder, exc)


def _read(variable: str, default: str) -> dict[str, Any] | None:
    """Return a configuration; None if there is none. One that cannot be read is logged: training goes on without."""
    path = os.environ.get(variable) or default
    try:
        return read_document(path)
    except FileNotFoundError:
        if os.environ.get(variable):
            _warn_once(f"{variable} names the file {path}, which does not exist")
    except (OSError, ValueError) as exc:
        _warn_once(f"{path} cannot be read and is ignored: {exc}")
    return None


def read_document(path: str) -> dict[str, Any]:
    """Return the JSON object in a file. Raises OSError, and ValueError for another content."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    if not isinstance(document, dict):
        raise ConfigurationError(f"the configuration must be a JSON object, got {document!r:.200}")
    return document


@functools.cache
def _warn_once(text: str) -> None:
    """Log a warning unless it was logged before: a hook reads a configuration several times."""
    logger.warning("%s", text)
