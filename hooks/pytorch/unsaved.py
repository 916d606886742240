"""A hook that has saved nothing, no loss or no gradients at the first steps that were due."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tensortrial.config.collection import Collection, CollectionKeys, is_loss

from ..core.recorder import Recorder
from .models import Models

logger = logging.getLogger("tensortrial.hooks")

# The hook is given two steps that are due, but not more than this number of steps in all: the second one may come
# hours later.
_DUE_STEPS, _STEPS = 2, 20
_EXAMPLES = 3


class NothingSaved:
    """A check, after the first steps that were due, that anything was saved, and of a training a loss and gradients.

    Args:
        recorder: The recorder of the hook.
        models: The models of the hook.
    """

    def __init__(self, recorder: Recorder, models: Models) -> None:
        self._recorder, self._models = recorder, models
        self._due_steps = self._steps = 0
        self._checked = self._closes = self._losses_are_due = False
        self.left_to_another = False
        """True if another process saves a tensor that was gathered here."""
        self.gradients_arrived = False
        """True if autograd has called a callback on a parameter, or the user has saved gradients by a call."""

    def begin_close(self) -> None:
        """Note that the hook is about to be closed: the next check is the last one."""
        self._closes = self._recorder.active
        if self._recorder.saving:
            self.note_due_step()

    def note_due_step(self) -> None:
        """Note that a step was due, at its end."""
        self._due_steps += 1
        self._losses_are_due |= CollectionKeys.LOSSES in self._recorder.planner.due

    def check(self) -> None:
        """Log, once, what was not saved and how it could have been, after a step was closed."""
        if self._checked or not self._due_steps or not (self._closes or self._recorder.active):
            return
        self._steps += 1
        if not (self._closes or self._due_steps >= _DUE_STEPS or self._steps >= _STEPS):
            return
        self._checked = True
        if self._recorder.clock.last_saved is None and not self.left_to_another:
            logger.warning("%s", self._text())
        elif self._due_steps >= _DUE_STEPS:
            self._check_training()

    def _check_training(self) -> None:
        used = self._models.parameters_of_updates()
        if used and not self.gradients_arrived and self._recorder.may_save(f"gradient/{name}" for name in used):
            logger.warning(
                "no gradient has arrived of %s, which an optimizer updates: gradients of torch.autograd.grad or "
                'functional_call pass no callback; use gradients="optimizer" and hook.register_optimizer(optimizer), '
                "or call hook.save_gradients() before the update",
                used[0],
            )
        losses = self._recorder.collections.require(CollectionKeys.LOSSES)
        known = (*self._recorder.planner.tensor_names(), *losses.tensor_names)
        if (used or self.gradients_arrived) and self._losses_are_due and not any(map(_is_loss_of(losses), known)):
            logger.warning(
                "no loss is saved: one that a function computes is saved by hook.record_tensor_value('loss', loss), or "
                "by hook.log({'loss': loss})"
            )

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


def _is_loss_of(losses: Collection) -> Callable[[str], bool]:
    return lambda name: is_loss(name) or losses.matches(name)


def _described(collection: Collection) -> str:
    names = sorted(collection.tensor_names)
    count = len(names)
    return f"{collection.name} ({count} tensor{'s' * (count > 1)}, such as {names[0]})"
