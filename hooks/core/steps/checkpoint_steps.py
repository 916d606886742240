"""The steps of a job at its last checkpoint, kept next to it for when the job is interrupted and started again.

SageMaker keeps the folder of checkpoints, and starts the job with an empty out_dir. The file has smdebug's form.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping

from tensortrial.mode import ModeKeys

from ..configuration import sagemaker

logger = logging.getLogger("tensortrial.hooks")

STATE_FILE = "metadata.json"


class CheckpointSteps:
    """The steps at the last checkpoint in the folder that SageMaker's configuration names, if it names one.

    Args:
        writes: Keep the steps whenever the folder has changed. One worker of a job does.
    """

    def __init__(self, writes: bool) -> None:
        self._folder = sagemaker.checkpoint_folder()
        self.writes = writes and self._folder is not None
        """True if steps are kept."""
        self._changed_at = self._newest_change() if self.writes else 0

    def read(self) -> dict[ModeKeys, int]:
        """Return the number of the newest step of each mode, of GLOBAL over all modes; empty if none were kept."""
        if self._folder is None:
            return {}
        path = os.path.join(self._folder, STATE_FILE)
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
        if not self.writes:
            return
        changed_at = self._newest_change()
        if changed_at != self._changed_at:
            self._changed_at = changed_at
            self._write(newest)

    def _newest_change(self) -> int:
        try:
            with os.scandir(self._folder) as entries:
                times = [entry.stat().st_mtime_ns for entry in entries if not entry.name.startswith(STATE_FILE)]
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
        path = os.path.join(self._folder or "", STATE_FILE)
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump([state], file)
            os.replace(f"{path}.new", path)
        except OSError as exc:
            self._give_up(exc)

    def _give_up(self, exc: OSError) -> None:
        self.writes = False
        logger.warning("the steps are not kept next to the checkpoints in %s: %s", self._folder, exc)
