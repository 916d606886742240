"""The PyTorch hook.

import tensortrial.hooks.pytorch as tt

hook = tt.Hook(out_dir="runs/digits", include_collections=["weights", "gradients"])
hook.register_module(model)
hook.register_loss(criterion)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError, MissingExtra, UnsupportedValue
from tensortrial.mode import ModeKeys, modes

from ..core import current_hook
from ..core.base_hook import BaseHook, create_trial, guarded
from ..core.collections import ModuleCollection
from ..core.current_hook import del_hook, set_hook
from ..core.options import Framework, HookOptions, accepts_fields_of
from ..core.rank import rank_of_process
from ..core.recorder import Recorder

try:
    import torch
except ImportError as exc:
    raise MissingExtra("torch", "torch", "the PyTorch hook") from exc

from torch.nn.parameter import is_lazy

from . import compile as torch_graphs
from .arrays import to_array, to_tensor
from .callbacks import Gradient
from .calls import Caller, caller_of, in_trial
from .capture import Capture
from .gradients import Scaler, Unscaling, gradients_of
from .missed import Unheard
from .models import Models
from .names import Root
from .scripting import keep_taps_from_scripting

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
    CollectionKeys.BUFFERS,
    CollectionKeys.METRICS,
    CollectionKeys.SM_METRICS,
)


class Collection(ModuleCollection):
    """A collection that can also be told modules."""

    def add_module_tensors(self, module: torch.nn.Module, inputs: bool = False, outputs: bool = True) -> None:
        """Include what goes into a module of the registered model, what comes out of it, or both."""
        if not isinstance(module, torch.nn.Module):
            raise ConfigurationError(f"add_module_tensors takes a torch.nn.Module, not {type(module).__name__}")
        self.add_tensors_of(module, inputs, outputs)


_FRAMEWORK = Framework(
    "pytorch",
    {"torch": torch.__version__},
    builtin=_BUILTIN,
    always_saved=[CollectionKeys.LOSSES],
    collection_type=Collection,
)


@dataclass(frozen=True)
class Options(HookOptions):
    """The argument that only the PyTorch hook has.

    Args:
        full_tensors: Save parameters and gradients that FSDP2 shards (DTensors) as a whole. Every process of the job
            then has to make the same hook, also where `include_workers` is "one": all of them take part whenever one of
            these tensors is due.
    """

    full_tensors: bool = field(default=False, kw_only=True)


class Hook(BaseHook):
    """A hook that saves the tensors of a PyTorch job.

    `help(Hook.__init__)` lists the arguments: those of every hook, and `full_tensors`. The losses are always saved.
    After construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has a value that it cannot have.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(Options)
    def __init__(self, options: Options) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process, follows=options.full_tensors)
        self._models = Models(self, self.recorder.collections)
        self._capture = Capture(self.recorder, options.full_tensors)
        self._unscaling = Unscaling()
        self._in_trial = self._unready = False
        self._unheard = Unheard()
        self._generation = -1
        current_hook.made(self)

    # What the user calls.

    def register_module(self, module: torch.nn.Module) -> None:
        """Save the tensors of a model: its parameters, their gradients, and what goes in and out of its modules. Each
        forward of the model begins a step. Register it after it is wrapped for distributed training, and before code
        that torch.compile compiles runs for the first time.

        Several models may be registered; the second of a class Net is called Net_1. Registering one twice changes
        nothing.
        """
        _check_module(module, "register_module")
        self._say_if_copy()
        self._register_module(module)

    register_hook = register_module

    def register_scaler(self, scaler: Scaler) -> None:
        """Save gradients without the scale of this torch.amp.GradScaler, whose loss scaling makes them larger until
        `scaler.unscale_` or `scaler.step` takes it out.

        Args:
            scaler: The scaler of the training; another one takes its place. One that is not enabled changes nothing.

        Raises:
            ConfigurationError: What is passed is not a scaler.
        """
        if not callable(getattr(scaler, "_get_scale_async", None)):
            raise ConfigurationError(f"register_scaler takes a torch.amp.GradScaler, not {type(scaler).__name__}")
        self._unscaling.scaler = scaler

    @guarded
    def save_gradients(self, module: torch.nn.Module | None = None) -> None:
        """Save the gradients as they are now, instead of what the first backward of the step left, if they are due at
        the open step: to choose the moment in a step of several updates, or after `scaler.unscale_`, clipping, or the
        averaging of DistributedDataParallel. What comes later in the step changes nothing.

        Args:
            module: A registered model; all of them by default.
        """
        step = self.recorder.step
        for root, model in self._models.living() if self.saving else ():
            if module is None or root is self._models.root_of(module):
                root.fixed_at = step
                self._save_gradients(root, model)

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Save what a loss module gives, in the collection `losses`, and what goes into it."""
        _check_module(loss_module, "register_loss")
        self._register_loss(loss_module)

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default"
    ) -> None:
        """Save an array, a torch tensor, or a (nested) list or tuple of numbers, whatever the save configuration says:
        at the open step, or, when none is open, at the one that begins next in this mode; in the form that the
        collections ask for."""
        try:
            # The array of a tensor is a copy already.
            owned = isinstance(tensor_value, torch.Tensor)
            self.recorder.save_tensor(tensor_name, to_array(tensor_value), collections_to_write, owned)
        except UnsupportedValue as exc:
            self.recorder.refuse(tensor_name, exc)

    @guarded
    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Save a tensor that no module gives, such as a functional loss, as `<tensor_name>_output_<i>`, if it is due at
        the open step. With `loss` in its name it is one of the losses."""
        if not self.saving:
            return
        name = f"{tensor_name}_output_{self._capture.number(tensor_name, 'output')}"
        if "loss" in tensor_name.lower():
            self.recorder.collections.require(CollectionKeys.LOSSES).add_tensor_names([name])
        try:
            self._capture.tensor(name, to_tensor(tensor_value))
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    def close(self) -> None:
        self._send()
        super().close()

    @guarded
    def _let_go(self) -> None:
        torch_graphs.switch.turn(self, False)
        self._models.release()
        self._capture.release()
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.forget_parts()

    # What the taps call.

    @property
    def saving(self) -> bool:
        """Whether anything is due at the open step."""
        return self.recorder.saving

    def may_save(self, names: list[str]) -> bool:
        """For the compiler: whether one of these tensors may be saved at some step."""
        self._resolve_modules()
        return self.recorder.may_save(names)

    @guarded
    def begin_step(self, root: Root, module: torch.nn.Module | None) -> None:
        """For a model's taps: it is about to run."""
        if self.recorder.counting:
            caller = Caller.TRAINING if module is None else caller_of(module)
            self._in_trial = caller is Caller.TRIAL
            root.in_pipeline |= caller is Caller.PIPELINE
            if caller in (Caller.TRAINING, Caller.PIPELINE):
                self._begin_step(root)
        self._turn_switch()

    @guarded
    def values_of(self, path: str, direction: str, value: Any) -> None:
        """For a module's taps: it is about to run on this, or gave it."""
        if self._in_trial:
            self._in_trial = in_trial()
            if self._in_trial:
                return
        self._unheard.note(path)
        self._capture.values(path, direction, value)
        if self._unready and direction == "output":
            self._save_late_parameters()

    @guarded
    def value_of(self, path: str, direction: str, key: str | None, tensor: torch.Tensor) -> None:
        """For a module's taps: one tensor of it."""
        self._unheard.note(path)
        self._capture.value(path, direction, key, tensor)

    @guarded
    def gradient_of(self, tap: Gradient, gradient: torch.Tensor | None, version: int) -> None:
        """For a parameter's taps: its gradient is there."""
        self._unheard.note(tap.name)
        step = self.recorder.step
        if gradient is None or tap.root.fixed_at is step or tap.root.in_pipeline:
            return
        # After the parameter's update, other models' losses may add to a gradient that has served (the discriminator's
        # of a GAN); before, what comes is accumulated for the update.
        if not tap.follows_update(step, version):
            self._capture.tensor(tap.name, self._unscaling.of_backward(gradient))

    def _begin_step(self, root: Root) -> None:
        self._end_step()
        self.recorder.begin_step()
        self.recorder.awaited.discard(root.name)
        root.ran_at = self.recorder.step
        self._save_parameters(root)

    def _end_step(self) -> None:
        self._resolve_modules()
        if self.saving:
            self._unheard.tell(self.recorder.step, lambda name: self.recorder.plan(name) is not None)
        self._capture.send()

    def _save_parameters(self, root: Root) -> None:
        step = self.recorder.step
        # A model that runs again in the step may have been updated in between.
        if self.saving and root.seen_at is not step:
            root.seen_at = step
            for name, tensor in self._models.follow(root):
                self._capture.tensor(name, tensor)
            self._unready |= bool(root.unready)

    def _save_late_parameters(self) -> None:
        """Save what lazy modules made of their parameters when they ran first."""
        self._unready = False
        for root, _ in self._models.living():
            if unready := root.unready.copy():
                for name, tensor in self._models.follow(root):
                    if name in unready and not is_lazy(tensor):
                        self._capture.tensor(name, tensor)
                self._unready |= bool(root.unready)

    def _save_gradients(self, root: Root, module: torch.nn.Module) -> None:
        for name, gradient in gradients_of(root, module):
            self._unheard.note(name)
            self._capture.tensor(name, self._unscaling.of_now(gradient))

    # Compiled code: it looks at the switch before it runs, and takes the graph without taps where that is off.

    def _turn_switch(self) -> None:
        recorder = self.recorder
        if recorder.generation != self._generation:
            self._generation = recorder.generation
            torch_graphs.look_again()
        # A model that runs inside compiled code begins its step when the code has looked at the switch already.
        ahead = any(root.inside or root.name in recorder.awaited for root in self._models.roots)
        torch_graphs.switch.turn(self, recorder.saving or (ahead and recorder.next_is_due()))

    @guarded
    def _set_mode(self, mode: ModeKeys) -> None:
        self._capture.send()
        self.recorder.set_mode(mode)
        self._turn_switch()

    @guarded
    def _send(self) -> None:
        self._capture.send()

    @guarded
    def _hold_step(self) -> None:
        if self.recorder.counting:
            self._end_step()
            self.recorder.hold_step()
            for root, _ in self._models.living():
                self._save_parameters(root)
                self.recorder.awaited.discard(root.name)
        self._turn_switch()

    @guarded
    def _release_step(self) -> None:
        for root, module in self._models.living() if self.saving else ():
            # A pipeline scales what several microbatches have added up once all of them are through.
            if root.in_pipeline and root.fixed_at is not self.recorder.step:
                self._save_gradients(root, module)
        self.recorder.release_step()

    # Registering.

    @guarded
    def _register_module(self, module: torch.nn.Module) -> None:
        keep_taps_from_scripting()
        root = self._models.register(module)
        if root is not None:
            self.recorder.awaited.add(root.name)
            self._unheard.expect(root)
            # Compiled code that runs before any step is open has its taps.
            torch_graphs.look_again()
            torch_graphs.switch.turn(self, self.recorder.active)

    @guarded
    def _register_loss(self, loss_module: torch.nn.Module) -> None:
        self._models.register_loss(loss_module)

    def _resolve_modules(self) -> None:
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.resolve(self._models.names)


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current_hook.get_hook(hook_type, json_config_path, create_if_not_exists, create=Hook.create_from_json_file)


def _check_module(module: Any, method: str) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ConfigurationError(f"{method} takes a torch.nn.Module, not {type(module).__name__}")
