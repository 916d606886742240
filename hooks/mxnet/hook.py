"""The MXNet hook.

import tensortrial.hooks.mxnet as tt

hook = tt.Hook(out_dir="runs/digits", include_collections=["weights", "gradients"])
hook.register_block(net)
hook.register_block(loss)
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError, MissingExtra, UnsupportedValue
from tensortrial.mode import ModeKeys, modes

from ..core import current_hook
from ..core.base_hook import BaseHook, create_trial, guarded
from ..core.collections import ModuleCollection
from ..core.counters import OccurrenceCounter
from ..core.current_hook import del_hook, set_hook
from ..core.options import Framework, HookOptions, accepts_fields_of
from ..core.rank import rank_of_process
from ..core.recorder import Recorder, logger

try:
    import mxnet as mx
except ImportError as exc:
    raise MissingExtra("mxnet", "mxnet", "the MXNet hook") from exc

from mxnet import gluon

from .arrays import arrays_in, device_of, host_copy, to_array
from .callbacks import BeginStep, EndForward, Inputs, Outputs, ignore_backward, listen_to_backward
from .gradients import Gradient, fresh_gradients

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

_BUILTIN = (
    CollectionKeys.WEIGHTS,
    CollectionKeys.BIASES,
    CollectionKeys.GRADIENTS,
    CollectionKeys.LOSSES,
    CollectionKeys.METRICS,
    CollectionKeys.SM_METRICS,
)


class Collection(ModuleCollection):
    """A collection that can also be told blocks."""

    def add_block_tensors(self, block: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Include what goes into a block of the registered model, what comes out of it, or both."""
        _check_block(block, "add_block_tensors")
        self.add_tensors_of(block, inputs, outputs)


_FRAMEWORK = Framework(
    "mxnet",
    {"mxnet": mx.__version__},
    builtin=_BUILTIN,
    always_saved=[CollectionKeys.LOSSES],
    collection_type=Collection,
    errors_of_training=(mx.MXNetError,),
)


class Hook(BaseHook):
    """A hook that saves the tensors of a Gluon job.

    `help(Hook.__init__)` lists the arguments. The losses are always saved. After construction no error of the hook
    reaches training: the hook logs the first one and turns itself off (TENSORTRIAL_STRICT=1 raises it instead). An
    error of MXNet's own is raised in any case: it belongs to a computation of the job, and MXNet reports it only once.

    Raises:
        ConfigurationError: An argument has a value that it cannot have.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        # What was registered, and the step at which its parameters were captured last. A model holds its hook by the
        # callbacks, and the hook holds no model.
        self._roots: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()
        self._devices: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
        self._devices_of: object = None
        self._uninitialised: list[Any] = []
        self._block_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._parameter_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._hybridized: weakref.WeakSet[Any] = weakref.WeakSet()
        # Names stay taken after what they named is gone.
        self._names_of_blocks: set[str] = set()
        self._names_of_parameters: set[str] = set()
        self._names_of_gradients: set[str] = set()
        self._handles: list[Any] = []
        self._occurrences = OccurrenceCounter()
        current_hook.made(self)

    # What the user calls.

    def register_block(self, block: Any) -> None:
        """Save the tensors of a model or of a loss.

        Of a model: its parameters, their gradients, and what goes in and out of its blocks; each forward of it begins a
        step. Of a `gluon.loss.Loss`: what it gives, in the collection `losses`, and what goes into it. Several models
        may be registered; registering one twice changes nothing.
        """
        _check_block(block, "register_block")
        self._warn_if_copy()
        self._register_block(block)

    register_hook = register_block

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default"
    ) -> None:
        """Save an array of MXNet or numpy, or a (nested) list or tuple of numbers, whatever the save configuration
        says: at the open step, or, when none is open, at the one that begins next in this mode; in the form that the
        collections ask for."""
        try:
            self.recorder.save_tensor(tensor_name, to_array(tensor_value), collections_to_write)
        except UnsupportedValue as exc:
            self.recorder.refuse(tensor_name, exc)

    # What the taps call.

    @property
    def saving(self) -> bool:
        """Whether anything is due at the open step."""
        return self.recorder.saving

    @guarded
    def begin_step(self, root: Any, inputs: Any) -> None:
        """For a model's taps: it is about to run on these."""
        if not self.recorder.active:
            return
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.resolve(self._block_names)
        self._begin_step_of(root, device_of(inputs))
        self.recorder.awaited.discard(self._block_names[root])
        step = self.recorder.step
        # A model that runs again in the step may have been updated in between.
        if self.saving and self._roots[root] is not step:
            self._roots[root] = step
            self._uninitialised = self._capture_parameters(self._follow(root))

    @guarded
    def end_forward(self, root: Any) -> None:
        """For a model's taps: it has run, and what of it was not initialised is so by now."""
        self._uninitialised = self._capture_parameters(self._uninitialised)

    @guarded
    def values_of(self, name: str, kind: str, values: Any) -> None:
        """For a block's taps: it is about to run on these, or gave them."""
        for array in arrays_in(values):
            number = self._occurrences.next(self.recorder.step, name, kind)
            self._capture(f"{name}_{kind}_{number}", array)

    @guarded
    def backward_ran(self) -> None:
        """For the tap of backward: gradients are there, of parameters that MXNet marks as fresh until a trainer has
        used them."""
        for parameter, name in self._parameter_names.items():
            for device, gradient in fresh_gradients(parameter):
                self._name_gradient(f"gradient/{name}{device}", name)
                self._capture_gradient(f"gradient/{name}{device}", gradient)

    # Registering.

    @guarded
    def _register_block(self, block: Any) -> None:
        if block in self._roots or not self.recorder.active:
            return
        self._roots[block] = None
        if isinstance(block, gluon.loss.Loss):
            self._tap(block)
            pattern = f"^{re.escape(self._block_names[block])}_output_"
            self.recorder.collections.require(CollectionKeys.LOSSES).include(pattern)
            return
        # First of all hooks, so that what the others see belongs to the step.
        self._handles.append(block.register_forward_pre_hook(BeginStep(self, block)))
        self._handles.append(block.register_forward_hook(EndForward(self, block)))
        self._follow(block)
        self.recorder.awaited.add(self._block_names[block])
        listen_to_backward(self)

    def _follow(self, root: Any) -> list[Any]:
        """Tap what is new in a model, and give its parameters: blocks may have been added or hybridized since the last
        step."""
        root.apply(self._tap)
        parameters = list(root.collect_params().values())
        for parameter in parameters:
            if parameter not in self._parameter_names:
                self._name(parameter)
        for block in _hybridized(root):
            if block not in self._hybridized:
                self._hybridized.add(block)
                logger.warning(
                    "%s is hybridized: what goes in and out of the blocks inside is not captured; parameters, their "
                    "gradients, and the block's own inputs and outputs are",
                    self._block_names[block],
                )
        return parameters

    def _tap(self, block: Any) -> None:
        if block in self._block_names:
            return
        name = _unlike(self._names_of_blocks, block.name or type(block).__name__.lower())
        self._block_names[block] = name
        self._handles.append(block.register_forward_pre_hook(Inputs(self, name)))
        self._handles.append(block.register_forward_hook(Outputs(self, name)))

    def _name(self, parameter: Any) -> None:
        name = _unlike(self._names_of_parameters, parameter.name)
        self._parameter_names[parameter] = name
        collections = self.recorder.collections
        for kind, word in ((CollectionKeys.WEIGHTS, "weight"), (CollectionKeys.BIASES, "bias")):
            if parameter.name.endswith(word):
                collections.require(kind).add_tensor_names([name])
        self._name_gradient(f"gradient/{name}", name)

    def _name_gradient(self, name: str, parameter: str) -> None:
        if name not in self._names_of_gradients:
            self._names_of_gradients.add(name)
            self.recorder.collections.add_gradient(name, parameter)

    @guarded
    def _let_go(self) -> None:
        for handle in self._handles:
            handle.detach()
        ignore_backward(self)
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.forget_parts()
        for known in (self._handles, self._roots, self._devices, self._block_names, self._parameter_names):
            known.clear()
        self._hybridized.clear()
        self._uninitialised = []

    # Steps.

    def _begin_step_of(self, root: Any, device: Any) -> None:
        """Begin a step, unless a batch that is split over several devices has begun it on another one."""
        if self._devices_of is not self.recorder.step or not self._is_next_part(root, device):
            self.recorder.begin_step()
        if self._devices_of is not self.recorder.step:
            self._devices_of = self.recorder.step
            self._devices.clear()
        self._devices.setdefault(root, set()).add(device)

    def _is_next_part(self, root: Any, device: Any) -> bool:
        devices = self._devices.get(root, set())
        return bool(devices) and device not in devices and _is_on_several_devices(root)

    # Capturing.

    def _capture_parameters(self, parameters: Iterable[Any]) -> list[Any]:
        """Capture parameters as they are before the step's update, and give those that MXNet initialises only when it
        sees what the model is run on."""
        uninitialised = []
        for parameter in parameters:
            if parameter._data is None:
                uninitialised.append(parameter)
            else:
                self._capture(self._parameter_names[parameter], parameter._data[0])
        return uninitialised

    def _capture_gradient(self, name: str, gradient: Gradient) -> None:
        plan = self.recorder.plan(name)
        if plan is not None:
            self.recorder.record(plan, gradient.unscaled(), owned=True)

    def _capture(self, name: str, array: Any) -> None:
        plan = self.recorder.plan(name)
        if plan is not None:
            self.recorder.record(plan, host_copy(array), owned=True)


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current_hook.get_hook(hook_type, json_config_path, create_if_not_exists, create=Hook.create_from_json_file)


def _hybridized(block: Any) -> Iterator[Any]:
    """The outermost blocks whose insides run as a graph, without Python."""
    if isinstance(block, gluon.HybridBlock) and block._active:
        if block._children:
            yield block
    else:
        for child in block._children.values():
            yield from _hybridized(child)


def _is_on_several_devices(root: Any) -> bool:
    return any(len(parameter._data or ()) > 1 for parameter in root.collect_params().values())


def _unlike(taken: set[str], name: str) -> str:
    """The name, with a number if there is one like it. It is taken from here on."""
    candidates = (f"{name}_{number}" if number else name for number in range(len(taken) + 1))
    found = next(each for each in candidates if each not in taken)
    taken.add(found)
    return found


def _check_block(block: Any, method: str) -> None:
    if not isinstance(block, gluon.Block):
        raise ConfigurationError(f"{method} takes a gluon.Block, not {type(block).__name__}")
