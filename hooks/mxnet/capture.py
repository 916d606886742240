"""The capture of the tensors of Gluon models and losses: what the callbacks of blocks call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mxnet import gluon

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array

from ..core.configuration.collections import ModuleCollection
from ..core.log import logger
from ..core.recorder import Recorder, guarded
from ..core.step_clock import OccurrenceCounter
from ..library.identity import IdentityMap
from ..library.unique_names import take_name
from .arrays import arrays_in, device_of, host_copy, weight_copy
from .backward import observe_backward, stop_observing_backward
from .callbacks import BeginStep, EndForward, InputCallback, OutputCallback
from .gradients import Gradient, fresh_gradients

_LOSSES = frozenset({CollectionKeys.LOSSES})


class Capture:
    """Captures the tensors of registered blocks at the steps at which they are due."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # The registered models and losses, with the step at which their parameters were captured last. Models refer to
        # the hook by their callbacks, but the hook has only weak references to models.
        self._roots = IdentityMap[Any, object]()
        self._devices = IdentityMap[Any, set[Any]]()
        self._devices_of: object = None
        self._uninitialized: list[Any] = []
        self._block_names = IdentityMap[Any, str]()
        self._parameter_names = IdentityMap[Any, str]()
        self._hybridized = IdentityMap[Any, None]()
        # A name is not used again after its block or parameter was freed.
        self._names_of_blocks: set[str] = set()
        self._names_of_parameters: set[str] = set()
        self._names_of_gradients: set[str] = set()
        self._losses: set[str] = set()
        self._loss_patterns: set[str] = set()
        self._knows_losses = False
        self._handles: list[Any] = []
        self._occurrences = OccurrenceCounter()

    # Methods that callbacks call.

    @property
    def saving_tensors(self) -> bool:
        """True if more than the outputs of registered losses is due, which need no callbacks of other blocks."""
        return self.recorder.saving and not (self._knows_losses and self.recorder.planner.due == _LOSSES)

    def saves(self, name: str) -> bool:
        """Return whether anything is due of a block."""
        return self.recorder.saving if name in self._losses else self.saving_tensors

    @guarded
    def begin_forward(self, root: Any, inputs: Any) -> None:
        """Begin a step and capture the parameters of a model before its forward.

        If a batch is split over several devices, the first of them begins the step for all.
        """
        if not self.recorder.active:
            return
        for collection in self.recorder.collections:
            if isinstance(collection, ModuleCollection):
                collection.resolve(self._block_names)
        self._begin_step_of(root, device_of(inputs))
        self._knows_losses = self._has_only_registered_losses()
        self.recorder.pending_models.discard(self._block_names[root])
        step = self.recorder.clock.step
        # A model that runs again in the step may have been updated in between.
        if self.saving_tensors and self._roots[root] is not step:
            self._roots[root] = step
            self._uninitialized = self._capture_parameters(self._refresh(root))

    @guarded
    def end_forward(self, root: Any) -> None:
        """Capture the parameters that the forward of a model has initialized."""
        self._uninitialized = self._capture_parameters(self._uninitialized)

    @guarded
    def capture_values(self, name: str, role: str, values: Any) -> None:
        """Capture the inputs or outputs of a block. `role` is `input` or `output`."""
        for array in arrays_in(values):
            number = self._occurrences.next(self.recorder.clock.step, name, role)
            self._capture(f"{name}_{role}_{number}", array)

    @guarded
    def backward_ran(self) -> None:
        """Capture the gradients that MXNet marks as fresh: no trainer has used them yet."""
        for parameter, name in self._parameter_names.items():
            for device, gradient in fresh_gradients(parameter):
                self._name_gradient(f"gradient/{name}{device}", name)
                self._capture(f"gradient/{name}{device}", gradient, Gradient.unscaled)

    # Registering.

    @guarded
    def register_block(self, block: Any) -> None:
        """Register callbacks on a model and on all of its blocks, or on a loss."""
        if block in self._roots or not self.recorder.active:
            return
        self._roots[block] = None
        if isinstance(block, gluon.loss.Loss):
            self._register_callbacks(block)
            name = self._block_names[block]
            pattern = f"^{re.escape(name)}_output_"
            self._losses.add(name)
            self._loss_patterns.add(pattern)
            self.recorder.collections.require(CollectionKeys.LOSSES).include(pattern)
            return
        # It precedes all other callbacks, so that their captures belong to the step.
        self._handles.append(block.register_forward_pre_hook(BeginStep(self, block)))
        self._handles.append(block.register_forward_hook(EndForward(self, block)))
        self._refresh(block)
        self.recorder.pending_models.add(self._block_names[block])
        observe_backward(self)

    def _refresh(self, root: Any) -> list[Any]:
        """Register callbacks on the new blocks of a model, and return its parameters.

        The model may have changed since the last step.
        """
        root.apply(self._register_callbacks)
        parameters = list(root.collect_params().values())
        for parameter in parameters:
            if parameter not in self._parameter_names:
                self._name_parameter(parameter)
        for block in _hybridized(root):
            if block not in self._hybridized:
                self._hybridized[block] = None
                logger.warning(
                    "inputs and outputs of the blocks inside %s are not saved, because it is hybridized; its "
                    "parameters, their gradients, and its own inputs and outputs are. To save all, do not hybridize it",
                    self._block_names[block],
                )
        return parameters

    def _register_callbacks(self, block: Any) -> None:
        if block in self._block_names:
            return
        name = take_name(self._names_of_blocks, block.name or type(block).__name__.lower())
        self._block_names[block] = name
        self._handles.append(block.register_forward_pre_hook(InputCallback(self, name)))
        self._handles.append(block.register_forward_hook(OutputCallback(self, name)))

    def _name_parameter(self, parameter: Any) -> None:
        name = take_name(self._names_of_parameters, parameter.name)
        self._parameter_names[parameter] = name
        collections = self.recorder.collections
        for collection, ending in ((CollectionKeys.WEIGHTS, "weight"), (CollectionKeys.BIASES, "bias")):
            if parameter.name.endswith(ending):
                collections.require(collection).add_tensor_names([name])
        if parameter.grad_req != "null":
            self._name_gradient(f"gradient/{name}", name)

    def _name_gradient(self, name: str, parameter: str) -> None:
        if name not in self._names_of_gradients:
            self._names_of_gradients.add(name)
            self.recorder.collections.add_gradient(name, parameter)

    def let_go(self) -> None:
        """Remove the callbacks, and keep no reference to a model."""
        for handle in self._handles:
            handle.detach()
        stop_observing_backward(self)
        for collection in self.recorder.collections:
            if isinstance(collection, ModuleCollection):
                collection.forget_parts()
        for known in (self._handles, self._roots, self._devices, self._block_names, self._parameter_names):
            known.clear()
        self._hybridized.clear()
        self._uninitialized = []

    # Steps.

    def _begin_step_of(self, root: Any, device: Any) -> None:
        """Begin a step, unless another device has begun it for a batch that is split over several."""
        if self._devices_of is not self.recorder.clock.step or not self._is_next_part(root, device):
            self.recorder.begin_step()
        if self._devices_of is not self.recorder.clock.step:
            self._devices_of = self.recorder.clock.step
            self._devices.clear()
        self._devices.setdefault(root, set()).add(device)

    def _is_next_part(self, root: Any, device: Any) -> bool:
        devices = self._devices.get(root, set())
        return bool(devices) and device not in devices and _is_on_several_devices(root)

    # Capturing.

    def _has_only_registered_losses(self) -> bool:
        """Return whether the collection `losses` has nothing but the outputs of registered losses."""
        losses = self.recorder.collections.require(CollectionKeys.LOSSES)
        return not losses.tensor_names and self._loss_patterns.issuperset(losses.include_regex)

    def _capture_parameters(self, parameters: Iterable[Any]) -> list[Any]:
        """Capture parameters before the step updates them, and return the uninitialized ones.

        MXNet initializes them in the forward, when the shapes of the inputs are known.
        """
        uninitialized = []
        for parameter in parameters:
            if parameter._data is None:
                uninitialized.append(parameter)
            else:
                self._capture(self._parameter_names[parameter], parameter._data[0], weight_copy)
        return uninitialized

    def _capture(self, name: str, value: Any, copy: Callable[[Any], Array] = host_copy) -> None:
        plan = self.recorder.planner.plan(name)
        if plan is not None:
            self.recorder.record(plan, copy(value), owned=True)


def _hybridized(block: Any) -> Iterator[Any]:
    """Yield the outermost blocks whose children run as a graph, without Python."""
    if isinstance(block, gluon.HybridBlock) and block._active:
        if block._children:
            yield block
    else:
        for child in block._children.values():
            yield from _hybridized(child)


def _is_on_several_devices(root: Any) -> bool:
    return any(len(parameter._data or ()) > 1 for parameter in root.collect_params().values())
