"""A hook that has saved nothing at the first steps that were due."""

from __future__ import annotations

import logging

from tensortrial.config.collection import Collection, CollectionKeys

from ..core.recorder import Recorder
from .capture import Capture
from .models import Models

logger = logging.getLogger("tensortrial.hooks")

# The hook is given two steps that are due, but not more than this number of steps in all: the second one may come
# hours later.
_DUE_STEPS, _STEPS = 2, 20
_EXAMPLES = 3


class NothingSaved:
    """A check, after the first steps that were due, that anything was saved.

    Args:
        recorder: The recorder of the hook.
        models: The models of the hook.
        capture: What captures its tensors.
    """

    def __init__(self, recorder: Recorder, models: Models, capture: Capture) -> None:
        self._recorder, self._models, self._capture = recorder, models, capture
        self._due_steps = self._steps = 0
        self._checked = self._closes = False

    def begin_close(self) -> None:
        """Note that the hook is about to be closed: the next check is the last one."""
        self._closes = self._recorder.active
        if self._recorder.saving:
            self.note_due_step()

    def note_due_step(self) -> None:
        """Note that a step was due, at its end."""
        self._due_steps += 1

    def check(self) -> None:
        """Log, once, that nothing was saved and what could have been, after a step was closed."""
        if self._checked or not self._due_steps or not (self._closes or self._recorder.active):
            return
        self._steps += 1
        if self._recorder.clock.last_saved is not None or self._capture.left_to_another:
            self._checked = True
        elif self._closes or self._due_steps >= _DUE_STEPS or self._steps >= _STEPS:
            self._checked = True
            logger.warning("%s", self._text())

    def _text(self) -> str:
        saved = ", ".join(self._recorder.collections.saved_names)
        known = [each for each in self._recorder.collections if each.tensor_names and each.name != CollectionKeys.ALL]
        others = "; ".join(_described(each) for each in sorted(known, key=lambda each: each.name))
        outputs = ", ".join([f"{path}_output_0" for path in list(self._models.names.values())[:_EXAMPLES]])
        return (
            "nothing was saved at the first steps that were due, because no tensor belongs to a collection that is "
            f"saved ({saved}): save the loss by hook.register_loss(criterion) or hook.record_tensor_value('loss', loss)"
            + (f"; name other collections in include_collections: {others}" if others else "")
            + (f"; name others in include_regex, such as {outputs}" if outputs else "")
        )


def _described(collection: Collection) -> str:
    names = sorted(collection.tensor_names)
    count = len(names)
    return f"{collection.name} ({count} tensor{'s' * (count > 1)}, such as {names[0]})"
