"""The PyTorch hook.

import tensortrial.hooks.pytorch as tt

hook = tt.Hook(out_dir="runs/digits", include_collections=["weights", "gradients"])
hook.register_module(model)
hook.register_loss(criterion)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, UnsupportedValue, importing
from tensortrial.format.record import check_name

from ..core import current_hook
from ..core.base_hook import BaseHook
from ..core.configuration.collections import ModuleCollection
from ..core.configuration.options import OF_NETWORKS, Framework, HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import Recorder, guarded

with importing("torch", "torch", "the PyTorch hook"):
    import torch


from .arrays import is_nested, nested_parts, to_array
from .capture import Capture
from .gradients import LOCAL, Scaler, parse_moments
from .optimizers import innermost
from .updates import LOCAL_KIND

_BUILTIN = (
    *OF_NETWORKS,
    CollectionKeys.BUFFERS,
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
    by_default=[CollectionKeys.HEALTH],
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
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
    """

    _capture_type: ClassVar[type[Capture]] = Capture

    @accepts_fields_of(Options)
    def __init__(self, options: Options) -> None:
        moments = parse_moments(options.gradients)
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process, follows=options.full_tensors)
        self.recorder.collections.require(CollectionKeys.HYPERPARAMETERS).include("^hyperparameters/")
        self.capture = self._capture_type(self.recorder, moments, options.full_tensors)
        # The callbacks of a model keep the capture alive, even if the user does not keep the hook.
        current_hook.made(self, kept_by_callbacks=self.capture)

    # Methods that users call.

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
            self.capture.models.check_name(module, name)
        self.recorder.warn_if_copy()
        self.capture.register_module(module, name)

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
        self.capture.unscaling.scaler = scaler

    def register_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Save hyperparameters, gradients and updates of an optimizer, each time that its `step` is called.

        - Always: the hyperparameters of each group that are numbers, as `hyperparameters/AdamW/group_0/lr`.
        - With `gradients="optimizer"`: the gradients after accumulation, unscaling, clipping and averaging.
        - With the collection `updates` or `health`: statistics of the update of each parameter, and its relative norm.
        - With `health`: the moments.

        Call `optimizer.step` inside the hook's step that it belongs to. Several optimizers may be registered.

        Args:
            optimizer: The optimizer, or a wrapper of it.

        Raises:
            ConfigurationError: `optimizer` is not a torch.optim.Optimizer.
        """
        self.capture.register_optimizer(innermost(optimizer))

    @guarded
    def save_gradients(self, module: torch.nn.Module | None = None) -> None:
        """Save the current gradients, if they are due at the open step.

        They replace those that the first backward of the step computed. This chooses the moment in a step of several
        updates, or after `scaler.unscale_`, clipping, or the averaging of DistributedDataParallel. Later gradients of
        the step are not saved.

        Args:
            module: A registered model. Default: all of them.
        """
        if module is not None:
            _check_module(module, "save_gradients")
        self.capture.save_gradients_now(module)

    def save_gradients_at_updates(self) -> None:
        """Save local gradients as the steps of registered optimizers use them, under their own names.

        At a step without an update, parameters of a registered optimizer have no gradient.
        """
        if LOCAL in self.capture.moments:
            self.capture.updates.kinds.add(LOCAL_KIND)

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Save the output of a loss module, in the collection `losses`, and its inputs.

        Args:
            loss_module: The loss module.

        Raises:
            ConfigurationError: `loss_module` is not a torch.nn.Module.
        """
        _check_module(loss_module, "register_loss")
        self.capture.register_loss(loss_module)

    @guarded
    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Save a tensor that no module returns, such as a functional loss, if it is due at the open step.

        Args:
            tensor_name: It is saved as `<tensor_name>_output_<i>`, the i-th one of the step. With `loss` in its name it
                belongs to the collection `losses`.
            tensor_value: A torch tensor, an array, or a number.
        """
        self.capture.record_tensor_value(tensor_name, tensor_value)

    def close(self) -> None:
        self.capture.begin_close()
        super().close()

    def _let_go(self) -> None:
        self.capture.let_go()

    def _save_tensor(
        self, name: str, value: Any, collections_to_write: Iterable[str] | str, step: Any, mode: Any
    ) -> None:
        parts = [(name, value)]
        if isinstance(value, torch.Tensor) and is_nested(value):
            try:
                check_name(name)
                parts = nested_parts(name, value)
            except UnsupportedValue as exc:
                self.recorder.refuse(name, exc)
                return
        for part, tensor in parts:
            super()._save_tensor(part, tensor, collections_to_write, step, mode)

    def _array_of(self, value: Any) -> tuple[Array, bool]:
        # The array of a tensor is a copy already.
        return to_array(value), isinstance(value, torch.Tensor)

    @property
    def _steps(self) -> Capture:
        return self.capture


get_hook = current_hook.getter(Hook.create_from_json_file)


def _check_module(module: Any, method: str) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ConfigurationError(f"{method} takes a torch.nn.Module, got a {type(module).__name__}")
