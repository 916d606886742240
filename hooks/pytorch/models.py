"""The registered models and losses of a hook: their callbacks, and the names of their tensors.

A hook holds only weak references to them, so that a model is freed when its user no longer needs it. Models hold the
hook, by their callbacks, until it is closed.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from tensortrial.config.changes import Changes
from tensortrial.config.collection import Collection, CollectionKeys
from tensortrial.errors import ConfigurationError
from tensortrial.format.record import check_name

from ..core.configuration.collections import CollectionManager
from ..core.log import logger
from ..library.identity import IdentityMap
from ..library.unique_names import take_name
from .callbacks import BeginStep, Inputs, Outputs, Receiver
from .compile import compiler_is_used
from .gradients import LOCAL, OPTIMIZER, GradientCallbacks
from .names import Root, class_name, is_compiled, kind_of, modules_of, tensors_of, unwrapped

# The positions and keys of inputs and outputs of the modules in a fused layer.
_LABELS_IN_FUSED = (*range(32), "src_mask", "src_key_padding_mask", "attn_mask", "key_padding_mask")


class Models:
    """Registered models and losses."""

    def __init__(self, receiver: Receiver, collections: CollectionManager, moments: frozenset[str]) -> None:
        self._receiver, self._collections, self._moments = receiver, collections, moments
        self.roots: list[Root] = []
        self.names = IdentityMap[torch.nn.Module, str]()
        """The names of modules."""
        self._roots_of = IdentityMap[torch.nn.Module, Root]()
        """The models that named their modules. A module of two models keeps the name from the first one."""
        self.has_losses = False
        """True if a loss was registered."""
        self._losses = IdentityMap[torch.nn.Module, None]()
        self._loss_patterns: set[str] = set()
        self._loss_names: set[str] = set()
        self._handles = IdentityMap[torch.nn.Module, list[Any]]()
        self._gradients = GradientCallbacks(receiver)
        self._fused = IdentityMap[torch.nn.Module, None]()
        """The layers that torch computes by one kernel in evaluation, unless a module in them has a callback."""
        self._callbacks = IdentityMap[torch.nn.Module, tuple[Inputs, Outputs]]()
        self._placed_for: object = None
        self._may_be_compiled = False
        """True if compiled code may have callbacks. It keeps the callbacks of its compilation."""
        self._root_names: set[str] = set()
        self._tensor_names: set[str] = set()
        self._trained: set[str] = set()
        """The names of the parameters whose gradients are in the collection `gradients`."""

    def register(self, module: torch.nn.Module, name: str | None = None) -> Root | None:
        """Register a model under `name` or the name of its class. Return its root; None if it was registered before."""
        if self.root_of(module) is not None:
            return None
        root = Root(take_name(self._root_names, class_name(module)) if name is None else name, weakref.ref(module))
        for replaced in [each for each in self.roots if each.name == root.name]:
            self._forget(replaced)
        taken = set(self.names.values())
        if any(path in taken for path, _ in modules_of(module) if path):
            root.prefix = f"{root.name}."
        self.roots.append(root)
        if _takes_callbacks(module, root.name):
            # It precedes all other forward pre-hooks, so that their captures belong to the step.
            begin = BeginStep(self._receiver, root)
            self._handles.setdefault(module, []).append(module.register_forward_pre_hook(begin, prepend=True))
        self.follow(root)
        return root

    def check_name(self, module: torch.nn.Module, name: str) -> None:
        """Check that a model that was not registered before may have this name.

        Raises:
            ConfigurationError: It may not.
        """
        check_name(name)
        if self.root_of(module) is None and name in self._root_names:
            raise ConfigurationError(
                f"register_module cannot use the name {name!r}: another model or loss has it; choose another one"
            )

    def register_loss(self, module: torch.nn.Module) -> None:
        """Register a loss, unless it was registered before."""
        if module in self._losses:
            return
        self._losses[module] = None
        self.has_losses = True
        name = take_name(self._root_names, class_name(module))
        self.names.setdefault(module, name)
        self._add_callbacks(module, name)
        pattern = f"^{re.escape(name)}_output_"
        self._loss_patterns.add(pattern)
        self._collections.require(CollectionKeys.LOSSES).include(pattern)

    def add_loss(self, name: str) -> None:
        """Add the name of a loss that a model returns, or that the user records, to the collection `losses`."""
        self._loss_names.add(name)
        self._collections.require(CollectionKeys.LOSSES).add_tensor_names([name])

    def knows_all_losses(self) -> bool:
        """Return whether `losses` has only the results of models and loss modules, and the names that were added."""
        losses = self._collections.require(CollectionKeys.LOSSES)
        return self._loss_patterns.issuperset(losses.include_regex) and self._loss_names >= losses.tensor_names

    def root_of(self, module: torch.nn.Module) -> Root | None:
        """Return the root of a model, with or without its wrappers; None if the model is not registered."""
        for root, model in self.living():
            if unwrapped(model) is unwrapped(module):
                return root
        return None

    def parameter_names(self) -> dict[int, str]:
        """Return the names of the parameters of all models, by their ids; a tied parameter has its first name."""
        found: dict[int, str] = {}
        for root, model in self.living():
            for path, module in modules_of(model):
                for inner, tensor, is_parameter in tensors_of(path, module):
                    if is_parameter:
                        found.setdefault(id(tensor), root.tensor_name(inner))
        return found

    def parameters_of_updates(self) -> list[str]:
        """Return the names of the parameters whose gradients optimizers have used, if local gradients are saved."""
        names = self.parameter_names()
        return [names[each] for each in self._gradients.used if each in names] if LOCAL in self._moments else []

    def living(self) -> Iterator[tuple[Root, torch.nn.Module]]:
        """Yield the registered models that have not been freed."""
        for root in list(self.roots):
            module = root.module
            if module is None:
                self.roots.remove(root)
            else:
                yield root, module

    def follow(self, root: Root) -> list[tuple[str, torch.Tensor]]:
        """Add callbacks to the new modules and parameters of a model.

        A module or a parameter may have been replaced since the last step, and a frozen parameter unfrozen.
        """
        model = root.module
        if model is None:
            return []
        self._root_names.add(root.name)
        state: dict[int, tuple[str, torch.Tensor]] = {}
        gradients: dict[str, torch.Tensor] = {}
        root.uninitialized.clear()
        modules = modules_of(model)
        self._follow_modules(root, model, modules)
        for path, module in modules:
            for inner, tensor, is_parameter in tensors_of(path, module):
                # A tied parameter is saved once, under its first name.
                if id(tensor) in state:
                    continue
                name = root.tensor_name(inner)
                state[id(tensor)] = (name, tensor)
                if name not in self._tensor_names:
                    self._name(name, inner, is_parameter)
                if is_lazy(tensor):
                    root.uninitialized.add(name)
                if is_parameter and name not in self._trained and tensor.requires_grad:
                    self.add_gradient(name)
                if is_parameter and LOCAL in self._moments:
                    gradients[f"gradient/{name}"] = tensor
        self._gradients.follow(root, gradients)
        return list(state.values())

    def start_again(self) -> None:
        """Let the models of a repeated training take the names of the models that have run before."""
        self._root_names.clear()

    def _forget(self, root: Root) -> None:
        for _, module in modules_of(root.module) if root.module is not None else ():
            self._forget_module(module)
        self._gradients.follow(root, {})
        self.roots.remove(root)

    def _forget_module(self, module: torch.nn.Module) -> None:
        self.names.pop(module, None)
        self._callbacks.pop(module, None)
        for handle in self._handles.pop(module, ()):
            handle.remove()

    def release(self) -> None:
        """Remove every callback from the models, and forget them."""
        for handles in list(self._handles.values()):
            for handle in handles:
                handle.remove()
        self._gradients.remove()
        self._handles.clear()
        self._callbacks.clear()
        self.names.clear()
        self._losses.clear()
        self.roots.clear()

    def _follow_modules(self, root: Root, model: torch.nn.Module, modules: list[tuple[str, torch.nn.Module]]) -> None:
        paths = set()
        for path, module in modules:
            name = root.module_name(path)
            known = self.names.get(module)
            if known not in (None, name) and self._roots_of.get(module) is root and self._has_no_other_name(module):
                self._forget_module(module)
                known = None
            if known is None:
                self.names[module], self._roots_of[module] = name, root
                Changes.patterns += 1  # of collections that a user has added the module to
                if path not in paths:
                    # A container (ModuleList) does not run. The user may have kept only the modules in it, so these
                    # keep it alive.
                    self._add_callbacks(module, name, None if _has_forward(model) else model)
                    if type(module) is torch.nn.TransformerEncoderLayer and _has_forward(model):
                        self._fused[module] = None
            paths.add(path)

    def _has_no_other_name(self, module: torch.nn.Module) -> bool:
        """Return whether a module is registered neither as a loss nor as a model, which have callbacks of their own."""
        return module not in self._losses and all(root.module is not module for root in self.roots)

    def place_callbacks(self, due: frozenset[str], generation: int) -> None:
        """Add the callbacks that are due at the step that begins, and remove the others.

        `generation` is a number that grows when collections change.
        """
        self._note_compiler()
        key = due, generation, self._may_be_compiled
        if key == self._placed_for:
            return
        self._may_be_compiled |= any(map(is_compiled, self._callbacks))
        self._placed_for = due, generation, self._may_be_compiled
        self._gradients.place(bool(due) or self._may_be_compiled)
        if self._may_be_compiled:
            unneeded = set[int]()
        else:
            unneeded = self._parts_of_fused(due) if due else set(map(id, self._callbacks))
        for module, callbacks in list(self._callbacks.items()):
            if id(module) not in unneeded or callbacks[1].of_losses:
                if module not in self._handles:
                    self._register(module, *callbacks, prepend=True)  # it has no other callbacks
            elif len(module._forward_pre_hooks) + len(module._forward_hooks) == len(callbacks):
                for handle in self._handles.pop(module, ()):
                    handle.remove()

    def _note_compiler(self) -> None:
        # torch does not show whether code will be compiled again after torch.compiler.reset().
        self._may_be_compiled |= compiler_is_used() or any(root.in_compiled_code for root in self.roots)

    def _parts_of_fused(self, due: frozenset[str]) -> set[int]:
        """Return the ids of the modules inside fused layers that have no tensor in any collection."""
        collections = [each for each in self._collections.saved() if each.name in due]
        parts = set[int]()
        for layer in self._fused:
            inside = [module for module in layer.modules() if module in self._callbacks]
            if not any(
                self._callbacks[each][1].of_losses or _captures(self.names[each], collections) for each in inside
            ):
                parts.update(map(id, inside))
        return parts

    def _add_callbacks(self, module: torch.nn.Module, name: str, container: torch.nn.Module | None = None) -> None:
        if _takes_callbacks(module, name):
            of_losses = module in self._losses or any(name == root.name for root in self.roots)
            inputs = Inputs(self._receiver, name, module)
            outputs = Outputs(self._receiver, name, module, of_losses)
            inputs.container = container
            if container is None:
                self._callbacks[module] = inputs, outputs
            self._placed_for = None
            self._note_compiler()
            self._register(module, inputs, outputs)

    def _register(self, module: torch.nn.Module, inputs: Inputs, outputs: Outputs, prepend: bool = False) -> None:
        handles = self._handles.setdefault(module, [])
        handles.append(module.register_forward_pre_hook(inputs, with_kwargs=True, prepend=prepend))
        handles.append(module.register_forward_hook(outputs, prepend=prepend))

    def _name(self, name: str, path: str, is_parameter: bool) -> None:
        """Add a parameter or a buffer to the built-in collection of its kind."""
        self._tensor_names.add(name)
        kind = kind_of(path) if is_parameter else CollectionKeys.BUFFERS
        if kind is not None:
            self._collections.require(kind).add_tensor_names([name])

    def add_gradient(self, name: str) -> None:
        """Add the gradient of a parameter to the collection `gradients`, unless it is in there."""
        if name not in self._trained:
            self._trained.add(name)
            self._collections.add_gradient(f"gradient/{name}", name)
            if OPTIMIZER in self._moments:
                self._collections.add_gradient(f"optimizer_gradient/{name}", name)


def _captures(name: str, collections: Iterable[Collection]) -> bool:
    """Return whether one of the collections has inputs or outputs of a module in a fused layer."""
    names = [f"{name}_{direction}_{label}" for direction in ("input", "output") for label in _LABELS_IN_FUSED]
    return any(collection.matches(each) for collection in collections for each in names)


def _takes_callbacks(module: torch.nn.Module, name: str) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        logger.warning(
            "the inputs and outputs of %s are not captured, and its forwards begin no steps: TorchScript takes no "
            "callbacks; its parameters and gradients are saved",
            name,
        )
        return False
    return True


def _has_forward(module: torch.nn.Module) -> bool:
    # The classes are searched, because on TorchScript's the attribute is a descriptor that works on instances only.
    kind = next(each for each in type(module).__mro__ if "forward" in vars(each))
    return kind is not torch.nn.Module
