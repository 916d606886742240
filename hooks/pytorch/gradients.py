"""The gradients of parameters: callbacks on parameters, and what of a gradient is saved.

No reference to a parameter is kept, not even a weak one: torch.utils.swap_tensors, by which `module.double()` and
`load_state_dict` may exchange what a parameter is, refuses a tensor that anything refers to weakly. Nor do callbacks
come along then, so they are looked for on the parameter itself.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.compiler import is_compiling
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .callbacks import Gradient, Listener
from .names import Root, modules_of, tensors_of


class Scaler(Protocol):
    """What scales losses, so that small gradients do not vanish: a torch.amp.GradScaler or one like it."""

    def is_enabled(self) -> bool: ...

    def _get_scale_async(self) -> torch.Tensor | None: ...


class GradientTaps:
    """A hook's callbacks on parameters, by the names of the gradients."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._handles: dict[str, tuple[Any, int]] = {}
        """What removes the callback, and the address of what the parameter was then."""
        self._threads: set[int] = set()
        """Those in which steps have begun."""
        # Not by the parameters' versions alone: fused optimizers leave those as they are.
        steps = register_optimizer_step_pre_hook(_UpdateTap(self))
        self._remove_from_optimizers = weakref.finalize(self, steps.remove)

    def follow(self, root: Root, name: str, parameter: torch.Tensor) -> None:
        """Have the gradient of this parameter saved under this name, and of no other parameter; and under no other name
        that it had in the same model before."""
        # A lazy parameter allows of nothing until it has values; then it is the same object, with its callbacks.
        with torch._C.DisableTorchFunctionSubclass():
            callbacks = _callbacks_of(parameter)
            handle, address = self._handles.get(name, (None, 0))
            if handle is None or handle.id not in callbacks or address != parameter._cdata:
                self._forget(name)
                self._forget_old_names(root, callbacks)
                if not (parameter.requires_grad and parameter.is_leaf):
                    return
                if handle is not None and address != parameter._cdata:
                    # Those of a parameter that was swapped went with what it was.
                    callbacks = {}
                    _set_callbacks(parameter, OrderedDict())
                handle = _register(parameter, Gradient(self._listener, name, root))
                self._handles[name] = handle, parameter._cdata
                callbacks = _callbacks_of(parameter)
            _put_first(callbacks, handle.id)
            self._restore(parameter, callbacks, callbacks.get(handle.id))

    def _restore(self, parameter: torch.Tensor, callbacks: dict[int, Any], tap: Gradient | None) -> None:
        """Pass the callbacks to autograd again, if it may have lost ours: the parameter may have been swapped twice,
        and be at the same address all the same."""
        # Never while another thread may be in a backward: autograd would go on with callbacks that are freed.
        self._threads.add(threading.get_ident())
        if tap is not None and not tap.called and len(self._threads) == 1:
            _set_callbacks(parameter, callbacks)
        elif tap is not None:
            tap.called = False

    def note_update(self, parameters: Iterable[torch.Tensor]) -> None:
        """These parameters are about to be updated by an optimizer."""
        for parameter in parameters:
            for each in _callbacks_of(parameter).values():
                if isinstance(each, Gradient) and each.listener is self._listener:
                    each.updated = True

    @property
    def saving(self) -> bool:
        return self._listener.saving

    def keep_only(self, root: Root, names: Iterable[str]) -> None:
        """Forget the parameters that are no longer the model's."""
        prefix = f"gradient/{root.name}_"
        for name in {each for each in self._handles if each.startswith(prefix)}.difference(names):
            self._forget(name)

    def remove(self) -> None:
        self._remove_from_optimizers()
        for name in list(self._handles):
            self._forget(name)

    def _forget(self, name: str) -> None:
        handle, _ = self._handles.pop(name, (None, 0))
        if handle is not None:
            handle.remove()

    def _forget_old_names(self, root: Root, callbacks: dict[int, Any]) -> None:
        for each in list(callbacks.values()):
            if isinstance(each, Gradient) and each.listener is self._listener and each.root is root:
                self._forget(each.name)


class _UpdateTap:
    """Before the step of any optimizer of the process. It does not keep the hook."""

    def __init__(self, taps: GradientTaps) -> None:
        self._taps = weakref.ref(taps)

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        taps = self._taps()
        if taps is not None and taps.saving:
            for group in optimizer.param_groups:
                taps.note_update(group["params"])


def _callbacks_of(parameter: torch.Tensor) -> dict[int, Any]:
    return getattr(parameter, "_post_accumulate_grad_hooks", None) or {}


def _set_callbacks(parameter: Any, callbacks: dict[int, Any]) -> None:
    parameter._post_accumulate_grad_hooks = callbacks


def _register(parameter: torch.Tensor, tap: Gradient) -> Any:
    register: Any = torch.Tensor.register_post_accumulate_grad_hook
    return register(parameter, tap)


def _put_first(callbacks: dict[int, Any], key: int) -> None:
    """Have this callback called before the user's, which may consume the gradient (an optimizer in backward)."""
    if next(iter(callbacks), key) != key:
        # Not by OrderedDict.move_to_end: autograd goes through the dictionary in the order of insertion.
        others = [(other, callbacks.pop(other)) for other in list(callbacks) if other != key]
        callbacks.update(others)


def gradients_of(root: Root, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the gradients that the parameters of a model have now, with their names, each parameter once."""
    seen: set[int] = set()
    for path, inner in modules_of(module):
        for name, parameter, is_parameter in tensors_of(path, inner):
            if is_parameter and id(parameter) not in seen and not is_lazy(parameter):
                seen.add(id(parameter))
                if parameter.grad is not None:
                    yield f"gradient/{root.tensor_name(name)}", parameter.grad


class Unscaling:
    """Takes the scale of the loss out of gradients, as the scaler itself does before the optimizer's step."""

    def __init__(self) -> None:
        self.scaler: Scaler | None = None

    def of_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient without the scale, for what backward has just left."""
        scale = None if self.scaler is None or not self.scaler.is_enabled() else self.scaler._get_scale_async()
        if scale is None:  # nothing was scaled so far
            return gradient
        with torch.no_grad():
            # In this way the scaler computes it, so that the bits are the same. MPS has no float64.
            wide = scale if scale.device.type == "mps" else scale.double()
            inverse = wide.reciprocal().float()
            if hasattr(gradient, "to_local"):
                return gradient * float(inverse)
            return gradient.detach() * inverse.to(gradient.device, non_blocking=True)

    def of_now(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient without the scale, wherever between backward and the optimizer's step this is."""
        return gradient if self._has_unscaled() else self.of_backward(gradient)

    def _has_unscaled(self) -> bool:
        # The scaler notes for each optimizer how far it is, in the order in which they came in this step.
        states = list(getattr(self.scaler, "_per_optimizer_states", {}).values())
        return bool(states) and getattr(states[-1].get("stage"), "name", "") == "UNSCALED"
