"""The steps of an unmodified training loop.

A step of the training ends once each optimizer has made an update. So batches that accumulate for an update are one
step, and so are the updates of two adversaries. Each other forward is a step in mode EVAL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from tensortrial.mode import ModeKeys
from tensortrial.redaction import without_credentials

from ...core.log import logger
from ...core.recorder import Recorder, guarded
from ...launch.launch import has_own_hook
from ...library.identity import IdentityMap
from ..callbacks import EagerCallback, is_ignored
from ..gradients import parameters_of, updates_any
from ..hook import Hook
from ..optimizers import silence

# A step does not wait for an optimizer without an update after another one has made this number of updates.
_MOST_UPDATES = 20
# After this number of a model's forwards without an update, each forward is a step: a compiled update is invisible.
_MOST_FORWARDS = 200


class LaunchedSteps:
    """The steps of a hook in a launched script."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._optimizers = IdentityMap[torch.optim.Optimizer, None]()
        self._idle = IdentityMap[torch.optim.Optimizer, None]()
        """The optimizers that a step does not wait for."""
        self._updates = IdentityMap[torch.optim.Optimizer, int]()
        """The updates of each optimizer in the open step."""
        self._is_updated = False
        """True if an optimizer, which may have been freed since, has made an update in the open step."""
        self._was_complete = False
        """True if the open step was complete before another optimizer was made."""
        self._forwards: dict[int, int] = {}
        """The forwards of each model in the open step, by its id."""
        self._mode: ModeKeys | None = None
        """The mode of the open step."""
        self._releases: list[Callable[[], None]] = []
        self._trains_in_eval = self._counts_forwards = False
        self.has_updates = False
        """True if any optimizer has made an update."""

    @property
    def recorder(self) -> Recorder:
        """The recorder of the hook."""
        return self._hook.recorder

    @property
    def in_training(self) -> bool:
        """True if a step of the training is open."""
        return self._mode is ModeKeys.TRAIN

    @property
    def is_complete(self) -> bool:
        """True if each optimizer has made an update in the open step of the training."""
        waited = [each for each in self._optimizers if each not in self._idle]
        return self._was_complete or (self._is_updated and all(each in self._updates for each in waited))

    def add_model(self, model: torch.nn.Module) -> None:
        """Begin steps when a registered model runs."""
        # It is called before the hook's own callbacks, so that the step has begun when they run.
        self._releases.append(model.register_forward_pre_hook(EagerCallback(self.before_forward), prepend=True).remove)

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the updates of an optimizer."""
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = None
            self._releases.append(partial(silence, optimizer.register_step_post_hook(EagerCallback(self.after_update))))

    def add_made_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the updates of a new optimizer, from the next step on if the open one is complete.

        A step does not wait for optimizers that share a parameter with it, because it replaces them.
        """
        self._was_complete = self.is_complete
        own = {id(each) for each in parameters_of(optimizer)}
        self._idle.update((each, None) for each in self._optimizers if updates_any(each, own))
        self.add_optimizer(optimizer)

    def counts(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether the updates of an optimizer are counted."""
        return optimizer in self._optimizers

    def release(self) -> None:
        """Remove all callbacks."""
        for release in self._releases:
            release()
        self._releases.clear()

    @guarded
    def before_forward(self, model: torch.nn.Module) -> None:
        """Begin a step, if the model runs in another one than the open step."""
        if is_ignored():
            return
        if has_own_hook(self._hook):
            self.release()
            close_for_own_hook(self._hook)
            return
        number = self._forwards.get(id(model), 0)
        if self._mode_of(model) is ModeKeys.TRAIN:
            if self._mode is ModeKeys.TRAIN and not self.has_updates and number >= _MOST_FORWARDS:
                self._counts_forwards = True
                logger.warning("each forward of the model is saved as a step: no optimizer has made an update")
            begins = self._mode is not ModeKeys.TRAIN or self.is_complete or (self._counts_forwards and number > 0)
            if begins:
                self._begin(ModeKeys.TRAIN)
        elif self._mode is not ModeKeys.EVAL or number:
            self._begin(ModeKeys.EVAL)
        self._forwards[id(model)] = self._forwards.get(id(model), 0) + 1

    def _mode_of(self, model: torch.nn.Module) -> ModeKeys:
        if torch.is_grad_enabled():
            return ModeKeys.TRAIN if model.training or self._trains_in_eval else ModeKeys.EVAL
        # The forward is a part of a step, such as a generator's for its adversary.
        unfinished = self._mode is ModeKeys.TRAIN and not self.is_complete
        return ModeKeys.TRAIN if unfinished and model.training else ModeKeys.EVAL

    def _begin(self, mode: ModeKeys) -> None:
        self._updates.clear()
        self._is_updated = self._was_complete = False
        self._forwards.clear()
        self._mode = mode
        self._hook.begin_step(mode=mode)

    def after_gradient(self) -> None:
        """End the step with the gradients of a model that no optimizer of torch updates."""
        self.has_updates = self._is_updated = True

    @guarded
    def after_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Count an update."""
        if self._mode is ModeKeys.EVAL and not self._trains_in_eval and not self._is_updated:
            # A model may be trained in eval mode, for example to keep the statistics of its normalization.
            self._trains_in_eval = True
        self.has_updates = self._is_updated = True
        self._counts_forwards = False
        self._idle.pop(optimizer, None)
        count = self._updates[optimizer] = self._updates.get(optimizer, 0) + 1
        if count >= _MOST_UPDATES:
            self._idle.update((each, None) for each in self._optimizers if each not in self._updates)


def close_for_own_hook(hook: Hook) -> None:
    """Close the run of a hook, because the script has made another one."""
    if not hook.recorder.closed:
        logger.warning("the run in %s is closed: the script makes a hook of its own", without_credentials(hook.out_dir))
        hook.close()
