"""The PyTorch hook.

    import tensortrial.hooks.pytorch as tt

    hook = tt.Hook(out_dir="runs/digits", include_collections=["weights", "gradients"])
    hook.register_module(model)
    hook.register_loss(criterion)
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensortrial.collection import Collection as CoreCollection
from tensortrial.collection import CollectionKeys
from tensortrial.dtypes import Array, parse_dtype
from tensortrial.errors import ConfigurationError, MissingExtra
from tensortrial.mode import ModeKeys, modes
from tensortrial.records import Plan, Step
from tensortrial.reduction_config import ReductionConfig
from tensortrial.save_config import SaveConfig, SaveConfigMode

from . import current
from .configuration import read_configuration
from .current import del_hook, set_hook
from .rank import Rank, rank_from_environment
from .recorder import HasRecorder, Recorder, guarded, logger

try:
    import torch
except ImportError as exc:
    raise MissingExtra("torch", "torch", "the PyTorch hook") from exc

from torch.compiler import is_compiling

from .torch_reductions import device_statistics

if TYPE_CHECKING:
    from tensortrial.trial import create_trial

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
# What data-parallel training and torch.compile put around a module, as a part of its path.
_WRAPPERS = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod"})
_HOST_DTYPES = {torch.bfloat16: ("bfloat16", torch.int16)}
for _name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
    if hasattr(torch, _name):
        _HOST_DTYPES[getattr(torch, _name)] = (_name, torch.uint8)


class Collection(CoreCollection):
    """A collection that can also be told modules."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules: list[tuple[torch.nn.Module, bool, bool]] = []

    def add_module_tensors(self, module: torch.nn.Module, inputs: bool = False, outputs: bool = True) -> None:
        """Include what goes into a module of the registered model, what comes out of it, or both."""
        if not isinstance(module, torch.nn.Module):
            raise ConfigurationError(f"add_module_tensors takes a torch.nn.Module, not {type(module).__name__}")
        self._modules.append((module, inputs, outputs))

    @property
    def is_empty(self) -> bool:
        return super().is_empty and not self._modules

    def resolve(self, paths: Mapping[torch.nn.Module, str]) -> None:
        """Turn modules into the names of their tensors, now that their paths are known."""
        unknown = []
        for module, inputs, outputs in self._modules:
            if module not in paths:
                unknown.append((module, inputs, outputs))
                continue
            self.include(f"^{re.escape(paths[module])}_{kind}_" for kind, wanted in _kinds(inputs, outputs) if wanted)
        self._modules = unknown


def _kinds(inputs: bool, outputs: bool) -> list[tuple[str, bool]]:
    return [("input", inputs), ("output", outputs)]


class Hook(HasRecorder):
    """Saves the tensors of a PyTorch job.

    `out_dir` is a folder or an fsspec URL, and must not hold a run, unless `resume`. What is saved: the collections in
    `include_collections` and the losses, tensors that match `include_regex`, or everything with `save_all`; at the steps
    of `save_config`; raw, or as the statistics of `reduction_config`. Collections can override both. `include_workers` is
    "one" (worker_0 of a distributed job) or "all". `dry_run` saves nothing.

    Beyond smdebug: `resume` continues a run after its last published step; `storage_options` go to fsspec; `flush_seconds`
    is how long a closed step may wait before it is published (0: not at all; default 1 s local, 10 s remote); `codec` is
    none, lz4 or zstd; `metadata` is kept with the run.

    Raises ConfigurationError for arguments that make no sense, RunExists. After construction no error reaches training:
    the hook logs it once and turns itself off (TENSORTRIAL_STRICT=1 raises instead).
    """

    def __init__(
        self,
        out_dir: str | os.PathLike[str],
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
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
    ) -> None:
        if export_tensorboard or tensorboard_dir:
            logger.warning("TensorBoard files are not written by this release; histograms are kept in the run's index")
        self.recorder = Recorder(
            out_dir,
            framework="pytorch",
            versions={"torch": torch.__version__},
            rank=_rank(),
            builtin=_BUILTIN,
            always_saved=[CollectionKeys.LOSSES],
            collection_factory=Collection,
            export_tensorboard=export_tensorboard,
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
        )
        self._paths: dict[torch.nn.Module, str] = {}
        self._roots: dict[str, int] = {}
        self._counted_step: Step | None = None
        self._counts: dict[tuple[str, str], Iterator[int]] = {}
        if current.get_hook() is None:
            set_hook(self)

    @classmethod
    def create_from_json_file(cls, json_file_path: str | None = None) -> Hook:
        """A hook as a JSON configuration describes it; see `tensortrial.hooks.configuration`. It becomes the current hook."""
        configuration = read_configuration(json_file_path)
        hook = cls(**configuration.arguments)
        hook.recorder.apply(configuration)
        set_hook(hook)
        return hook

    # What the user calls.

    def register_module(self, module: torch.nn.Module) -> None:
        """Save the tensors of a model: its parameters, their gradients, and what goes in and out of its modules. Each
        forward of the model begins a step."""
        _check_module(module, "register_module")
        self._register_module(module)

    register_hook = register_module

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Save what a loss module gives, in the collection `losses`, and what goes into it."""
        _check_module(loss_module, "register_loss")
        self._register_loss(loss_module)

    @guarded
    def save_tensor(self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default") -> None:
        """Save an array, a torch tensor, or a (nested) list or tuple of numbers at the open step, whatever the save
        configuration says, in the form that the collections ask for."""
        self.recorder.save_tensor(tensor_name, _as_array(tensor_value), collections_to_write)

    @guarded
    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Save a tensor that no module gives, a functional loss say, as `<tensor_name>_output_<i>`."""
        collections = [CollectionKeys.LOSSES] if "loss" in tensor_name.lower() else []
        name = f"{tensor_name}_output_{self._next_index(tensor_name, 'output')}"
        if collections:
            self._collection(CollectionKeys.LOSSES).add_tensor_names([name])
        self._capture(name, torch.as_tensor(tensor_value))

    # What PyTorch calls.

    @guarded
    def begin_step(self, slots: Iterable[_Slot]) -> None:
        """A registered model with these parameters and buffers is about to run."""
        self._resolve_modules()
        self.recorder.begin_step()
        if self.recorder.step is not self._counted_step:
            self._counted_step, self._counts = self.recorder.step, {}
        if self.recorder.saving:
            for slot in slots:
                tensor = slot.tensor()
                if tensor is not None:
                    self._capture(slot.name, tensor)

    @guarded
    def inputs_of(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The module at `path` is about to run on these."""
        self._capture_all(path, "input", args)
        if kwargs:
            self._capture_all(path, "input", kwargs)

    @guarded
    def outputs_of(self, path: str, output: Any) -> None:
        """The module at `path` gave this."""
        self._capture_all(path, "output", output)

    @guarded
    def gradient_of(self, name: str, parameter: torch.Tensor) -> None:
        """The gradient of a parameter is there."""
        if parameter.grad is not None:
            self._capture(name, parameter.grad)

    # Registering.

    @guarded
    def _register_module(self, module: torch.nn.Module) -> None:
        root = self._root_name(module)
        parameters = [_Slot(f"{root}_{_path(path)}", *_owner(module, path)) for path, _ in module.named_parameters()]
        buffers = [_Slot(f"{root}_{_path(path)}", *_owner(module, path)) for path, _ in module.named_buffers()]
        # First of all hooks, so that what the others see belongs to the step.
        module.register_forward_pre_hook(_BeginStep(self, [*parameters, *buffers]), prepend=True)
        for path, inner in _modules(module):
            if inner not in self._paths:
                self._tap(inner, path or root)
        for slot in parameters:
            self._name_parameter(slot)
        self._collection(CollectionKeys.BUFFERS).add_tensor_names(slot.name for slot in buffers)
        if _is_compiled(module):
            logger.warning(
                "%s is compiled: what goes in and out of its inner modules is not captured; its parameters, their "
                "gradients, and its own inputs and outputs are",
                root,
            )

    @guarded
    def _register_loss(self, loss_module: torch.nn.Module) -> None:
        name = self._root_name(loss_module)
        self._tap(loss_module, name)
        self._collection(CollectionKeys.LOSSES).include(f"^{re.escape(name)}_output_")

    def _root_name(self, module: torch.nn.Module) -> str:
        name = type(_unwrapped(module)).__name__
        count = self._roots.get(name, 0)
        self._roots[name] = count + 1
        return f"{name}_{count}" if count else name

    def _tap(self, module: torch.nn.Module, path: str) -> None:
        self._paths[module] = path
        module.register_forward_pre_hook(_Inputs(self, path), with_kwargs=True)
        module.register_forward_hook(_Outputs(self, path))

    def _name_parameter(self, slot: _Slot) -> None:
        last = slot.name.rpartition(".")[2]
        kind = CollectionKeys.BIASES if "bias" in last else CollectionKeys.WEIGHTS if "weight" in last else None
        if kind is not None:
            self._collection(kind).add_tensor_names([slot.name])
        gradient = f"gradient/{slot.name}"
        self._collection(CollectionKeys.GRADIENTS).add_tensor_names([gradient])
        parameter = slot.tensor()
        if parameter is not None and parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_Gradient(self, gradient))

    def _collection(self, name: str) -> CoreCollection:
        collection = self.get_collection(name)
        assert collection is not None
        return collection

    # Capturing.

    def _resolve_modules(self) -> None:
        for collection in self.recorder.collections:
            if isinstance(collection, Collection):
                collection.resolve(self._paths)

    def _capture_all(self, path: str, kind: str, value: Any) -> None:
        if not self.recorder.saving:
            return
        for key, tensor in _tensors(value):
            label = self._next_index(path, kind) if key is None else self._next_key(path, kind, key)
            self._capture(f"{path}_{kind}_{label}", tensor)

    def _capture(self, name: str, tensor: torch.Tensor) -> None:
        plan = self.recorder.plan(name) if self.recorder.saving else None
        if plan is None:
            return
        with torch.no_grad():
            self._record(plan, _local(tensor.detach()))

    def _record(self, plan: Plan, tensor: torch.Tensor) -> None:
        if tensor.device.type == "cpu":
            self.recorder.record(plan, _to_numpy(tensor))
            return
        statistics = _statistics_on_device(plan, tensor) if plan.statistics else None
        if plan.raw or plan.histogram or statistics is None:
            self.recorder.record(plan, _to_numpy(tensor.cpu()), owned=True, statistics=statistics)
        else:
            dtype, shape = _to_numpy(tensor.new_empty(0).cpu()).dtype, tuple(tensor.shape)
            nothing = _to_numpy(torch.empty(0))
            self.recorder.record(plan, nothing, owned=True, statistics=statistics, dtype=dtype.name, shape=shape)

    def _next_index(self, path: str, kind: str) -> int:
        # Both are atomic: a model may run in several threads at once.
        return next(self._counts.setdefault((path, kind), itertools.count()))

    def _next_key(self, path: str, kind: str, key: str) -> str:
        """The key itself, and when the module runs again in the step, the key with a number."""
        count = self._next_index(path, f"{kind}_{key}")
        return f"{key}_{count}" if count else key


class _Tap:
    """What is registered with PyTorch. A copied, pickled or saved module takes along a tap that does nothing: the copy
    is another model, and must not write into this run.

    Compiled code cannot call back into Python, so each tap asks `is_compiling` first, and nothing that the compiler would
    have to watch before that.
    """

    __slots__ = ("_hook", "_what")

    def __init__(self, hook: Hook | None = None, what: Any = None) -> None:
        self._hook, self._what = hook, what

    def __deepcopy__(self, memo: dict[int, Any]) -> _Tap:
        return type(self)()

    def __reduce__(self) -> tuple[type[_Tap], tuple[()]]:
        return type(self), ()


class _BeginStep(_Tap):
    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not is_compiling() and self._hook is not None:
            self._hook.begin_step(self._what)


class _Inputs(_Tap):
    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_compiling() and self._hook is not None and self._hook.recorder.saving:
            self._hook.inputs_of(self._what, args, kwargs)


class _Outputs(_Tap):
    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not is_compiling() and self._hook is not None and self._hook.recorder.saving:
            self._hook.outputs_of(self._what, output)


class _Gradient(_Tap):
    __slots__ = ()

    def __call__(self, parameter: torch.Tensor) -> None:
        if not is_compiling() and self._hook is not None and self._hook.recorder.saving:
            self._hook.gradient_of(self._what, parameter)


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    """Where a module keeps a parameter or a buffer: the tensor in it may be exchanged."""

    name: str
    owner: torch.nn.Module
    attribute: str

    def tensor(self) -> torch.Tensor | None:
        found = self.owner._parameters.get(self.attribute)
        return self.owner._buffers.get(self.attribute) if found is None else found


def get_hook(hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current.get_hook(hook_type, json_config_path, create_if_not_exists, create=Hook.create_from_json_file)


def __getattr__(name: str) -> Any:
    # Reading needs DuckDB, and a training job seldom reads.
    if name == "create_trial":
        import tensortrial

        return tensortrial.create_trial
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _rank() -> Rank:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Rank(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return rank_from_environment()


def _check_module(module: Any, method: str) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ConfigurationError(f"{method} takes a torch.nn.Module, not {type(module).__name__}")


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    children = dict(module.named_children())
    if len(children) == 1 and _WRAPPERS.issuperset(children):
        wrappers = (torch.nn.parallel.DataParallel, torch.nn.parallel.DistributedDataParallel)
        if isinstance(module, wrappers) or "module" not in children or "Fully" in type(module).__name__:
            return _unwrapped(*children.values())
    return module


def _is_compiled(module: torch.nn.Module) -> bool:
    return any(
        type(each).__name__ == "OptimizedModule" or each._compiled_call_impl is not None for each in module.modules()
    )


def _owner(root: torch.nn.Module, path: str) -> tuple[torch.nn.Module, str]:
    parent, _, attribute = path.rpartition(".")
    return root.get_submodule(parent), attribute


def _modules(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules of a model with their paths, each path once: of a wrapper and what it wraps, the inner one. The model
    itself has the empty path, and is the wrapper: it runs in plain Python also when what it wraps is compiled."""
    found: dict[str, torch.nn.Module] = {}
    for path, module in root.named_modules():
        stripped = _path(path)
        if stripped or not path:
            found[stripped] = module
    return iter(found.items())


def _path(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def _tensors(value: Any, key: str | None = None) -> Iterator[tuple[str | None, torch.Tensor]]:
    """The tensors in what a module takes or gives, with their keys; those by position have none."""
    if isinstance(value, torch.Tensor):
        yield key, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _tensors(each, _joined(key, name))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name), _joined(key, field.name))
    elif isinstance(value, (tuple, list)):
        for position, each in enumerate(value):
            yield from _tensors(each, None if key is None else _joined(key, position))


def _joined(key: str | None, name: object) -> str:
    return str(name) if key is None else f"{key}_{name}"


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process holds, dense."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _to_numpy(tensor: torch.Tensor) -> Array:
    """The same memory as an array. The tensor is dense and on the CPU."""
    special = _HOST_DTYPES.get(tensor.dtype)
    if special is None:
        return tensor.resolve_conj().resolve_neg().numpy()
    name, same_size = special
    return tensor.contiguous().view(same_size).numpy().view(parse_dtype(name))


def _as_array(value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        return _to_numpy(_local(value.detach()).cpu())
    if isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
        return np.stack([_as_array(each) for each in value])
    return np.asarray(value)


def _statistics_on_device(plan: Plan, tensor: torch.Tensor) -> dict[str, float]:
    """The statistics of the plan, computed where the tensor is: a few numbers travel instead of all of it."""
    values = device_statistics([tensor], plan.statistics)[0].tolist()
    return dict(zip(plan.statistics, values, strict=True))
