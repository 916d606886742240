"""The loss of a training loop that computes it by a function: the tensor whose `backward` is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tensortrial.config.collection import CollectionKeys

from ...core.recorder import Recorder, guarded
from ..hook import Hook
from .steps import LaunchedSteps


class LaunchedLoss:
    """The capture of the tensor whose `backward` is called, as `loss`, unless another loss is saved."""

    def __init__(self, hook: Hook, steps: LaunchedSteps) -> None:
        self._hook, self._steps = hook, steps
        self._is_decided = self._is_wanted = False
        self._scaled: tuple[torch.Tensor, torch.Tensor] | None = None
        """The newest result of a scaler, with its argument."""
        self._restore: list[Callable[[], None]] = []

    @property
    def recorder(self) -> Recorder:
        """The recorder of the hook."""
        return self._hook.recorder

    def install(self) -> None:
        """Wrap `Tensor.backward` and `GradScaler.scale`."""
        self._replace(torch.Tensor, "backward", self._before_backward)
        self._replace(torch.amp.GradScaler, "scale", None, self._after_scale)

    def release(self) -> None:
        """Restore the original methods."""
        for restore in self._restore:
            restore()
        self._restore.clear()
        self._scaled = None

    def _replace(
        self, owner: type[Any], name: str, before: Callable[..., None] | None, after: Callable[..., None] | None = None
    ) -> None:
        original = vars(owner)[name]

        @functools.wraps(original)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before(self)
            result = original(self, *args, **kwargs)
            if after is not None:
                after(self, result, *args, *kwargs.values())
            return result

        def restore() -> None:
            if vars(owner).get(name) is call:
                setattr(owner, name, original)

        setattr(owner, name, call)
        self._restore.append(restore)

    @guarded
    def _after_scale(self, scaler: Any, result: Any, outputs: Any = None) -> None:
        self._hook.register_scaler(scaler)
        if isinstance(result, torch.Tensor) and isinstance(outputs, torch.Tensor):
            self._scaled = result, outputs.detach()

    @guarded
    def _before_backward(self, tensor: torch.Tensor) -> None:
        if not self._steps.in_training or not self.recorder.saving or tensor.numel() != 1:
            return
        if not self._is_decided:
            # The first step that is saved shows whether another loss is known.
            self._is_decided = True
            self._is_wanted = not self.recorder.collections.require(CollectionKeys.LOSSES).tensor_names
            self._is_wanted &= not self._hook.capture.models.has_losses
        if self._is_wanted:
            scaled, self._scaled = self._scaled, None
            value = scaled[1] if scaled is not None and scaled[0] is tensor else tensor.detach()
            self._hook.record_tensor_value("loss", value)
