"""The hook of smdebug.pytorch, whose other names are those of `tensortrial.hooks.pytorch`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import ConfigurationError
from tensortrial.hooks import pytorch
from tensortrial.hooks.core.recorder import guarded
from tensortrial.hooks.pytorch.capture import Capture

from .hooks import ScriptHook, getter


class _Capture(Capture):
    """The capture of a hook for smdebug. An overridden `forward_hook` replaces that of inputs and outputs."""

    calls_forward_hook = False

    @property
    def saves_buffers(self) -> bool:
        return CollectionKeys.BUFFERS in self.recorder.collections.saved_names

    def capture_values(self, path: str, direction: str, value: Any) -> None:
        if self.calls_forward_hook:
            if self.missed.unchecked:
                self.missed.note(path)
        else:
            super().capture_values(path, direction, value)


class Hook(ScriptHook, pytorch.Hook):
    """The PyTorch hook, as scripts for smdebug use it.

    A subclass may override `forward_hook`, to change the saved tensors of a module, or to save more. It is called after
    each forward of each module of a registered model or loss.
    """

    _capture_type = _Capture
    capture: _Capture

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if type(self).forward_pre_hook is not Hook.forward_pre_hook:
            raise ConfigurationError(
                f"{type(self).__name__} overrides forward_pre_hook, which is not called here: override forward_hook, "
                "which gets the inputs too, or call module.register_forward_pre_hook with a function of yours"
            )
        self._handles: list[Any] = []
        super().__init__(*args, **kwargs)
        self.capture.calls_forward_hook = type(self).forward_hook is not Hook.forward_hook

    record_tensor_value = pytorch.Hook.record_tensor_value

    @property
    def module_maps(self) -> dict[Any, str]:
        """The names of the modules of registered models and losses."""
        return dict(self.capture.models.names)

    def register_module(self, module: Any, name: str | None = None) -> None:
        """Save the tensors of a model, as `tensortrial.hooks.pytorch.Hook.register_module` does."""
        super().register_module(module, name)
        self._add_forward_hooks()

    register_hook = register_module

    def register_loss(self, loss_module: Any) -> None:
        """Save the output of a loss module, as `tensortrial.hooks.pytorch.Hook.register_loss` does."""
        super().register_loss(loss_module)
        self._add_forward_hooks()

    def forward_pre_hook(self, module: Any, inputs: Any) -> None:
        """Do nothing, because steps begin by themselves.

        Args:
            module: The module.
            inputs: The inputs of the forward.
        """

    def forward_hook(self, module: Any, inputs: Any, outputs: Any) -> None:
        """Save the inputs and outputs of a module after its forward.

        Args:
            module: The module.
            inputs: The tuple of its inputs.
            outputs: Its outputs.
        """
        name = self.capture.models.names.get(module, "")
        self._write_inputs(name, inputs)
        self._write_outputs(name, outputs)

    def backward_hook(self, tname: str) -> Callable[[Any], None]:
        """Return a function that saves a gradient as `gradient/<tname>`: `tensor.register_hook(hook.backward_hook(…))`.

        Args:
            tname: The name of the tensor.

        Returns:
            The function.
        """
        return partial(self._save_for_tensor, f"gradient/{tname}")

    # Methods that an overridden `forward_hook` calls, with smdebug's names.

    @guarded
    def _write_inputs(self, name: str, inputs: Any) -> None:
        if self.capture.saving:
            self.capture.values(name, "input", inputs)

    @guarded
    def _write_outputs(self, name: str, outputs: Any) -> None:
        if self.capture.saving:
            self.capture.values(name, "output", outputs)

    @guarded
    def _save_for_tensor(self, tensor_name: str, tensor_value: Any, check_before_write: bool = True) -> None:
        if not check_before_write:
            self._write_raw_tensor_simple(tensor_name, tensor_value)
        elif self.capture.saving:
            self.capture.tensor(tensor_name, tensor_value.detach())

    @guarded
    def _add_forward_hooks(self) -> None:
        if not self.capture.calls_forward_hook or not self.recorder.active:
            return
        for module, name in self.module_maps.items():
            if getattr(module, "_module_name", None) != name:
                module._module_name = name  # noqa: SLF001 - smdebug sets it, and an overridden `forward_hook` reads it
                self._handles.append(module.register_forward_hook(self._after_forward))

    @guarded
    def _after_forward(self, module: Any, inputs: Any, outputs: Any) -> None:
        if self.recorder.active:
            self.forward_hook(module, inputs, outputs)

    def _let_go(self) -> None:
        super()._let_go()
        while self._handles:
            self._handles.pop().remove()


get_hook = getter(Hook.create_from_json_file, creates=False)

# A script that saves hook.step in its checkpoints loads them with weights_only, which is torch's default.
sys.modules["torch"].serialization.add_safe_globals([int])
