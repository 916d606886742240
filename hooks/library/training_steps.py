"""The steps of a training, for callbacks of training libraries."""

from __future__ import annotations

from tensortrial.mode import ModeKeys

from ..core.log import logger
from ..core.recorder import guarded
from .hook_owner import HookOwner


class TrainingSteps(HookOwner):
    """A callback that begins and ends the steps of its hook, and saves one training.

    Training may stop and continue with the same callback. A second training with it is not saved, because its steps
    would replace those of the first.
    """

    _open: ModeKeys | None = None
    """The mode of the open step."""
    _newest = -1
    """The newest step of the training."""
    _is_off = False
    """True while another training runs."""
    _is_over = False
    """True once the newest training has ended without an error."""

    @property
    def _saves(self) -> bool:
        return self._hook is not None and not self._is_off and not self.recorder.closed

    def _begin_training(self, starts_again: bool) -> None:
        """Turn the callback off for another training that starts after the first one is over."""
        self._is_off = self._is_over = self._is_over and starts_again
        if self._is_off:
            logger.warning(
                "nothing is saved of this training: its callback has saved another one to %s; make a callback for each "
                "training",
                self.recorder.run.out_dir,
            )

    def _end_training(self) -> None:
        self._is_over = self._hook is not None
        self._publish()

    @guarded
    def _begin_step(self, step: int | None, mode: ModeKeys) -> None:
        """End the open step, and begin the one of this number, or the next one of the mode."""
        self._end_step()
        self._open = mode
        if step is not None:
            self._newest = step
        self.hook.begin_step(step=step, mode=mode)

    @guarded
    def _end_step(self) -> None:
        if self._open is not None:
            self._open = None
            self.hook.end_step()

    def _publish(self) -> None:
        """End the step, and publish what was saved. The run stays open: an evaluation may follow."""
        if self._saves:
            self._end_step()
            self.hook.flush()
