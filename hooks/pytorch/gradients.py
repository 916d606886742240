"""The gradients of parameters: the callbacks on parameters, and the unscaling of gradients.

No reference to a parameter is kept, not even a weak one: torch.utils.swap_tensors, by which `module.double()` and
`load_state_dict` may replace the tensor behind a parameter, refuses one with weak references. Swapping does not move
the callbacks either, so they are read from the parameter itself.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch.compiler import is_compiling
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tensortrial.config.reduction_config import names
from tensortrial.errors import ConfigurationError, shown

from .callbacks import GradientCallback, Receiver, call_before_update
from .names import Root, modules_of, tensors_of

LOCAL, OPTIMIZER = "local", "optimizer"
"""The moments at which gradients are captured: after this worker's backward, or before the optimizer uses them."""

_NOTHING: tuple[Any, int, Root | None, GradientCallback | None] = (None, 0, None, None)


class Scaler(Protocol):
    """A scaler of losses, by which small gradients do not vanish: torch.amp.GradScaler, or one with its interface."""

    def is_enabled(self) -> bool: ...

    def _get_scale_async(self) -> torch.Tensor | None: ...


def parse_moments(moments: Any) -> frozenset[str]:
    """Return the moments at which gradients are captured.

    Raises:
        ConfigurationError: One of them is unknown.
    """
    found = frozenset(names(moments))
    unknown = sorted(found - {LOCAL, OPTIMIZER}, key=str)
    if unknown or not found:
        raise ConfigurationError(f'gradients must be "local", "optimizer" or both, got {shown(moments)}')
    return found


class GradientCallbacks:
    """A hook's callbacks on parameters, by the names of the gradients."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._handles: dict[str, tuple[Any, int, Root | None, GradientCallback | None]] = {}
        """The handle that removes the callback, the address of the tensor behind the parameter at that time, the model,
        and the callback."""
        self.used: set[int] = set()
        """The ids of parameters whose gradients an optimizer has used."""
        self._threads: set[int] = set()
        """The threads in which steps have begun."""
        # The parameters' versions are not enough, because fused optimizers do not change them.
        _before_updates.notify(self)

    def follow(self, root: Root, parameters: Mapping[str, torch.Tensor]) -> None:
        """Save the gradients of these parameters of a model, and of no other ones, under these names.

        They are no longer saved under names that they had in the same model before.
        """
        # A lazy parameter supports no operations before it has values. It then stays the same object, with its
        # callbacks.
        with torch._C.DisableTorchFunctionSubclass():
            for name, parameter in parameters.items():
                self._follow(root, name, parameter)
        for name in [name for name, (_, _, of, _) in self._handles.items() if of is root and name not in parameters]:
            self._forget(name)

    def _follow(self, root: Root, name: str, parameter: torch.Tensor) -> None:
        callbacks = _callbacks_of(parameter)
        handle, address, _, _ = self._handles.get(name, _NOTHING)
        is_known = handle is not None and handle.id in callbacks
        if not is_known or address != parameter._cdata:
            if not (parameter.requires_grad and parameter.is_leaf):
                return  # `functional_call` may have put it there for a forward whose backward reaches the parameter
            self._forget(name)
            if is_known:  # the callbacks of a swapped parameter are on its previous tensor
                _set_callbacks(parameter, OrderedDict())
            new = GradientCallback(self._receiver, name, root)
            handle = torch.Tensor.register_post_accumulate_grad_hook(parameter, new)  # type: ignore[no-untyped-call]
            self._handles[name] = handle, parameter._cdata, root, new
            callbacks = _callbacks_of(parameter)
        _put_first(callbacks, handle.id)
        self._threads.add(threading.get_ident())
        callback = callbacks.get(handle.id)
        if callback is None:
            return
        # Autograd may have lost our callback: a parameter that was swapped twice may be at the same address again. It
        # is not passed again while another thread may run a backward, because autograd would use freed callbacks.
        if not callback.called and len(self._threads) == 1:
            _set_callbacks(parameter, callbacks)
        else:
            callback.called = False

    def place(self, due: bool) -> None:
        """Add the callbacks at a step at which anything is due, and remove them at others: each call costs training."""
        for handle, *_, callback in list(self._handles.values()):  # another thread may add a model
            callbacks = handle.hooks_dict_ref()
            if callbacks is not None and due:
                callbacks[handle.id] = callback
                _put_first(callbacks, handle.id)
            elif callbacks is not None:
                callbacks.pop(handle.id, None)

    def note_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer is about to update its parameters."""
        for parameter in parameters_of(optimizer):
            if parameter.grad is not None:
                self.used.add(id(parameter))
            for each in list(_callbacks_of(parameter).values()):
                if isinstance(each, GradientCallback) and each.receiver is self._receiver:
                    each.updated = True

    @property
    def saving(self) -> bool:
        """True if more than losses is due at the open step."""
        return self._receiver.saving_tensors

    def remove(self) -> None:
        """Remove every callback."""
        for name in list(self._handles):
            self._forget(name)

    def _forget(self, name: str) -> None:
        handle, *_ = self._handles.pop(name, _NOTHING)
        if handle is not None:
            handle.remove()


class _BeforeUpdates:
    """The pre-hook of the steps of all optimizers of the process. It holds no references to hooks.

    It is registered once and never removed, because an optimizer may be iterating over its callbacks in another thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: tuple[weakref.ref[GradientCallbacks], ...] = ()
        register_optimizer_step_pre_hook(self)

    def notify(self, callbacks: GradientCallbacks) -> None:
        """Notify the callbacks of a hook of each update, as long as they live."""
        with self._lock:
            self._all = (*(each for each in self._all if each() is not None), weakref.ref(callbacks))

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if is_compiling() or not any(each.saving for each in self._living()):
            return None
        return call_before_update(optimizer, args, kwargs, self._note_update)

    def _note_update(self, optimizer: torch.optim.Optimizer) -> None:
        for callbacks in self._living():
            if callbacks.saving:
                callbacks.note_update(optimizer)

    def _living(self) -> list[GradientCallbacks]:
        return [callbacks for each in self._all if (callbacks := each()) is not None]


_before_updates = _BeforeUpdates()


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the parameters of all groups of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def updates_any(optimizer: torch.optim.Optimizer, parameters: set[int]) -> bool:
    """Return whether an optimizer updates any of the parameters with these ids."""
    return any(id(each) in parameters for each in parameters_of(optimizer))


def _callbacks_of(parameter: torch.Tensor) -> dict[int, Any]:
    return getattr(parameter, "_post_accumulate_grad_hooks", None) or {}


def _set_callbacks(parameter: Any, callbacks: dict[int, Any]) -> None:
    parameter._post_accumulate_grad_hooks = callbacks


def _put_first(callbacks: dict[int, Any], key: int) -> None:
    """Make this callback the first one, because the user's may consume the gradient (an optimizer in backward)."""
    if next(iter(callbacks), key) != key:
        # OrderedDict.move_to_end has no effect, because autograd iterates in the order of insertion.
        others = [(other, callbacks.pop(other)) for other in list(callbacks) if other != key]
        callbacks.update(others)


def gradients_of(root: Root, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the names of a model's parameters that have gradients now, each once, with the gradients."""
    seen: set[int] = set()
    for path, inner in modules_of(module):
        for name, parameter, is_parameter in tensors_of(path, inner):
            if is_parameter and id(parameter) not in seen and not is_lazy(parameter):
                seen.add(id(parameter))
                if parameter.grad is not None:
                    yield root.tensor_name(name), parameter.grad


def divided(gradient: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return a gradient divided by the scale of a scaler, with exactly the scaler's own result."""
    with torch.no_grad():
        # The scaler computes the inverse in float64, except on MPS, which lacks it.
        wide = scale if scale.device.type == "mps" else scale.double()
        inverse = wide.reciprocal().float()
        if hasattr(gradient, "to_local"):
            return gradient * float(inverse)
        return gradient.detach() * inverse.to(gradient.device, non_blocking=True)


class Unscaling:
    """The unscaling of gradients, as the scaler does it before the optimizer's step."""

    def __init__(self) -> None:
        self.scaler: Scaler | None = None

    def of_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return a gradient that backward has just computed, without the scale."""
        scale = None if self.scaler is None or not self.scaler.is_enabled() else self.scaler._get_scale_async()
        if scale is None:  # nothing was scaled so far
            return gradient
        return divided(gradient, scale)

    def of_now(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return a gradient without the scale, at any point between backward and the optimizer's step."""
        return gradient if self._has_unscaled() else self.of_backward(gradient)

    def _has_unscaled(self) -> bool:
        # The scaler keeps a state for each optimizer, in the order of their use in this step.
        states = list(getattr(self.scaler, "_per_optimizer_states", {}).values())
        return bool(states) and getattr(states[-1].get("stage"), "name", "") == "UNSCALED"
