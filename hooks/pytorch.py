"""The PyTorch hook.

import tensortrial.hooks.pytorch as tt

hook = tt.Hook(out_dir="runs/digits", include_collections=["weights", "gradients"])
hook.register_module(model)
hook.register_loss(criterion)
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from tensortrial.collection import CollectionKeys
from tensortrial.errors import ConfigurationError, MissingExtra, UnsupportedValue
from tensortrial.mode import ModeKeys, modes
from tensortrial.reduction_config import ReductionConfig
from tensortrial.save_config import SaveConfig, SaveConfigMode

from . import current
from .current import del_hook, set_hook
from .hook import BaseHook, guarded
from .module_collection import ModuleCollection
from .rank import Rank, rank_from_environment
from .reading import create_trial
from .recorder import Recorder

try:
    import torch
except ImportError as exc:
    raise MissingExtra("torch", "torch", "the PyTorch hook") from exc

from torch.nn.parameter import is_lazy

from . import torch_graphs
from .torch_capture import Capture
from .torch_names import Root, class_name, kind_of, modules_of, tensors_of, unwrapped
from .torch_taps import BeginStep, Gradient, Inputs, Outputs
from .torch_tensors import to_array
from .torch_unheard import Unheard

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


class Hook(BaseHook):
    """Saves the tensors of a PyTorch job.

    `out_dir` is a folder or an fsspec URL, and must not hold a run, unless `resume`. What is saved: the collections in
    `include_collections` and the losses, tensors that match `include_regex`, or everything with `save_all`; at the
    steps of `save_config`; raw, or as the statistics of `reduction_config`. Collections can override both.
    `include_workers` is "one" (worker_0 of a distributed job) or "all". `dry_run` saves nothing.

    `export_tensorboard` also writes event files for TensorBoard, into a folder a mode of `tensorboard_dir`, by default
    out_dir/tensorboard.

    Beyond smdebug: `resume` continues a run after its last published step; `storage_options` go to fsspec;
    `flush_seconds` is how long a closed step may wait before it is published (0: not at all; default 1 s local, 10 s
    remote); `codec` is none, lz4 or zstd; `metadata` is kept with the run. `full_tensors` saves parameters and
    gradients that FSDP2 shards (DTensors) as a whole: every process of the job then makes the same hook, also where
    `include_workers` is "one", because all of them take part whenever one is due.

    Raises ConfigurationError for arguments that make no sense, RunExists. After construction no error reaches training:
    the hook logs it once and turns itself off (TENSORTRIAL_STRICT=1 raises instead).
    """

    def __init__(
        self,
        out_dir: str | os.PathLike[str],
        export_tensorboard: bool = False,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[Any, Any] | None = None,
        include_regex: Iterable[str] | str | None = None,
        include_collections: Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        resume: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        flush_seconds: float | None = None,
        codec: str = "none",
        metadata: Mapping[str, Any] | None = None,
        full_tensors: bool = False,
    ) -> None:
        self.recorder = Recorder(
            out_dir,
            framework="pytorch",
            versions={"torch": torch.__version__},
            rank=_rank(),
            builtin=_BUILTIN,
            always_saved=[CollectionKeys.LOSSES],
            collection_factory=Collection,
            export_tensorboard=export_tensorboard,
            tensorboard_dir=tensorboard_dir,
            dry_run=dry_run,
            reduction_config=reduction_config,
            save_config=save_config,
            include_regex=include_regex,
            include_collections=include_collections,
            save_all=save_all,
            include_workers=include_workers,
            resume=resume,
            storage_options=storage_options,
            flush_seconds=flush_seconds,
            codec=codec,
            metadata=metadata,
            follows=full_tensors,
        )
        self._roots: list[Root] = []
        self._losses: set[torch.nn.Module] = set()
        self._classes: dict[str, int] = {}
        self._module_names: dict[torch.nn.Module, str] = {}
        self._parameter_names: set[str] = set()
        self._gradients: dict[str, tuple[weakref.ref[torch.Tensor], Any]] = {}
        self._capture = Capture(self.recorder, full_tensors)
        self._unheard = Unheard()
        self._generation = -1
        if current.get_hook() is None:
            set_hook(self)

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
            self.recorder.save_tensor(tensor_name, to_array(tensor_value), collections_to_write)
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
        self._capture.tensor(name, torch.as_tensor(tensor_value))

    def close(self) -> None:
        self._send()
        super().close()
        torch_graphs.switch.turn(self, False)

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
    def begin_step(self, root: Root) -> None:
        """For a model's taps: it is about to run."""
        if self.recorder.counting:
            self._begin_step(root)
        self._turn_switch()

    @guarded
    def values_of(self, path: str, direction: str, value: Any) -> None:
        """For a module's taps: it is about to run on this, or gave it."""
        self._unheard.note(path)
        self._capture.values(path, direction, value)

    @guarded
    def value_of(self, path: str, direction: str, key: str | None, tensor: torch.Tensor) -> None:
        """For a module's taps: one tensor of it."""
        self._unheard.note(path)
        self._capture.value(path, direction, key, tensor)

    @guarded
    def gradient_of(self, name: str, gradient: torch.Tensor | None) -> None:
        """For a parameter's taps: its gradient is there."""
        self._unheard.note(name)
        if gradient is not None:
            self._capture.tensor(name, gradient)

    def _begin_step(self, root: Root) -> None:
        self._resolve_modules()
        if self.saving:
            self._unheard.tell(self.recorder.step, lambda name: self.recorder.plan(name) is not None)
        self._capture.send()
        self.recorder.begin_step()
        self.recorder.awaited.discard(root.name)
        step = self.recorder.step
        # A model that runs again in the step may have been updated in between.
        if self.saving and root.seen_at is not step:
            root.seen_at = step
            for name, tensor in self._follow(root):
                self._capture.tensor(name, tensor)

    # Compiled code: it looks at the switch before it runs, and takes the graph without taps where that is off.

    def _turn_switch(self) -> None:
        recorder = self.recorder
        if recorder.generation != self._generation:
            self._generation = recorder.generation
            torch_graphs.look_again()
        # A model that runs inside compiled code begins its step when the code has looked at the switch already.
        ahead = any(root.inside or root.name in recorder.awaited for root in self._roots)
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
        self.recorder.hold_step()
        self._turn_switch()

    # Registering.

    @guarded
    def _register_module(self, module: torch.nn.Module) -> None:
        if any(unwrapped(root.module) is unwrapped(module) for root in self._roots):
            return
        root = Root(self._root_name(module), module)
        taken = set(self._module_names.values())
        if any(path in taken for path, _ in modules_of(module) if path):
            root.prefix = f"{root.name}."
        self._roots.append(root)
        self.recorder.awaited.add(root.name)
        self._unheard.expect(root)
        # First of all hooks, so that what the others see belongs to the step.
        module.register_forward_pre_hook(BeginStep(self, root), prepend=True)
        self._follow(root)
        # Compiled code that runs before any step is open has its taps.
        torch_graphs.look_again()
        torch_graphs.switch.turn(self, self.recorder.active)

    @guarded
    def _register_loss(self, loss_module: torch.nn.Module) -> None:
        if loss_module in self._losses:
            return
        self._losses.add(loss_module)
        name = self._root_name(loss_module)
        self._module_names.setdefault(loss_module, name)
        self._tap(loss_module, name)
        self.recorder.collections.require(CollectionKeys.LOSSES).include(f"^{re.escape(name)}_output_")

    def _root_name(self, module: torch.nn.Module) -> str:
        name = class_name(module)
        count = self._classes.get(name, 0)
        self._classes[name] = count + 1
        return f"{name}_{count}" if count else name

    def _follow(self, root: Root) -> Iterable[tuple[str, torch.Tensor]]:
        """Tap what is new in a model, and give its parameters and buffers: a module or a parameter may have been
        exchanged since the last step, and a frozen parameter set free."""
        state: dict[int, tuple[str, torch.Tensor]] = {}
        paths = set()
        for path, module in modules_of(root.module):
            if module not in self._module_names:
                self._module_names[module] = root.module_name(path)
                if path not in paths:
                    self._tap(module, root.module_name(path))
            paths.add(path)
            for inner, tensor, is_parameter in tensors_of(path, module):
                # A tied parameter is saved once, under its first name.
                if id(tensor) not in state:
                    name = root.tensor_name(inner)
                    state[id(tensor)] = (name, tensor)
                    self._name(name, inner, is_parameter)
                    if is_parameter:
                        self._follow_gradient(f"gradient/{name}", tensor)
        return state.values()

    def _tap(self, module: torch.nn.Module, name: str) -> None:
        module.register_forward_pre_hook(Inputs(self, name, module), with_kwargs=True)
        module.register_forward_hook(Outputs(self, name, module))

    def _name(self, name: str, path: str, is_parameter: bool) -> None:
        """Put a parameter with its gradient, or a buffer, into the collections that are meant for it."""
        if name in self._parameter_names:
            return
        self._parameter_names.add(name)
        kind = kind_of(path) if is_parameter else CollectionKeys.BUFFERS
        if kind is not None:
            self.recorder.collections.require(kind).add_tensor_names([name])
        if is_parameter:
            self.recorder.collections.require(CollectionKeys.GRADIENTS).add_tensor_names([f"gradient/{name}"])

    def _follow_gradient(self, name: str, parameter: torch.Tensor) -> None:
        known, handle = self._gradients.get(name, (None, None))
        if known is not None and known() is parameter:
            return
        if handle is not None:
            handle.remove()
            del self._gradients[name]
        if parameter.requires_grad and parameter.is_leaf and not is_lazy(parameter):
            register: Any = parameter.register_post_accumulate_grad_hook
            self._gradients[name] = (weakref.ref(parameter), register(Gradient(self, name)))

    def _resolve_modules(self) -> None:
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.resolve(self._module_names)


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current.get_hook(hook_type, json_config_path, create_if_not_exists, create=Hook.create_from_json_file)


def _rank() -> Rank:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Rank(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return rank_from_environment()


def _check_module(module: Any, method: str) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ConfigurationError(f"{method} takes a torch.nn.Module, not {type(module).__name__}")
