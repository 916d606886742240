"""The modules of a PyTorch model, and the names of its tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

# The attributes in which wrappers (data-parallel training, checkpointing, torch.compile) keep a module.
_WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")
_SHARDED = frozenset({"FSDPModule", "ReplicateModule"})
# The wrapper classes, with the attribute of the wrapped module: data-parallel training, and PEFT's adapters. Tensors
# have the same names with and without wrappers. No library is imported for this.
_WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "PeftModel": "base_model",
    "BaseTuner": "model",
    "BaseTunerLayer": "base_layer",
}
_WRAPPING = frozenset(_WRAPPERS.values())
# A run stores which modules are activation functions, so that rules find them under any name.
_ACTIVATIONS: tuple[type[torch.nn.Module], ...] = (torch.nn.ReLU, torch.nn.ReLU6, torch.nn.Tanh, torch.nn.Sigmoid)


@dataclass(slots=True, eq=False)
class Root:
    """A registered model. It holds only a weak reference to the module."""

    name: str
    reference: weakref.ref[torch.nn.Module]
    prefix: str = ""
    """The prefix of the paths of the model's modules, if another model has the same paths."""
    ran_at: object = None
    """The step at which it ran last."""
    parameters_saved_at: object = None
    """The step at which its parameters were saved last."""
    gradients_saved_at: object = None
    """The last step whose gradients the user saved by a call."""
    in_compiled_code: bool = False
    """True if it runs inside compiled code, which must know before each step whether the step is saved."""
    in_pipeline: bool = False
    """True if it runs as a stage of a pipeline, which changes gradients after their backward."""
    uninitialized: set[str] = field(default_factory=set)
    """The names of its parameters without values, which belong to lazy modules."""

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


def modules_of(root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Return the modules of a model, each once, with their paths.

    The model's own path is empty. A wrapper and the module in it share a path, and the wrapper comes first.
    """
    found: list[tuple[str, torch.nn.Module]] = []
    left, seen = [("", root)], set[int]()
    while left:
        path, module = left.pop()
        if id(module) not in seen:
            seen.add(id(module))
            found.append((path, module))
            for name, child in reversed(module._modules.items()):
                if child is not None:
                    left.append((path if _wraps(module, name) else joined(path, name), child))
    return found


def tensors_of(path: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Yield a module's own parameters and buffers: path, tensor, and whether it is a parameter."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield joined(path, name), parameter, True
    for name, buffer in module._buffers.items():
        if buffer is not None:
            yield joined(path, name), buffer, False


def kind_of(path: str) -> str | None:
    """Return the collection of a parameter, "weights" or "biases"; None if it is in neither."""
    last = path.rpartition(".")[2]
    if ".parametrizations." in f".{path}":
        # A parametrized `linear.weight` is computed from `linear.parametrizations.weight.original0`.
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
    """Return whether torch.compile compiles this module, so that the modules inside it run without Python."""
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules


def _wraps(module: torch.nn.Module, child: str) -> bool:
    if child in _WRAPPED:
        return True
    return child in _WRAPPING and any(_WRAPPERS.get(kind.__name__) == child for kind in type(module).__mro__)


def joined(path: str, name: str) -> str:
    """Return the path of a module or parameter inside the module of this path."""
    return f"{path}.{name}" if path else name


def activations_in(root: Root) -> dict[str, str]:
    """Return the name of the class of each module that is a ReLU, tanh or sigmoid, by the name of the module."""
    model = root.module
    found: dict[str, str] = {}
    for path, module in modules_of(model) if model is not None else ():
        kind = next((each for each in _ACTIVATIONS if isinstance(module, each)), None)
        if kind is not None:
            found[root.module_name(path)] = kind.__name__
    return found
