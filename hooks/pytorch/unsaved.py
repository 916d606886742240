"""Warnings about missing tensors, such as losses or gradients, and about steps in the mode of others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch

from tensortrial.config.collection import Collection, CollectionKeys, is_loss
from tensortrial.mode import ModeKeys

from ..core.log import logger
from ..core.recorder import Recorder
from .models import Models
from .names import Root, is_compiled, joined, modules_of, unwrapped

# The check waits for two due steps, but at most for this number of steps, because the second may come hours later.
_DUE_STEPS, _STEPS = 2, 20
_EXAMPLES = 3


class NothingSaved:
    """A check, after the first due steps, that anything was saved: for a training, also a loss and gradients."""

    def __init__(self, recorder: Recorder, models: Models) -> None:
        self._recorder, self._models = recorder, models
        self._due_steps = self._steps = 0
        self._checked = self._closes = self._losses_are_due = self._has_loss = self._knows_modes = False
        self.left_to_another = False
        """True if another process saves a tensor that was gathered here."""
        self.losses_are_logged = False
        """True if a library logs losses at an interval of its own, maybe only after the check."""
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
        if not self._checked and not self._has_loss:
            # The planner forgets names when a collection changes, as for a module that was added.
            losses = self._recorder.collections.require(CollectionKeys.LOSSES)
            known = (*self._recorder.planner.tensor_names(), *losses.tensor_names)
            self._has_loss = any(is_loss(name) or losses.matches(name) for name in known)

    def note_forward(self, model: torch.nn.Module) -> None:
        """Log, once, that a model is evaluated in steps that count as those of training.

        Called when the forward of a model has begun a step.
        """
        if self._knows_modes or not self.gradients_arrived or model.training or torch.is_grad_enabled():
            return
        self._knows_modes = True
        if self._recorder.clock.mode is ModeKeys.GLOBAL:
            logger.warning(
                "the model is evaluated, and these steps count as steps of the training, because no mode was set: call "
                "hook.set_mode(tt.modes.EVAL) before an evaluation and hook.set_mode(tt.modes.TRAIN) before training"
            )

    def check(self) -> None:
        """Log, once, the tensors that were not saved, and how to save them. Called after a step was closed."""
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
                "no gradient of %s has arrived, which an optimizer updates: gradients of torch.autograd.grad or "
                'functional_call pass no callback; use gradients="optimizer" and hook.register_optimizer(optimizer), '
                "or call hook.save_gradients() before the update",
                used[0],
            )
        has_loss = self._has_loss or self.losses_are_logged
        if (used or self.gradients_arrived) and self._losses_are_due and not has_loss:
            logger.warning(
                "no loss is saved: save the loss of a function by hook.record_tensor_value('loss', loss), with 'loss' "
                "in its name, or by hook.log({'loss': loss})"
            )

    def _text(self) -> str:
        saved = ", ".join(self._recorder.collections.saved_names)
        known = [each for each in self._recorder.collections if each.tensor_names and each.name != CollectionKeys.ALL]
        others = "; ".join(_described(each) for each in sorted(known, key=lambda each: each.name))
        outputs = ", ".join([f"{path}_output_0" for path in list(self._models.names.values())[:_EXAMPLES]])
        return (
            "nothing was saved at the first steps that were due, because no tensor belongs to a collection that is "
            f"saved ({saved}): save the loss by hook.register_loss(criterion) or hook.record_tensor_value('loss', "
            "loss), which saves other names only if they match include_regex"
            + (f"; name other collections in include_collections: {others}" if others else "")
            + (f"; name others in include_regex, such as {outputs}" if outputs else "")
        )


def _described(collection: Collection) -> str:
    names = sorted(collection.tensor_names)
    count = len(names)
    return f"{collection.name} ({count} tensor{'s' * (count > 1)}, such as {names[0]})"


class MissedCapture:
    """A check, at a model's first saved step, that due tensors of its compiled parts were captured.

    A part that was compiled before its modules had callbacks runs without them, and a backward that was compiled
    together with its forward does not call the callbacks of gradients. torch reports neither.
    """

    def __init__(self) -> None:
        self._captured: set[str] = set()
        self.unchecked: list[Root] = []
        """The models that have not run in a saved step yet. Call `note` while there are any."""

    def expect(self, root: Root) -> None:
        """Check a model that was registered, at its first saved step."""
        self.unchecked.append(root)

    def note(self, name: str) -> None:
        """Note that a tensor was captured, by the path of its module or by the name of the gradient."""
        self._captured.add(name)

    def check(self, step: object, is_due: Callable[[str], bool]) -> None:
        """Check the models that ran in a step that was saved, at its end."""
        for root in [each for each in self.unchecked if each.ran_at is step]:
            self.unchecked.remove(root)
            for text in self._missed(root, is_due):
                logger.warning("%s", text)
        if not self.unchecked:
            self._captured.clear()

    def _missed(self, root: Root, is_due: Callable[[str], bool]) -> Iterator[str]:
        module = root.module
        if module is None:
            return
        for part, inside in _compiled_parts(root, module):
            due = [path for path in inside if is_due(f"{path}_output_0") or is_due(f"{path}_input_0")]
            if due and self._captured.isdisjoint(due):
                yield (
                    f"inputs and outputs of the modules inside {part} are not captured: it was compiled before it was "
                    "registered; call torch.compiler.reset() after registering it"
                )
        config = sys.modules.get("torch._dynamo.config")
        if root.in_compiled_code and getattr(config, "trace_autograd_ops", False):
            gradients = [f"gradient/{root.tensor_name(path)}" for path, _ in module.named_parameters()]
            due = [name for name in gradients if is_due(name)]
            if due and self._captured.isdisjoint(due):
                yield f"the gradients of {root.name} are not captured: its backward is a part of compiled code"


def _compiled_parts(root: Root, model: torch.nn.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of a model's compiled modules, each with the names of the modules inside it."""
    for path, module in modules_of(model):
        if is_compiled(module):
            own = id(module), id(unwrapped(module))
            inside = [joined(path, inner) for inner, each in modules_of(module) if id(each) not in own and inner]
            yield root.module_name(path), [root.module_name(each) for each in inside]
