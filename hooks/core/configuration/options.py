"""The arguments of a hook's constructor, stated once for all frameworks."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Concatenate, ParamSpec, TypeVar

from tensortrial.config.collection import Collection, CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig, boolean
from tensortrial.config.save_config import DEFAULT_SAVE_INTERVAL, STEP_ARGUMENTS, SaveConfig, with_save_config
from tensortrial.errors import ConfigurationError, shown
from tensortrial.suggestions import meant
from tensortrial.truth import truth_of


# The positional arguments are in smdebug's order. A hook that has more arguments inherits from this class and adds them
# as fields: positional ones come after `include_workers`, those with `field(kw_only=True)` after `metadata`.
@dataclass(frozen=True)
class HookOptions:
    """The arguments that the hooks of all frameworks share.

    Args:
        out_dir: The folder or fsspec URL to save to. If it holds a run, `on_exists` says what happens.
        export_tensorboard: Also write event files for TensorBoard.
        tensorboard_dir: The folder for these event files, with a folder for each mode. Default: out_dir/tensorboard.
        dry_run: Save nothing.
        reduction_config: The statistics to save, by default instead of raw values. A collection may have its own.
        save_config: The steps at which tensors are saved; a mapping has a SaveConfigMode or a dictionary for each mode.
            A collection may have its own.
        include_regex: Also save the tensors that match one of these regular expressions (`re.search`).
        include_collections: The names of the collections to save, next to those that the framework always saves.
            Default for most frameworks, if no argument chooses: statistics of `health` at growing intervals.
        save_all: Save every tensor that the hook can see.
        include_workers: "one": only worker_0 of a distributed job saves. "all": every worker does.
        resume: Continue the run in out_dir after its last published step, unless a living process still writes to it.
        on_exists: What to do if out_dir holds a run. "fail": refuse it. "number": save to the first of out_dir-2,
            out_dir-3 and so on that is free. "replace": delete that run at the first step, unless a living process
            writes to it; files that are no part of it stay. "resume": the same as `resume`. "restart_crashed": begin
            again at step 0 in a run that has not ended, and supersede its steps; refuse a run that has ended.
        force: With `resume`, take over from a process that still writes to the run: it stops writing.
        storage_options: Options for fsspec, which opens out_dir.
        flush_seconds: Seconds that a closed step may wait before it is published; 0: it does not wait. Default: 1 on a
            local disk, 10 elsewhere.
        queue_bytes: How many bytes of values may wait to be written; beyond that, training waits. Default: 64 MiB on a
            local disk, 512 MiB elsewhere.
        codec: The compression of raw values: "none", "lz4" or "zstd".
        durable: On a disk, sync what is published, so that it survives a loss of power. An object store does so itself.
        metadata: Values to keep with the run, such as hyperparameters.
        environment: The facts about the program and its machine to keep with the run: True for all, or some of "git",
            "command", "host", "packages", "seeds", "optimizers" (their hyperparameters) and "activations" (classes of
            activation functions). TENSORTRIAL_ENVIRONMENT overrides it.
        system_metrics: Seconds between two samples of CPU, memory, disk, network and GPUs, which are saved as a run of
            their own in out_dir/system; True: 10 seconds. It needs psutil. TENSORTRIAL_SYSTEM_METRICS overrides it.
        save_interval: Number of steps from one saved step to the next, or "growing". This and the next four arguments
            are those of a SaveConfig, and may be passed in its place.
        start_step: First step that may be saved.
        end_step: First step that is not saved any more; 0 to save nothing.
        save_steps: Further steps, as a list or a comma-separated string.
        warmup_steps: This number of first steps is saved as well.
    """

    out_dir: str | os.PathLike[str]
    export_tensorboard: bool = False
    tensorboard_dir: str | os.PathLike[str] | None = None
    dry_run: bool = False
    reduction_config: ReductionConfig | None = None
    save_config: SaveConfig | Mapping[Any, Any] | None = None
    include_regex: Iterable[str] | str | None = None
    include_collections: Iterable[str] | None = None
    save_all: bool = False
    include_workers: str = "one"
    _: KW_ONLY
    resume: bool = False
    on_exists: str = "fail"
    force: bool = False
    storage_options: Mapping[str, Any] | None = None
    flush_seconds: float | None = None
    queue_bytes: int | None = None
    codec: str = "none"
    durable: bool = False
    metadata: Mapping[str, Any] | None = None
    environment: bool | Iterable[str] = True
    system_metrics: bool | float | None = None
    save_interval: int | str | None = None
    start_step: int | str | None = None
    end_step: int | str | None = None
    save_steps: Iterable[int | str] | str | None = None
    warmup_steps: int | str | None = None
    chooses: bool = field(init=False, repr=False)
    """True if an argument says what is saved, or in which form."""

    def __post_init__(self) -> None:
        for name in [each.name for each in fields(self) if each.type == "bool" and each.init]:
            object.__setattr__(self, name, boolean(name, getattr(self, name)))
        object.__setattr__(self, "chooses", makes_choice(vars(self)))
        given = {name: getattr(self, name) for name in ("save_config", *STEP_ARGUMENTS)}
        for name, value in {**dict.fromkeys(STEP_ARGUMENTS), **with_save_config(given)}.items():
            object.__setattr__(self, name, value)


_CHOICES = ("reduction_config", "save_config", "include_regex", "include_collections")


def makes_choice(arguments: Mapping[str, Any]) -> bool:
    """Return whether a hook's arguments say what is saved or in which form, and not only at which steps."""
    return boolean("save_all", arguments.get("save_all")) or any(arguments.get(name) is not None for name in _CHOICES)


def at_steps(arguments: Mapping[str, Any], save_config: SaveConfig | None) -> dict[str, Any]:
    """Return the arguments of a hook, with the steps of a library's log if they choose what is saved, but not when."""
    return {"save_config": save_config, **with_save_config(arguments)} if makes_choice(arguments) else dict(arguments)


_ON_EXISTS = ("fail", "number", "replace", "resume", "restart_crashed")


def check_on_exists(value: Any, num_workers: int) -> None:
    """Check `on_exists`.

    Raises:
        ConfigurationError: It is not one of the possible values, or it does not work for several workers.
    """
    if value not in _ON_EXISTS:
        raise ConfigurationError(f"on_exists must be one of {', '.join(_ON_EXISTS)}, got {value!r:.200}")
    if value in ("number", "replace") and num_workers > 1:
        raise ConfigurationError(
            f"on_exists={value!r} is for runs of one worker, and {num_workers} workers write to this one: pass an "
            "out_dir that is new for each job"
        )


SYSTEM_METRICS_VARIABLE = "TENSORTRIAL_SYSTEM_METRICS"
"""0 samples nothing, 1 every ten seconds, 30 every thirty. It overrides a hook's argument."""

DEFAULT_SECONDS = 10.0
_LEAST_SECONDS = 0.1


def parse_interval(value: Any) -> float | None:
    """Return the seconds between two samples; None if nothing is sampled.

    TENSORTRIAL_SYSTEM_METRICS takes precedence over a hook's argument.

    Raises:
        ConfigurationError: It is not True, False, None or a number of seconds of at least 0.1.
    """
    value = os.environ.get(SYSTEM_METRICS_VARIABLE, "").strip() or value
    if isinstance(value, str) and (truth := truth_of(value)) is not None:
        value = truth
    if value is None or isinstance(value, bool):
        return DEFAULT_SECONDS if value else None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not _LEAST_SECONDS <= seconds < math.inf:
        raise ConfigurationError(
            f"system_metrics must be True, False or the seconds between two samples, {_LEAST_SECONDS} or more, got "
            f"{shown(value)}"
        )
    return seconds


OF_NETWORKS = (
    *(CollectionKeys.WEIGHTS, CollectionKeys.BIASES, CollectionKeys.GRADIENTS),
    *(CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS),
)
"""The built-in collections of every framework for neural networks."""


@dataclass(frozen=True)
class Framework:
    """A framework, as its hook describes it to the recorder."""

    name: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of the libraries that the run was made with, by name."""
    builtin: Iterable[str] = ()
    """The names of the framework's own collections."""
    always_saved: Iterable[str] = ()
    """The names of the collections that are saved in any case."""
    by_default: Iterable[str] = ()
    """The names of the collections that are saved at a growing interval if the hook's arguments make no choice."""
    collection_type: type[Collection] = Collection
    errors_of_training: tuple[type[Exception], ...] = ()
    """The errors of a framework that computes in the background. It raises them where a result is first waited for,
    which may be inside the hook. They belong to training and pass through the hook."""
    save_interval: int = DEFAULT_SAVE_INTERVAL
    """The steps between two saves where no configuration says otherwise."""
    is_ordered: bool = True
    """True if the hook records the tensors of a step in the order in which they are computed."""


_S = TypeVar("_S")
_O = TypeVar("_O", bound=HookOptions)
_P = ParamSpec("_P")


def accepts_fields_of(
    options_type: Callable[_P, _O],
) -> Callable[[Callable[[_S, _O], None]], Callable[Concatenate[_S, _P], None]]:
    """Make a constructor `__init__(self, options)` accept the fields of the options as its arguments.

    Its signature, its annotations and its docstring are those of the fields, so that `help` and type checkers show
    them. `options_type` is HookOptions, or a dataclass that inherits from it.
    """
    signature = inspect.signature(options_type)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)

    def decorate(initialize: Callable[[_S, _O], None]) -> Callable[Concatenate[_S, _P], None]:
        def construct(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as exc:
                hint = meant(kwargs, signature.parameters)
                raise TypeError(f"{initialize.__qualname__}() {exc}{hint}") from None
            initialize(self, options_type(*args, **kwargs))

        functools.update_wrapper(construct, initialize)
        construct.__doc__ = _documentation(options_type)
        construct.__annotations__ = dict(options_type.__init__.__annotations__)
        construct.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[own, *signature.parameters.values()], return_annotation=None
        )
        return construct

    return decorate


def _documentation(options_type: Any) -> str:
    """Return the documentation of the shared arguments, followed by that of a framework's own."""
    types = [each for each in reversed(options_type.__mro__) if issubclass(each, HookOptions)]
    return "\n\n".join(inspect.cleandoc(each.__doc__ or "") for each in types)
