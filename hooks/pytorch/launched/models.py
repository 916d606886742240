"""The search for the trained models of an unmodified script: those whose parameters an optimizer holds.

`torch.nn.Module.__call__` is replaced until the first update is over, but not during a call of it. So only outermost
calls are noticed, and modules inside a compiled model are called as usual.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.nn.modules.loss import _Loss

from tensortrial.mode import ModeKeys

from ...core.callbacks import UncopiedCallback
from ...core.log import logger
from ...launch.launch import Launch, has_own_hook
from ...library.identity import IdentityMap
from ..callbacks import is_ignored
from ..gradients import updates_any
from ..hook import Hook
from ..names import class_name
from .loss import LaunchedLoss
from .steps import LaunchedSteps, close_for_own_hook

# The search ends after this number of forwards, because an optimizer of a single tensor belongs to no model.
_MOST_FORWARDS = 200


class LaunchedModels:
    """A finder of the models that train, which registers them with a hook.

    A model trains if an optimizer that was made before the first update holds its parameters. In a script without an
    optimizer of torch, a model trains if it is in training mode and its parameters get gradients; it is saved from its
    second forward on. A model that begins to train later is not saved.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._optimizers = IdentityMap[torch.optim.Optimizer, None]()
        self._hook: Hook | None = None
        self._steps: LaunchedSteps | None = None
        self._loss: LaunchedLoss | None = None
        self._models = IdentityMap[torch.nn.Module, None]()
        self._candidates = IdentityMap[torch.nn.Module, _AfterGradient]()
        """The models that have run before any optimizer was made."""
        self._call, self._construct = torch.nn.Module.__call__, torch.optim.Optimizer.__init__
        self._searches = True
        self._forwards = 0
        self._warned = False

    def install(self) -> None:
        """Begin to notice new optimizers and running modules."""
        finder, construct, original = self, self._construct, self._call

        @functools.wraps(construct)
        def note(optimizer: torch.optim.Optimizer, /, *args: Any, **kwargs: Any) -> None:
            construct(optimizer, *args, **kwargs)
            with finder._guarded():
                finder._note_optimizer(optimizer)

        @functools.wraps(original)
        def call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # torch.compile(model) compiles this function
                return original(module, *args, **kwargs)
            _set(torch.nn.Module, "__call__", original)
            try:
                with finder._guarded():
                    finder._before(module)
                callbacks = len(module._forward_hooks)
                result = original(module, *args, **kwargs)
                if finder._searches and len(module._forward_hooks) == callbacks:
                    with finder._guarded():
                        finder._after(module, args, result)
                return result
            finally:
                if finder._searches and torch.nn.Module.__call__ is original:
                    _set(torch.nn.Module, "__call__", call)

        self._noting, self._calling = note, call
        _set(torch.optim.Optimizer, "__init__", note)
        _set(torch.nn.Module, "__call__", call)

    # An error here must not end the script.

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            logger.exception("models that begin to train from now on are not found")
            self.retire()

    def _note_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if self._steps is None or not self._steps.has_updates:
            self._optimizers[optimizer] = None
        elif not self._is_retired():
            self._adopt_late(optimizer)

    # Finding.

    def _before(self, module: torch.nn.Module) -> None:
        """Hook a module that is about to run, if it trains or is a loss."""
        if self._is_retired():
            self.retire()
            return
        if self._is_found():
            self._searches = False
            return
        if module in self._models or not torch.is_grad_enabled() or is_ignored():
            return
        if self._optimizers_of(module):
            self._adopt(module)
        elif self._hook is not None and isinstance(module, _Loss):
            self._hook.register_loss(module)
        elif not self._optimizers and module.training:
            self._watch(module)

    def _watch(self, module: torch.nn.Module) -> None:
        """Hook a model whose parameters have gradients, or else watch its parameters."""
        found = self._candidates.get(module)
        if found is None:
            self._candidates[module] = _AfterGradient(module)
        elif found.has_gradients:
            self._adopt(module)
            found.steps = self._steps

    def _after(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        """Hook a module that has run, if it is a loss of the script's own class."""
        hook = self._hook
        if hook is None or module in self._models or isinstance(module, _Loss) or is_ignored():
            return
        is_loss = isinstance(result, torch.Tensor) and not result.ndim and result.requires_grad
        if is_loss and self._steps is not None and self._steps.in_training:
            known = set(module._forward_hooks)
            hook.register_loss(module)
            for key, callback in list(module._forward_hooks.items()):
                if key not in known:
                    callback(module, args, result)

    def _is_found(self) -> bool:
        """Return whether the search is complete: each optimizer belongs to a hooked model, and has made an update."""
        steps = self._steps
        if steps is None or not steps.has_updates:
            return False
        self._forwards += 1
        is_complete = steps.is_complete and all(steps.counts(each) for each in self._optimizers)
        return is_complete or self._forwards > _MOST_FORWARDS

    def _optimizers_of(self, module: torch.nn.Module) -> list[torch.optim.Optimizer]:
        if not self._optimizers:
            return []
        own = {id(each) for each in module.parameters()}
        return [each for each in self._optimizers if updates_any(each, own)]

    def _adopt(self, module: torch.nn.Module) -> None:
        if self._hook is None:
            self._begin()
        if self._hook is None or self._steps is None:
            return
        self._models[module] = None
        self._hook.register_module(module)
        self._steps.add_model(module)
        for optimizer in self._optimizers_of(module):
            self._hook.register_optimizer(optimizer)
            self._steps.add_optimizer(optimizer)

    def _begin(self) -> None:
        self._hook = self._launch.make_hook(Hook)
        if self._hook is None:
            self.retire()
            return
        self._hook.set_mode(ModeKeys.TRAIN)
        self._steps = LaunchedSteps(self._hook)
        self._loss = LaunchedLoss(self._hook, self._steps)
        self._loss.install()

    def _adopt_late(self, optimizer: torch.optim.Optimizer) -> None:
        """Use a late optimizer of a hooked model. Log a warning for one of another model."""
        known = {id(each) for model in self._models for each in model.parameters()}
        if self._hook is not None and self._steps is not None and updates_any(optimizer, known):
            self._hook.register_optimizer(optimizer)
            self._steps.add_made_optimizer(optimizer)
        elif not self._warned:
            self._warned = True
            logger.warning(
                "a %s that was made after the first update trains another model, which is not saved: a launched script "
                "saves the models that train first (%s)",
                type(optimizer).__name__,
                ", ".join(class_name(model) for model in self._models) or "which are gone",
            )

    # The end.

    def _is_retired(self) -> bool:
        """Return whether the script has a hook of its own."""
        return has_own_hook(self._hook) or (self._hook is not None and self._hook.recorder.closed)

    def retire(self) -> None:
        """Stop searching and capturing."""
        self._searches = False
        for candidate in self._candidates.values():
            candidate.remove()
        if torch.nn.Module.__call__ is self._calling:
            _set(torch.nn.Module, "__call__", self._call)
        if torch.optim.Optimizer.__init__ is self._noting:
            _set(torch.optim.Optimizer, "__init__", self._construct)
        if self._loss is not None:
            self._loss.release()
        if self._steps is not None:
            self._steps.release()
        if self._hook is not None and not self._hook.recorder.closed:
            close_for_own_hook(self._hook)


class _AfterGradient(UncopiedCallback):
    """The callback on the parameters of a model: the model trains once one of them has a gradient."""

    __slots__ = ("_handles", "has_gradients", "steps")

    def __init__(self, model: torch.nn.Module) -> None:
        self.has_gradients = False
        self.steps: LaunchedSteps | None = None
        """The steps that end with a gradient; None if an optimizer ends them."""
        wanted = [each for each in model.parameters() if each.requires_grad and each.is_leaf]
        self._handles = [each.register_post_accumulate_grad_hook(self) for each in wanted]  # type: ignore[no-untyped-call]

    def __call__(self, parameter: torch.Tensor) -> None:
        self.has_gradients = True
        if self.steps is not None:
            self.steps.after_gradient()

    def remove(self) -> None:
        """Remove the callback from all parameters."""
        for handle in self._handles:
            handle.remove()


def _set(owner: type[Any], name: str, function: Any) -> None:
    setattr(owner, name, function)
