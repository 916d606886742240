"""The modules of a PyTorch model, and the names of its tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

# The attributes in which the wrappers of data-parallel training, checkpointing and torch.compile keep a module.
_WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")
_SHARDED = frozenset({"FSDPModule", "ReplicateModule"})
# Classes whose instances wrap what they keep in this attribute: data-parallel training, and PEFT's adapters, so that a
# tensor of a model has the same name with and without them. Neither is imported here.
_WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "PeftModel": "base_model",
    "BaseTuner": "model",
    "BaseTunerLayer": "base_layer",
}
_WRAPPING = frozenset(_WRAPPERS.values())


@dataclass(slots=True, eq=False)
class Root:
    """A registered model. It holds only a weak reference to the module."""

    name: str
    reference: weakref.ref[torch.nn.Module]
    prefix: str = ""
    """The prefix of its modules' paths, where another root has the same paths."""
    ran_at: object = None
    """The step at which it ran last."""
    parameters_saved_at: object = None
    """The step at which its parameters were saved last."""
    gradients_saved_at: object = None
    """The last step of which the user saved the gradients by a call."""
    in_compiled_code: bool = False
    """True if it runs inside compiled code, which must know of each step beforehand whether it is saved."""
    in_pipeline: bool = False
    """True if it runs as a stage of a pipeline, which changes gradients after their backward."""
    uninitialised: set[str] = field(default_factory=set)
    """The names of its parameters that have no values yet, because their modules are lazy."""

    @property
    def module(self) -> torch.nn.Module | None:
        """The module, None once it has been freed."""
        return self.reference()

    def tensor_name(self, path: str) -> str:
        """Return the name of a parameter or a buffer."""
        return f"{self.name}_{path}"

    def module_name(self, path: str) -> str:
        """Return the name of a module, the part before `_input_0` and `_output_0`. The root's path is empty."""
        return f"{self.prefix}{path}" if path else self.name


def modules_of(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules of a model, each once, with their paths.

    The model's own path is empty. A wrapper and the module in it share a path, and the wrapper comes first.
    """
    return _visit(root, "", set())


def _visit(module: torch.nn.Module, path: str, seen: set[torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Module]]:
    # No function inside another: one that calls itself is a cycle, and would keep the modules until it is collected.
    if module in seen:
        return
    seen.add(module)
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from _visit(child, path if _wraps(module, name) else _joined(path, name), seen)


def tensors_of(path: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Yield a module's own parameters and buffers: path, tensor, and whether it is a parameter."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield _joined(path, name), parameter, True
    for name, buffer in module._buffers.items():
        if buffer is not None:
            yield _joined(path, name), buffer, False


def kind_of(path: str) -> str | None:
    """Return the collection of a parameter, "weights" or "biases"; None if it is in neither."""
    last = path.rpartition(".")[2]
    if ".parametrizations." in f".{path}":
        # There `linear.weight` is computed from `linear.parametrizations.weight.original0`.
        last = path.split("parametrizations.")[-1].partition(".")[0]
    return "biases" if "bias" in last else "weights" if "weight" in last else None


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """Return the user's own module, without the wrappers around it."""
    for name, child in module._modules.items():
        if child is not None and _wraps(module, name):
            return unwrapped(child)
    return module


def class_name(module: torch.nn.Module) -> str:
    """Return the user's name for the class of a module.

    `fully_shard` changes the class itself: Net becomes FSDPNet.
    """
    kind = type(unwrapped(module))
    while kind.__bases__[0].__name__ in _SHARDED:
        kind = kind.__bases__[1]
    return kind.__name__


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether torch.compile compiles this module: what is inside then runs without Python."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules


def _wraps(module: torch.nn.Module, child: str) -> bool:
    if child in _WRAPPED:
        return True
    return child in _WRAPPING and any(_WRAPPERS.get(kind.__name__) == child for kind in type(module).__mro__)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
