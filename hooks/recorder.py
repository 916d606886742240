"""The recorder: what every hook does, whatever the framework.

It counts steps, decides what of a tensor is saved when, copies it, and hands it to the writer. A framework's hook has one
and pushes into it; the recorder never calls back.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from tensortrial import __version__
from tensortrial.claim import Progress, check_out_dir, claim, claim_again, progress, update_claim
from tensortrial.collection import Collection, CollectionKeys
from tensortrial.dtypes import Array, dtype_name, storable
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration, UnsupportedValue
from tensortrial.mode import ModeKeys
from tensortrial.records import Plan, Record, Step
from tensortrial.reduction_config import ReductionConfig, boolean
from tensortrial.save_config import SaveConfig
from tensortrial.schema import RunInfo, WorkerInfo
from tensortrial.storage import open_storage
from tensortrial.writer import Writer

from .collection_manager import CollectionManager
from .configuration import HookConfiguration
from .rank import Rank
from .shutdown import close_at_exit

logger = logging.getLogger("tensortrial.hooks")

CODECS = ("none", "lz4", "zstd")
STRICT_VARIABLE = "TENSORTRIAL_STRICT"
_OFF_VARIABLES = ("TENSORTRIAL", "USE_SMDEBUG")

# Scalars by nature: a statistic instead of them would save nothing.
_ALWAYS_RAW = frozenset(
    {
        CollectionKeys.LOSSES,
        CollectionKeys.METRICS,
        CollectionKeys.SM_METRICS,
        CollectionKeys.FEATURE_IMPORTANCE,
        CollectionKeys.AVERAGE_SHAP,
    }
)
_TRAINING_ONLY = frozenset({CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES})
_NOT_TRAINING = (ModeKeys.EVAL, ModeKeys.PREDICT)
# Captured tensors go to the writer before their step closes once there are so many bytes of them: memory stays bounded
# however large a step is, and the writer works while the step runs.
_HAND_OVER_BYTES = 4 << 20

_S = TypeVar("_S", bound="HasRecorder")
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Recorder:
    """Records the tensors of one process into one run.

    `builtin` are the framework's own collections, `always_saved` those of them that are saved in any case. `record` is
    called by the framework's hook while a step is open, that is between `begin_step` and the next `begin_step`,
    `set_mode` or `close`. All methods may be called from any thread.
    """

    def __init__(
        self,
        out_dir: str | os.PathLike[str],
        *,
        framework: str,
        versions: Mapping[str, str],
        rank: Rank,
        builtin: Iterable[str],
        always_saved: Iterable[str],
        collection_factory: type[Collection] = Collection,
        export_tensorboard: bool = False,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[Any, Any] | None = None,
        include_regex: Iterable[str] | str | None = None,
        include_collections: Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        resume: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        flush_seconds: float | None = None,
        codec: str = "none",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        if not out_dir:
            raise ConfigurationError("a hook needs out_dir: where to save the run")
        if include_workers not in ("one", "all"):
            raise ConfigurationError(f"include_workers must be 'one' or 'all', not {include_workers!r}")
        if codec not in CODECS:
            raise ConfigurationError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
        if flush_seconds is not None and flush_seconds < 0:
            raise ConfigurationError(f"flush_seconds must be 0 or more, not {flush_seconds!r}")
        self.out_dir = os.fspath(out_dir)
        self.save_config = SaveConfig.parse(save_config)
        self.save_config.inherit(SaveConfig())
        self.reduction_config = reduction_config or ReductionConfig()
        self.collections = CollectionManager(builtin, self.save_config, collection_factory)
        self.collections.save(always_saved)
        self.collections.save(include_collections or ())
        if include_regex:
            self._collection(CollectionKeys.DEFAULT).include(include_regex)
            self.collections.save([CollectionKeys.DEFAULT])
        if boolean("save_all", save_all):
            self.collections.save([CollectionKeys.ALL])
        self.worker = rank.worker
        self.num_workers = rank.size if include_workers == "all" else 1
        self.mode = ModeKeys.GLOBAL
        self._framework, self._versions, self._metadata = framework, dict(versions), dict(metadata or {})
        self._codec, self._flush_seconds = codec, flush_seconds
        self._histograms = boolean("export_tensorboard", export_tensorboard)

        self._storage = open_storage(self.out_dir, storage_options)
        self._lock = threading.RLock()
        self._writer: Writer | None = None
        self._claimed: WorkerInfo | None = None
        self._failure: str | None = None
        self._closed = False
        chosen = include_workers == "all" or rank.number == 0
        self._active = chosen and not boolean("dry_run", dry_run) and _switched_on()
        self._progress = Progress()
        self._resumes = False
        if self._active:
            self._look_at_out_dir(resume)

        self._next_global_step = self._progress.global_step
        self._next_mode_steps = {mode: self._progress.mode_step(mode) for mode in ModeKeys}
        self._step: Step | None = None
        self._step_is_adoptable = False
        self._step_is_held = False
        self._handed_over = 0
        self._waiting_bytes = 0
        self._due: frozenset[str] = frozenset()
        self._plans: dict[str, Plan | None] = {}
        self._plans_by_due: dict[frozenset[str], dict[str, Plan | None]] = {}
        self._fingerprint: tuple[object, ...] = ()
        self._unsupported: set[str] = set()
        self.saving = False
        """Whether anything is due at the open step. Hooks look here first: most steps save nothing."""
        close_at_exit(self)

    # Steps.

    @property
    def step(self) -> Step | None:
        """The open step."""
        return self._step

    def set_mode(self, mode: ModeKeys) -> None:
        """Close the open step; the next one is counted in `mode`."""
        with self._lock:
            self._close_step()
            self.mode = ModeKeys.parse(mode)

    def begin_step(self) -> None:
        """Close the open step and begin the next one of the mode."""
        with self._lock:
            if not self._active or self._step_is_held:
                return
            if self._step is not None and self._step_is_adoptable:
                # Values were saved ahead of the step that now begins: it is theirs.
                self._step_is_adoptable = False
                return
            self._close_step()
            self._open_step()

    def hold_step(self) -> None:
        """Begin a step that lasts until `release_step`, whatever begins meanwhile."""
        with self._lock:
            self.begin_step()
            self._step_is_held = True

    def release_step(self) -> None:
        with self._lock:
            self._step_is_held = False
            self._close_step()

    def _open_step(self) -> None:
        self._start()
        in_mode = self._next_mode_steps[self.mode]
        self._step = Step(self.mode, in_mode, self._next_global_step)
        self._next_mode_steps[self.mode] += 1
        self._next_global_step += 1
        self._step_is_adoptable = False
        self._plan_step(self._step)

    def _plan_step(self, step: Step) -> None:
        fingerprint = self.collections.fingerprint()
        if fingerprint != self._fingerprint:
            self._plans_by_due.clear()
            self._fingerprint = fingerprint
            self._announce()
        self._due = frozenset(c.name for c in self.collections.saved() if _is_due(c, step))
        self._plans = self._plans_by_due.setdefault(self._due, {})
        self.saving = bool(self._due)

    def _close_step(self) -> None:
        step, self._step = self._step, None
        self.saving = False
        self._step_is_adoptable = False
        if step is None or self._writer is None:
            return
        # A step without any tensor leaves no trace.
        if step.records or self._handed_over:
            self._writer.put(step, step.records, closes=True)
        self._handed_over = self._waiting_bytes = 0

    # Tensors.

    def plan(self, name: str) -> Plan | None:
        """What of the tensor is due at the open step; None if nothing is."""
        try:
            return self._plans[name]
        except KeyError:
            plan = self._plans[name] = self._make_plan(name)
            return plan

    def record(
        self,
        plan: Plan,
        value: Array,
        *,
        owned: bool = False,
        statistics: Mapping[str, float] | None = None,
        dtype: str | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """Keep a tensor at the open step. The array is copied, unless it is `owned`: nobody else writes to it.

        Statistics that the hook took on the tensor's own device come with `dtype` and `shape`; `value` is then ignored
        where the plan wants no raw value.
        """
        if not self._active:
            return
        try:
            dtype_name(value.dtype)
        except UnsupportedValue as exc:
            self._refuse(plan.name, exc)
            return
        # The one copy: training goes on to overwrite its tensors while the writer still reads them.
        kept = storable(value) if owned else np.array(storable(value), copy=True, order="C", subok=False)
        self._add(Record(plan, kept, time.time_ns(), statistics, dtype, shape), kept.nbytes)

    def save_scalar(self, name: str, value: float, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Keep a number at the open step, or, if none is open, at the one that begins next in this mode."""
        with self._lock:
            if not self._ready_to_save():
                return
            extra = (CollectionKeys.SM_METRICS,) if sm_metric else ()
            plan = self._explicit_plan(name, extra, always_raw=True)
            saved_at = time.time_ns() if timestamp is None else int(timestamp * 1e9)
            self._add(Record(plan, float(value), saved_at), 0)

    def save_tensor(self, name: str, value: Array, collections_to_write: Iterable[str] | str = CollectionKeys.DEFAULT) -> None:
        """Keep an array at the open step, or, if none is open, at the one that begins next in this mode."""
        with self._lock:
            if not self._ready_to_save():
                return
            names = [collections_to_write] if isinstance(collections_to_write, str) else list(collections_to_write)
            for collection in names:
                self._collection(collection)
            self.record(self._explicit_plan(name, tuple(names)), value)

    def _ready_to_save(self) -> bool:
        if not self._active:
            return False
        if self._step is None:
            self._open_step()
            self._step_is_adoptable = not self._step_is_held
        return True

    def _add(self, record: Record, nbytes: int) -> None:
        with self._lock:
            step = self._step
            if step is None:
                return
            step.records.append(record)
            self._waiting_bytes += nbytes
            if self._waiting_bytes >= _HAND_OVER_BYTES and self._writer is not None:
                records, step.records = step.records, []
                self._handed_over += len(records)
                self._waiting_bytes = 0
                self._writer.put(step, records)

    # Plans.

    def _make_plan(self, name: str) -> Plan | None:
        matching = self._matching(name)
        due = [collection for collection in matching if collection.name in self._due]
        return self._plan_of(name, matching, due) if due else None

    def _explicit_plan(self, name: str, collections: tuple[str, ...], always_raw: bool = False) -> Plan:
        """The plan of a tensor that the user saves by a call: it is due, whatever the collections say of steps."""
        key = f"{name}\0{collections}{always_raw}"
        plan = self._plans.get(key)
        if plan is None:
            given = [self._collection(each) for each in collections]
            matching = list({c.name: c for c in [*self._matching(name), *given]}.values())
            plan = Plan(name, _names(matching), True) if always_raw else self._plan_of(name, matching, given)
            self._plans[key] = plan
        return plan

    def _plan_of(self, name: str, matching: Sequence[Collection], due: Sequence[Collection]) -> Plan:
        configs = [(collection, collection.reduction_config or self.reduction_config) for collection in due]
        statistics = dict.fromkeys(statistic for _, config in configs for statistic in config.statistics)
        raw = any(config.raw or collection.name in _ALWAYS_RAW for collection, config in configs)
        histogram = any(self._histograms if c.save_histogram is None else c.save_histogram for c in due)
        return Plan(name, _names(matching), raw, tuple(statistics), histogram)

    def _matching(self, name: str) -> list[Collection]:
        return [collection for collection in self.collections if collection.matches(name)]

    def _collection(self, name: str) -> Collection:
        collection = self.collections.get(name)
        assert collection is not None
        return collection

    # The run.

    def _look_at_out_dir(self, resume: bool) -> None:
        if not resume:
            check_out_dir(self._storage, self.worker, self.num_workers)
            return
        self._progress = progress(self._storage, self.worker, self.num_workers)
        self._resumes = True

    def _start(self) -> None:
        """Claim the run, when the first step begins."""
        if self._writer is not None:
            return
        self.collections.check()
        run = RunInfo(
            created_at=_now(),
            framework=self._framework,
            num_workers=self.num_workers,
            codec=self._codec,
            versions={"tensortrial": __version__, "python": platform.python_version(), **self._versions},
            metadata=self._metadata,
        )
        self._fingerprint = self.collections.fingerprint()
        self._claimed = self._worker_info(_now())
        first_flush = 0
        if self._resumes:
            first_flush = claim_again(self._storage, run, self._claimed)
        else:
            claim(self._storage, run, self._claimed)
        self._writer = Writer(
            self._storage, self.worker, codec=self._codec, flush_seconds=self._flush_seconds, first_flush=first_flush
        )

    def _worker_info(self, started_at: str) -> WorkerInfo:
        return WorkerInfo(
            self.worker,
            self.num_workers,
            started_at,
            [collection.to_json() for collection in self.collections],
            self.collections.saved_names,
            session=self._progress.session,
            first_global_step=self._progress.global_step,
            first_mode_steps=dict(self._progress.mode_steps),
        )

    def _announce(self) -> None:
        """Tell readers of collections that changed since the run was claimed."""
        if self._claimed is not None:
            info = self._worker_info(self._claimed.started_at)
            if info != self._claimed:
                self._claimed = info
                update_claim(self._storage, info)

    def flush(self) -> None:
        """Publish every closed step now, and return when that is done."""
        if self._writer is not None and self._active:
            self._writer.flush()

    def close(self) -> None:
        """Close the open step and the run. What is recorded afterwards is not saved. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._close_step()
                if self._writer is not None:
                    self._writer.close(self._failure)
            except Exception as exc:
                self.fail(exc)
            finally:
                self._active = self.saving = False

    def forget(self) -> None:
        """In a forked child: the run belongs to the process that began it."""
        self._lock = threading.RLock()
        self._active = self.saving = False
        self._closed = True
        self._writer = self._step = None

    # Failures.

    def fail(self, exc: BaseException) -> None:
        """Turn off after an error inside: training goes on without. In strict mode the error is raised."""
        self._active = self.saving = False
        if self._failure is None:
            self._failure = f"{type(exc).__name__}: {exc}"
            logger.error(
                "the hook of %s is off from here on, training is not affected: %s", self.out_dir, self._failure, exc_info=exc
            )
        # What was recorded before is still worth having.
        if not self._closed:
            self.close()
        if strict():
            raise exc

    def _refuse(self, name: str, exc: UnsupportedValue) -> None:
        """Leave out one tensor that cannot be stored; the others go on."""
        if strict():
            raise exc
        if name not in self._unsupported:
            self._unsupported.add(name)
            logger.error("tensor %r is not saved: %s", name, exc)

    # What is the same in every hook.

    def apply(self, configuration: HookConfiguration) -> None:
        """Save the collections of a JSON configuration, each as it says."""
        for entry in configuration.collections:
            collection = self._collection(entry.name)
            collection.include(entry.include_regex)
            collection.save_config = entry.save_config
            collection.save_histogram = entry.save_histogram
            if entry.reduction_config is not None:
                collection.reduction_config = entry.reduction_config
        self.collections.save(entry.name for entry in configuration.collections)


def guarded(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R | None]:
    """For a hook's entry points: an error inside never reaches training, except one that says that the hook was told
    something that cannot be, before anything was saved."""

    @functools.wraps(method)
    def call(self: _S, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        try:
            return method(self, *args, **kwargs)
        except InvalidCollectionConfiguration:
            raise
        except Exception as exc:
            self.recorder.fail(exc)
            return None

    return call


class HasRecorder:
    """The part of a hook's public face that is the same in every framework."""

    recorder: Recorder

    @property
    def out_dir(self) -> str:
        return self.recorder.out_dir

    @property
    def mode(self) -> ModeKeys:
        return self.recorder.mode

    @property
    def worker(self) -> str:
        return self.recorder.worker

    @property
    def save_config(self) -> SaveConfig:
        return self.recorder.save_config

    @property
    def reduction_config(self) -> ReductionConfig:
        return self.recorder.reduction_config

    def add_collection(self, collection: Collection) -> None:
        """Add a collection of your own; name it in `include_collections` to have it saved."""
        if not isinstance(collection, Collection):
            raise ConfigurationError(f"add_collection takes a Collection, not {collection!r}")
        self.recorder.collections.add(collection)

    def get_collection(self, name: str, create: bool = True) -> Collection | None:
        """The collection of that name; made if there is none, unless `create` is False."""
        return self.recorder.collections.get(name, create)

    def get_collections(self) -> dict[str, Collection]:
        """All collections, by name."""
        return self.recorder.collections.by_name()

    @contextmanager
    def step(self) -> Iterator[None]:
        """`with hook.step():` makes all that happens inside the block one step: for the accumulation of gradients, or for
        several models in one step."""
        self._hold_step()
        try:
            yield
        finally:
            self._release_step()

    @guarded
    def set_mode(self, mode: ModeKeys) -> None:
        """Count the steps from here on in `mode`."""
        self.recorder.set_mode(mode)

    @guarded
    def save_scalar(self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Save a number at the open step, whatever the save configuration says. `timestamp` is in seconds since 1970."""
        self.recorder.save_scalar(name, value, sm_metric, timestamp)

    @guarded
    def flush(self) -> None:
        """Publish every closed step now."""
        self.recorder.flush()

    @guarded
    def _hold_step(self) -> None:
        self.recorder.hold_step()

    @guarded
    def _release_step(self) -> None:
        self.recorder.release_step()

    def close(self) -> None:
        """Close the open step and the run. Also done at exit. Closing twice is fine."""
        self.recorder.close()


def strict() -> bool:
    """Whether errors inside a hook are raised instead of logged: TENSORTRIAL_STRICT=1."""
    return os.environ.get(STRICT_VARIABLE, "0") not in ("", "0")


def _switched_on() -> bool:
    return all(os.environ.get(name, "1").lower() not in ("0", "false") for name in _OFF_VARIABLES)


def _is_due(collection: Collection, step: Step) -> bool:
    if collection.name in _TRAINING_ONLY and step.mode in _NOT_TRAINING:
        return False
    return collection.save_config is not None and collection.save_config.should_save_step(step.mode, step.mode_step)


def _names(collections: Iterable[Collection]) -> tuple[str, ...]:
    # Every tensor is part of `all`: no need to say so a million times.
    return tuple(sorted({collection.name for collection in collections} - {CollectionKeys.ALL}))


def _now() -> str:
    return datetime.now(UTC).isoformat()
