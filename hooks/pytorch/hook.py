"""The PyTorch hook.

import tensortrial.hooks.pytorch as tt

hook = tt.Hook(out_dir="runs/digits", include_collections=["weights", "gradients"])
hook.register_module(model)
hook.register_loss(criterion)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import ConfigurationError, MissingExtra, UnsupportedValue
from tensortrial.mode import ModeKeys

from ..core import current_hook
from ..core.base_hook import BaseHook, guarded
from ..core.configuration.collections import ModuleCollection
from ..core.configuration.health import define_health
from ..core.configuration.options import Framework, HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import Recorder

try:
    import torch
except ImportError as exc:
    raise MissingExtra("torch", "torch", "the PyTorch hook") from exc

from torch.nn.parameter import is_lazy

from . import compile as compiled
from .activations import activations_in
from .arrays import to_array, to_tensor
from .callbacks import GradientCallback
from .callers import Caller, caller_of, in_probe
from .capture import Capture
from .gradients import LOCAL, OPTIMIZER, Scaler, Unscaling, gradients_of, parse_moments
from .losses import is_loss_key, is_scalar, losses_in
from .missed import MissedCapture
from .models import Models
from .names import Root
from .optimizers import Optimizers, groups_of, innermost
from .scripting import hide_callbacks_from_scripting
from .unsaved import NothingSaved
from .updates import LOCAL_KIND, OPTIMIZER_KIND, Updates

_BUILTIN = (
    CollectionKeys.WEIGHTS,
    CollectionKeys.BIASES,
    CollectionKeys.GRADIENTS,
    CollectionKeys.LOSSES,
    CollectionKeys.BUFFERS,
    CollectionKeys.METRICS,
    CollectionKeys.SM_METRICS,
    CollectionKeys.HYPERPARAMETERS,
    CollectionKeys.UPDATES,
    CollectionKeys.HEALTH,
)


class Collection(ModuleCollection):
    """A collection that can also include the inputs and outputs of modules."""

    def add_module_tensors(self, module: torch.nn.Module, inputs: bool = False, outputs: bool = True) -> None:
        """Include the inputs of a module, its outputs, or both.

        Args:
            module: A module of a registered model. It may be registered later.
            inputs: Include its inputs.
            outputs: Include its outputs.

        Raises:
            ConfigurationError: `module` is not a torch.nn.Module.
        """
        if not isinstance(module, torch.nn.Module):
            raise ConfigurationError(f"add_module_tensors takes a torch.nn.Module, got a {type(module).__name__}")
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
    """The arguments that only the PyTorch hook has.

    Args:
        gradients: "local": the gradients of this worker, as backward computes them. "optimizer": those that the step of
            a registered optimizer uses, after accumulation, unscaling, clipping and averaging. ["local", "optimizer"]:
            both.
        full_tensors: Save parameters and gradients that FSDP2 shards (DTensors) as a whole. Every process of the job
            then has to make the same hook, also where `include_workers` is "one": all of them take part whenever one of
            these tensors is due.
    """

    gradients: str | Iterable[str] = field(default=LOCAL, kw_only=True)
    full_tensors: bool = field(default=False, kw_only=True)


class Hook(BaseHook):
    """A hook that saves the tensors of a PyTorch job.

    `help(Hook.__init__)` lists the arguments: those of every hook, `gradients` and `full_tensors`. The losses
    are always saved. After construction no error of the hook reaches training: the hook logs the first one and turns
    itself off (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has a value that it cannot have.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(Options)
    def __init__(self, options: Options) -> None:
        self._moments = parse_moments(options.gradients)
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process, follows=options.full_tensors)
        self._models = Models(self, self.recorder.collections, self._moments)
        self._optimizers = Optimizers(self)
        self.recorder.collections.require(CollectionKeys.HYPERPARAMETERS).include("^hyperparameters/")
        define_health(self.recorder.collections)
        self._capture = Capture(self.recorder, options.full_tensors)
        self._updates = Updates(self.recorder, self._capture, self._optimizers, self._models.parameter_names)
        if OPTIMIZER in self._moments:
            self._updates.kinds.add(OPTIMIZER_KIND)
        self.num_updates = 0
        """The number of steps that registered optimizers have made."""
        self._unscaling = Unscaling()
        self._in_probe = self._lazy = False
        self._pauses = 0
        self._missed = MissedCapture()
        self._unsaved = NothingSaved(self.recorder, self._models, self._capture)
        self._generation = -1
        current_hook.made(self)

    # What the user calls.

    def register_module(self, module: torch.nn.Module, name: str | None = None) -> None:
        """Save the tensors of a model: its parameters, their gradients, and the inputs and outputs of its modules.

        Each forward of the model begins a step. Register it after it is wrapped for distributed training, and before
        code that torch.compile compiles runs for the first time. Several models may be registered; the second of a
        class Net is called Net_1. Registering one twice changes nothing.

        A scalar named loss that the model returns, or else one that requires a gradient, is saved in the collection
        `losses`, unless a loss module was registered.

        Args:
            module: The model.
            name: The beginning of the names of its parameters, inputs and outputs, such as "generator". Default: the
                name of its class.

        Raises:
            ConfigurationError: `module` is not a torch.nn.Module, or another model has the name.
        """
        _check_module(module, "register_module")
        if name is not None:
            self._models.check_name(module, name)
        self._warn_if_copy()
        self._register_module(module, name)

    register_hook = register_module

    def register_scaler(self, scaler: Scaler) -> None:
        """Save gradients without the scale of a torch.amp.GradScaler.

        The scaler multiplies the loss, and so the gradients, until `scaler.unscale_` or `scaler.step` divides them.

        Args:
            scaler: The scaler of the training. It replaces one that was registered before. One that is not enabled
                changes nothing.

        Raises:
            ConfigurationError: `scaler` is not a scaler.
        """
        if not callable(getattr(scaler, "_get_scale_async", None)):
            raise ConfigurationError(f"register_scaler takes a torch.amp.GradScaler, got a {type(scaler).__name__}")
        self._unscaling.scaler = scaler

    def register_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Save what the steps of an optimizer use and change, when `optimizer.step` is called.

        These are the hyperparameters of each group that are numbers, as `hyperparameters/AdamW/group_0/lr`; with
        `gradients="optimizer"`, the gradients after accumulation, unscaling, clipping and averaging; and the collection
        `updates` or `health`: what the step changed of each parameter, as statistics, the ratio of its l2 norm to the
        parameter's, and with `health` the moments. Call `optimizer.step` inside the hook's step that it belongs to.
        Several optimizers may be registered.

        Args:
            optimizer: The optimizer, or a wrapper of it.

        Raises:
            ConfigurationError: `optimizer` is not a torch.optim.Optimizer.
        """
        self._register_optimizer(innermost(optimizer))

    @guarded
    def save_gradients(self, module: torch.nn.Module | None = None) -> None:
        """Save the gradients as they are now, if they are due at the open step.

        They replace those that the first backward of the step computed. This chooses the moment in a step of several
        updates, or after `scaler.unscale_`, clipping, or the averaging of DistributedDataParallel. Later gradients of
        the step are not saved.

        Args:
            module: A registered model. Default: all of them.
        """
        step = self._updates.saved_by_call = self.recorder.clock.step
        for root, model in self._models.living() if self.saving else ():
            if module is None or root is self._models.root_of(module):
                root.gradients_saved_at = step
                self._save_gradients(root, model)

    def save_gradients_at_updates(self) -> None:
        """Save local gradients as the steps of registered optimizers use them, under their own names.

        A parameter of a registered optimizer has no gradient at a step in which that makes no update.
        """
        if LOCAL in self._moments:
            self._updates.kinds.add(LOCAL_KIND)

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Save the output of a loss module, in the collection `losses`, and its inputs.

        Args:
            loss_module: The loss module.

        Raises:
            ConfigurationError: `loss_module` is not a torch.nn.Module.
        """
        _check_module(loss_module, "register_loss")
        self._register_loss(loss_module)

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default"
    ) -> None:
        """Save a tensor of your own at the open step or, if none is open, at the one that begins next in this mode.

        It is saved at any step, also one at which the save configuration saves nothing.

        Args:
            tensor_name: The name.
            tensor_value: A torch tensor, an array, or a (nested) list or tuple of numbers.
            collections_to_write: The name of a collection, or several, to add the tensor to. Their reduction
                configurations decide whether it is saved raw or as statistics.
        """
        try:
            # The array of a tensor is a copy already.
            owned = isinstance(tensor_value, torch.Tensor)
            self.recorder.save_tensor(tensor_name, to_array(tensor_value), collections_to_write, owned)
        except UnsupportedValue as exc:
            self.recorder.refuse(tensor_name, exc)

    @guarded
    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Save a tensor that is not the output of a module, such as a functional loss, if it is due at the open step.

        Args:
            tensor_name: It is saved as `<tensor_name>_output_<i>`, the i-th one of the step. With `loss` in its name it
                belongs to the collection `losses`.
            tensor_value: A torch tensor, an array, or a number.
        """
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
        self._unsaved.begin_close()
        self._send()
        super().close()

    @guarded
    def _let_go(self) -> None:
        compiled.switch.close(self)
        self._unsaved.check()
        self._models.release()
        self._optimizers.release()
        self._updates.release()
        self._capture.release()
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.forget_parts()

    # What the callbacks call.

    @property
    def saving(self) -> bool:
        """Whether anything is due at the open step, and models run for it."""
        return self.recorder.saving and not self._pauses

    @contextmanager
    def not_capturing(self) -> Iterator[None]:
        """Return a context manager in whose block a model that runs begins no step, and nothing of it is saved.

        Returns:
            The context manager.
        """
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    @property
    def has_losses(self) -> bool:
        """Whether a loss was registered."""
        return self._models.has_losses

    def _may_save(self, names: list[str]) -> bool:
        """Return whether one of these tensors may be saved at some step."""
        self._resolve_modules()
        return self.recorder.may_save(names)

    @guarded
    def _begin_root(self, root: Root, module: torch.nn.Module | None) -> None:
        """Begin a step, because a model is about to run."""
        if self._pauses:
            return
        if self.recorder.counting:
            caller = Caller.TRAINING if module is None else caller_of(module)
            self._in_probe = caller is Caller.PROBE
            root.in_pipeline |= caller is Caller.PIPELINE
            if caller in (Caller.TRAINING, Caller.PIPELINE):
                self._begin_step(root)
        elif self.recorder.closed:  # by another thread, or after an error
            self._let_go()
            return
        self._turn_switch()

    @guarded
    def _capture_values(self, path: str, direction: str, value: Any) -> None:
        """Capture a module's inputs or outputs."""
        if self._in_probe:
            self._in_probe = in_probe()
            if self._in_probe:
                return
        self._missed.note(path)
        losses = losses_in(value) if direction == "output" and self._returns_losses(path) else ()
        self._capture.values(path, direction, value, losses)
        if self._lazy and direction == "output":
            self._save_late_parameters()

    @guarded
    def _capture_value(self, path: str, direction: str, key: str | None, tensor: torch.Tensor) -> None:
        """Capture one of a module's inputs or outputs."""
        self._missed.note(path)
        is_loss = self._finds_loss(path, direction, key) and is_scalar(tensor)
        self._capture.value(path, direction, key, tensor, is_loss)

    def _finds_loss(self, path: str, direction: str, key: str | None) -> bool:
        """Return whether an output of compiled code is a loss."""
        return direction == "output" and is_loss_key(key) and self._returns_losses(path)

    def _returns_losses(self, path: str) -> bool:
        """Return whether the losses are to be found among the outputs of this module."""
        return not self._models.has_losses and any(root.name == path for root in self._models.roots)

    @guarded
    def _begin_update(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Capture what an optimizer is about to use for its update."""
        if self.saving:
            self._updates.begin(name, optimizer)
        elif OPTIMIZER in self._moments and self.recorder.clock.step is None and self.recorder.counting:
            self._optimizers.warn_of_late_step(name)

    @guarded
    def _end_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Capture what an update has changed."""
        self.num_updates += 1
        self._updates.end(optimizer)

    @guarded
    def _capture_gradient(self, callback: GradientCallback, gradient: torch.Tensor | None, version: int) -> None:
        """Capture the gradient of a parameter."""
        self._missed.note(callback.name)
        self._unsaved.gradients_arrived = True
        step = self.recorder.clock.step
        if gradient is None or callback.root.gradients_saved_at is step or callback.root.in_pipeline:
            return
        if self._updates.uses(callback.name):
            return
        # After the parameter's update, other models' losses may add to a gradient that is no longer used (that of a
        # GAN's discriminator); before the update, gradients are accumulated for it.
        if not callback.follows_update(step, version):
            self._capture.tensor(callback.name, self._unscaling.of_backward(gradient))

    def _begin_step(self, root: Root) -> None:
        self._end_step()
        self.recorder.begin_step()
        self._leave_fused()
        self._unsaved.check()
        self.recorder.awaited.discard(root.name)
        root.ran_at = self.recorder.clock.step
        self._save_parameters(root)

    def _leave_fused(self) -> None:
        due = self.recorder.planner.due if self.saving else frozenset()
        self._models.leave_fused(due, self.recorder.planner.generation)

    def _end_step(self) -> None:
        self._resolve_modules()
        if self.saving:
            if not self.recorder.clock.held:
                self._unsaved.note_due_step()
            if OPTIMIZER in self._moments:
                self._optimizers.warn_if_none()
            self._missed.check(self.recorder.clock.step, lambda name: self.recorder.planner.plan(name) is not None)
        self._capture.send()

    @property
    def _saves_buffers(self) -> bool:
        """Whether a buffer of a model is saved by any collection that it matches."""
        return True

    def _save_parameters(self, root: Root) -> None:
        step = self.recorder.clock.step
        # A model that runs again in the step may have been updated in between.
        if self.saving and root.parameters_saved_at is not step:
            root.parameters_saved_at = step
            for name, tensor in self._models.follow(root):
                if self._saves_buffers or isinstance(tensor, torch.nn.Parameter):
                    self._capture.tensor(name, tensor)
            self._lazy |= bool(root.uninitialised)

    def _save_late_parameters(self) -> None:
        """Save the parameters that lazy modules initialised when they ran for the first time."""
        self._lazy = False
        for root, _ in self._models.living():
            if waiting := root.uninitialised.copy():
                for name, tensor in self._models.follow(root):
                    if name in waiting and not is_lazy(tensor):
                        self._capture.tensor(name, tensor)
                self._lazy |= bool(root.uninitialised)

    def _save_gradients(self, root: Root, module: torch.nn.Module) -> None:
        self._unsaved.gradients_arrived = True
        for name, gradient in gradients_of(root, module):
            self._missed.note(name)
            self._capture.tensor(name, self._unscaling.of_now(gradient))

    # Compiled code checks the switch before it runs, and uses the graph without callbacks if the switch is off.

    def _turn_switch(self) -> None:
        recorder = self.recorder
        if recorder.planner.generation != self._generation:
            self._generation = recorder.planner.generation
            compiled.refresh()
        # A model that runs inside compiled code begins its step after the code has checked the switch.
        ahead = any(root.in_compiled_code or root.name in recorder.awaited for root in self._models.roots)
        compiled.switch.turn(self, recorder.saving or (ahead and recorder.next_is_due()))

    @guarded
    def _set_mode(self, mode: ModeKeys) -> None:
        self._capture.send()
        self.recorder.set_mode(mode)
        self._turn_switch()

    def _resume_at(self, step: Any, mode: Any) -> None:
        self._end_step()
        super()._resume_at(step, mode)
        self._models.start_again()
        self._optimizers.start_again()

    @guarded
    def _send(self) -> None:
        self._capture.send()

    @guarded
    def _hold_step(self, step: Any = None, mode: Any = None) -> None:
        if self.recorder.counting:
            self._end_step()
        self.recorder.hold_step(step, mode)
        self._leave_fused()
        if self.recorder.counting:
            self._unsaved.check()
            for root, _ in self._models.living():
                self._save_parameters(root)
                self.recorder.awaited.discard(root.name)
        self._turn_switch()

    @guarded
    def _release_step(self) -> None:
        for root, module in self._models.living() if self.saving else ():
            # A pipeline scales the sum of the gradients of its microbatches once all of them are through.
            if root.in_pipeline and LOCAL in self._moments and root.gradients_saved_at is not self.recorder.clock.step:
                self._save_gradients(root, module)
        saved = self.saving
        self.recorder.release_step()
        if saved and not self.saving:
            self._unsaved.note_due_step()

    # Registering.

    @guarded
    def _register_module(self, module: torch.nn.Module, name: str | None) -> None:
        hide_callbacks_from_scripting()
        root = self._models.register(module, name)
        if root is not None:
            self.recorder.awaited.add(root.name)
            self.recorder.run.environment.add("activations", activations_in(root))
            self._missed.expect(root)
            # Compiled code that runs before any step is open has its callbacks.
            compiled.refresh()
            compiled.switch.turn(self, self.recorder.active)

    @guarded
    def _register_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        for each in [] if self.recorder.closed else self._optimizers.with_callbacks(optimizer):
            name = self._optimizers.register(each)
            if name is not None:
                self.recorder.collections.include([CollectionKeys.HYPERPARAMETERS])
                self.recorder.run.environment.add("optimizers", {name: groups_of(each)})

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
    """Return the current hook.

    Args:
        hook_type: Ignored; smdebug has this argument.
        json_config_path: The JSON configuration for a new hook. Default: see `Hook.create_from_json_file`.
        create_if_not_exists: Make a hook if there is none, and a JSON configuration exists.

    Returns:
        The hook that was made last or passed to `set_hook`; None if there is none.
    """
    return current_hook.get_hook(hook_type, json_config_path, create_if_not_exists, create=Hook.create_from_json_file)


def _check_module(module: Any, method: str) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ConfigurationError(f"{method} takes a torch.nn.Module, got a {type(module).__name__}")
