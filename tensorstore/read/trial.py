"""A run that is open for reading: its tensors, steps, modes, workers, collections and values."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ..config.collection import Collection, CollectionKeys, Collections
from ..config.metadata import Environment
from ..dtypes import Array
from ..engines.base import Answer, Engine
from ..engines.interrupting import deadline_of
from ..errors import ConfigurationError, FileError, InvalidWorker, QueryLimit
from ..format.schema import RunInfo
from ..html_table import html_facts
from ..mode import GLOBAL, ModeKeys, checked_range, checked_step, checked_steps
from ..snapshot.saved_steps import StepRange
from ..snapshot.snapshot import Snapshot, run_info
from ..snapshot.workers import natural
from ..storage.open import Storage
from ..suggestions import near_names
from ..visible import counted, sized
from .frame import frame_of
from .name_filter import belongs_to, name_patterns, names_in
from .plots import TrialPlots
from .run_reader import RunReader
from .step_states import LateWorker, StepState
from .tensor import Tensor
from .waiting import Waiting

if TYPE_CHECKING:
    from .verify import Verification

logger = logging.getLogger(__name__)

SIZE_SECONDS = 0.1
"""A notebook shows a table without a request, so numbers that take longer to compute are left out."""


class Trial:
    """A run that is open for reading, while it is being written or afterwards. Made by `create_trial`.

    It can be used in forked processes, pickled, and copied: each copy opens the run again, with the same options.
    Trials of the same path are equal. As a container, a trial maps names to its tensors.

    Each method first finds new data (see `no_refresh` to stop that). Step numbers count in the `mode` that is passed
    with them; GLOBAL, the default, counts over all modes.
    """

    def __init__(
        self,
        storage: Storage,
        info: RunInfo,
        name: str | None = None,
        range_steps: StepRange | None = None,
        engine: Engine | None = None,
        verify: bool = True,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.name = str(name or storage.url.rpartition("/")[2])
        self.path = storage.url
        self.range_steps = None if range_steps is None else checked_range(range_steps)
        self._reader = RunReader(storage, info, self.name, self.range_steps, engine, verify=verify, always=snapshot)
        if not self._reader.snapshot.workers.claims:
            run_info(storage)  # raises MissingCollectionFiles if no worker has begun

    @property
    def snapshot(self) -> Snapshot:
        """The present state of the run.

        Its `str` is an id, the same for the same index files. `create_trial(path, snapshot=…)` opens either again.
        """
        return self._reader.now().snapshot

    @property
    def info(self) -> RunInfo:
        """The content of `run.json`: the run's id, metadata, framework and versions."""
        return self._reader.now().snapshot.run or self._reader.info

    # Names, steps and workers.

    def tensor(self, tname: str) -> Tensor:
        """Return the tensor of a name.

        Args:
            tname: The name of the tensor. A scalar x is also found as `scalar/x`, its name in runs of smdebug.

        Returns:
            The tensor, whose values are read on request.

        Raises:
            TensorUnavailable: No tensor of this name was saved; the error names the nearest ones.
            ConfigurationError: The name is not text.
        """
        if not isinstance(tname, str):
            raise ConfigurationError(f"the name of a tensor must be text, got {tname!r}")
        return Tensor(self._reader.find_name(tname), self._reader)

    def has_tensor(self, tname: str) -> bool:
        """Return whether a tensor was saved.

        Args:
            tname: The name of the tensor.

        Returns:
            True if it was saved at any step.
        """
        return tname in self

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: ModeKeys = GLOBAL,
        regex: str | re.Pattern[str] | Iterable[str] | None = None,
        collection: Collection | str | None = None,
    ) -> list[str]:
        """Return the names of saved tensors.

        Args:
            show_prefixed_tensors: Has no effect; smdebug had it.
            step: Only tensors that were saved at this step of `mode`; None for any step.
            mode: Only tensors that were saved in this mode; GLOBAL for any.
            regex: Only names in which `re.search` finds this regular expression, or one of several; text or compiled.
            collection: Only tensors of this collection, by its name or as an object. Not together with `regex`. An
                unknown name is logged as a warning.

        Returns:
            The names, sorted.

        Raises:
            ConfigurationError: A regular expression does not compile, or `regex` and `collection` are both or unnamed.
        """
        if not isinstance(show_prefixed_tensors, bool) or (regex is not None and collection is not None):
            raise ConfigurationError("tensor_names takes regex=... or collection=..., by name, and not both")
        if not isinstance(collection, Collection | str | None):
            raise ConfigurationError(f"collection must be a collection or its name, got {collection!r}")
        patterns = None if regex is None else name_patterns(regex)
        rows = self._reader.tensors(ModeKeys.parse(mode), None if step is None else checked_step(step))
        if patterns is not None:
            rows = [row for row in rows if any(pattern.search(row[0]) for pattern in patterns)]
        if collection is not None:
            rows = [row for row in rows if belongs_to(row[0], row[1], collection)]
            if not rows and isinstance(collection, str):
                self._warn_of_unknown(collection)
        return list(dict.fromkeys([row[0] for row in rows]))

    def _warn_of_unknown(self, collection: str) -> None:
        known = {*self.collections(), *(each for _, of in self._reader.tensors(GLOBAL) for each in of)}
        if (collection.strip() or CollectionKeys.DEFAULT) not in known:
            near = near_names(collection, known) or sorted(known)
            logger.warning("run %s: no collection %r; the nearest are: %s", self.path, collection, ", ".join(near))

    def workers(self) -> list[str]:
        """Return the workers that saved anything.

        Returns:
            Their names, in natural order: worker_2 before worker_10.
        """
        return sorted(self._reader.now().saved.workers, key=natural)

    @property
    def num_workers(self) -> int:
        """The number of workers of the job, whether or not they have saved anything yet."""
        return self._reader.now().workers.num_workers

    def environment(self, worker: str | None = None) -> Environment:
        """Return the environment of a worker of the newest session: the parts that the run keeps.

        Args:
            worker: The name of the worker. Default: the first one.

        Returns:
            Values by name: those of `tensortrial.environment()`, `optimizers` and `activations`. The commit and the
            packages are kept for the first worker only. Empty if nothing was kept.

        Raises:
            InvalidWorker: The run has no worker of this name.
        """
        by_worker = {info.worker: info for info in self._reader.now().workers.infos}
        if worker is not None and str(worker) not in by_worker:
            raise InvalidWorker(worker, list(by_worker))
        chosen = by_worker.values() if worker is None else [by_worker[str(worker)]]
        return Environment(next((info.environment for info in chosen), {}))

    def steps(self, mode: ModeKeys = GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps at which anything was saved.

        A step is complete when every worker has written it or a later one, or when the job has ended.

        Args:
            mode: The mode that steps are counted in; GLOBAL counts over all modes.
            show_incomplete_steps: Return incomplete steps, too.

        Returns:
            The steps, ascending.
        """
        states = self._reader.now()
        return list(states.all(mode)[0] if show_incomplete_steps else states.complete(mode))

    def modes(self) -> list[ModeKeys]:
        """Return the modes in which anything was saved.

        Returns:
            The modes, in the order of their definition.
        """
        return self._reader.now().saved.modes()

    def global_step(self, mode: ModeKeys, mode_step: int) -> int:
        """Return the global step of a step of a mode, by the first worker that has it.

        Args:
            mode: The mode that `mode_step` is counted in.
            mode_step: The step of the mode.

        Returns:
            The step, counted over all modes.

        Raises:
            StepUnavailable: The step was not saved and will not be.
            StepNotYetAvailable: The step was not saved yet, but may still be.
        """
        return self._reader.now().known_info(mode_step, ModeKeys.parse(mode)).global_step

    def mode_step(self, global_step: int) -> int:
        """Return the number of a global step in its own mode, by the first worker that has it.

        Args:
            global_step: The step, counted over all modes.

        Returns:
            The step of its mode.

        Raises:
            StepUnavailable: The step was not saved and will not be.
            StepNotYetAvailable: The step was not saved yet, but may still be.
        """
        return self._reader.now().known_info(global_step).mode_step

    def mode(self, global_step: int) -> ModeKeys:
        """Return the mode of a global step.

        Args:
            global_step: The step, counted over all modes.

        Returns:
            The mode in which it was saved, by the first worker that has it.

        Raises:
            StepUnavailable: The step was not saved and will not be.
            StepNotYetAvailable: The step was not saved yet, but may still be.
        """
        return self._reader.now().known_info(global_step).mode

    def collections(self) -> Collections:
        """Return the collections of the hook's configuration, saved or not.

        Returns:
            The collections, by name. Their `tensor_names` are the configured and the saved ones.
        """
        found = Collections()
        for collection in self._reader.collections():
            if collection.name in found:
                found[collection.name].add_tensor_names(collection.tensor_names)
            else:
                found[collection.name] = collection
        for name, member_of in self._reader.tensors(GLOBAL):
            for each in (*member_of, CollectionKeys.ALL):
                if each in found:
                    found[each].add_tensor_names([name])
        return found

    def collection(self, coll_name: str) -> Collection:
        """Return a collection of the hook's configuration.

        Args:
            coll_name: The name of the collection.

        Returns:
            The collection.

        Raises:
            ConfigurationError: The hook has no collection of this name; the error names its collections.
        """
        collections = self.collections()
        if not isinstance(coll_name, str) or coll_name not in collections:
            raise ConfigurationError(f"no collection {coll_name!r}; there are {', '.join(sorted(collections))}")
        return collections[coll_name]

    @property
    def damaged(self) -> dict[str, FileError]:
        """The errors of files that cannot be read, by their paths. The rest of the run can be read."""
        return dict(self._reader.snapshot.damaged)

    def verify(self, progress: bool = False) -> Verification:
        """Read every byte of the run, and report its damaged, unfinished and unneeded parts.

        The run may be written and compacted meanwhile. All steps are read, also outside of `range_steps`.

        Args:
            progress: Show a progress bar, if tqdm is installed.

        Returns:
            The report. `is_whole` is True if nothing is damaged.

        Raises:
            StorageError: The run cannot be listed.
            UnknownFormat: A later release wrote a file.
        """
        # It needs functions of Arrow that take 0.05 s to import.
        from .verify import verify_run

        return verify_run(self._reader.storage, progress)

    # Waiting.

    def has_passed_step(self, step: int, mode: ModeKeys = GLOBAL) -> StepState:
        """Return whether a step was saved, may still be saved, or never will be.

        Args:
            step: The step.
            mode: The mode that it is counted in.

        Returns:
            `AVAILABLE` once it is complete, `NOT_YET_AVAILABLE`, or `UNAVAILABLE`.
        """
        return self._reader.now().of(step, mode)

    def wait_for_steps(
        self, required_steps: Iterable[int], mode: ModeKeys = GLOBAL, timeout: float | None = None
    ) -> None:
        """Wait until all of some steps are complete.

        A long wait logs which worker it waits for; see `late_workers`.

        Args:
            required_steps: The steps.
            mode: The mode that they are counted in.
            timeout: Seconds to wait; None for no limit.

        Raises:
            StepUnavailable: A step was skipped.
            NoMoreData: The job has ended before a step.
            StepNotYetAvailable: `timeout` seconds have passed. The thread that trains gets it at once for a step that
                it has not reached, because it would wait for itself.
        """
        deadline = None if timeout is None else deadline_of(timeout)
        waiting = Waiting(self._reader)
        for step in checked_steps(required_steps):
            waiting.wait_for(step, mode, deadline)

    @property
    def loaded_all_steps(self) -> bool:
        """True if the job has ended: every worker has, or it was marked as ended.

        No more data will come. False for up to a minute if an index file has a read error that may pass.
        """
        return self._reader.now().snapshot.job_ended

    def late_workers(self) -> list[LateWorker]:
        """Return the workers that the newest saved steps wait for.

        With `include_workers="all"` a step is complete when every worker has saved it. A running worker is late by a
        flush or two. A killed worker is late until `mark_ended(worker=…)`.

        Returns:
            The workers in natural order, each with its last step and time; empty once the job has ended.
        """
        return self._reader.now().late_workers()

    def mark_ended(self, worker: str | None = None) -> None:
        """Record in the run that it is not written any further, after a crash without an end mark.

        Steps that a worker lacks are then complete without it. The marks of ended workers do not change.

        Args:
            worker: The name of one worker; None for all of the job.

        Raises:
            InvalidWorker: The job has no such worker.
        """
        self._reader.mark_ended(worker)

    # Many values, and SQL.

    def values(
        self,
        names: str | Iterable[str],
        steps: Iterable[int] | None = None,
        mode: ModeKeys = GLOBAL,
        worker: str | None = None,
    ) -> dict[str, dict[int, Array]]:
        """Return raw values of many tensors at many steps, read together.

        Values of less than 2 MB share blocks of memory of up to 4 MB. A block lives as long as one of its arrays, so
        copy an array to keep only that one.

        Args:
            names: The names of the tensors, or of one.
            steps: The steps, counted in `mode`; None for all.
            mode: The mode that steps are counted in.
            worker: The worker whose values are returned; None for the first one of each step that has one.

        Returns:
            `{name: {step: array}}`, in the saved dtypes and shapes, without steps at which no raw value was saved.

        Raises:
            TensorUnavailable: A tensor was never saved.
            InvalidWorker: The worker saved none of the tensors.
            ConfigurationError: A name is not text.
            MissingChunk: A file of raw values is missing.
            MissingIndexFile: A file of the index is missing.
            CorruptFile: A file cannot be read.
        """
        return self._reader.values(list(dict.fromkeys(names_in(names))), steps, mode, worker)

    def inputs(self, step: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> list[Array]:
        """Return the inputs of the model at a step: the raw values of the collection `inputs`.

        Args:
            step: The step.
            mode: The mode that it is counted in.
            worker: The worker whose values are returned; None for the first one that has them.

        Returns:
            The arrays, in the order of the numbers in their names; empty if none were saved.

        Raises:
            StepUnavailable: The step was not saved and will not be.
            StepNotYetAvailable: The step was not saved yet, but may still be.
            TensorUnavailableForStep: Only statistics of an input were saved.
        """
        return self._values_in(CollectionKeys.INPUTS, step, mode, worker)

    def labels(self, step: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> list[Array]:
        """Return the labels at a step: the raw values of the collection `labels`; see `inputs`.

        Args:
            step: The step.
            mode: The mode that it is counted in.
            worker: The worker whose values are returned; None for the first one that has them.

        Returns:
            The arrays, in the order of the numbers in their names.
        """
        return self._values_in(CollectionKeys.LABELS, step, mode, worker)

    def predictions(self, step: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> list[Array]:
        """Return the predictions at a step: the raw values of the collection `predictions`; see `inputs`.

        Args:
            step: The step.
            mode: The mode that it is counted in.
            worker: The worker whose values are returned; None for the first one that has them.

        Returns:
            The arrays, in the order of the numbers in their names.
        """
        return self._values_in(CollectionKeys.PREDICTIONS, step, mode, worker)

    def _values_in(self, collection: str, step: int, mode: ModeKeys, worker: str | None) -> list[Array]:
        names = sorted(self.tensor_names(step=step, mode=mode, collection=collection), key=natural)
        if not names and self.has_passed_step(step, mode) is not StepState.AVAILABLE:
            raise self._reader.states.missing(step, mode)
        return [self.tensor(name).value(step, mode, worker) for name in names]

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Run one SELECT on the views of the run.

        `SHOW TABLES` lists the views, such as `tensors` and `scalars`. A query can read nothing else, and cannot write.

        Args:
            query: The SELECT, in DuckDB's SQL.
            parameters: The values of `$name` in the query.
            timeout: Seconds that the engine may run each time rows are fetched; None for no limit.

        Returns:
            The rows: `.fetchall()`, `.df()`, `.pl()`, `.arrow()`, an iterator, or printed as they are. An engine other
            than DuckDB has `columns`, `fetchall()`, `df()` and `to_arrow_table()`.

        Raises:
            ConfigurationError: `parameters` is not a dictionary.
            QueryRefused: The query is not one SELECT on the views.
            QueryError: The engine cannot run the query.
            QueryTimeout: The query took longer than `timeout`.
        """
        answer = self._reader.sql(query, parameters, timeout)
        _ = answer.columns  # raises the error of a query that the engine cannot run
        return answer

    def frame(
        self,
        names: str | Iterable[str],
        statistic: str | None = None,
        mode: ModeKeys = GLOBAL,
        worker: str | None = None,
        *,
        engine: str = "pandas",
    ) -> Any:
        """Return a statistic of many tensors at all steps as a data frame.

        Args:
            names: A name, a collection, a pattern such as `gradient/*`, in which `*` stands for any text, or several.
            statistic: A statistic, such as l2, computed if it was not saved; None for the values of scalars.
            mode: The mode that steps are counted in.
            worker: The worker whose values are returned; None for the first one of each step that has one.
            engine: `pandas` or `polars`. Neither is installed with the package: the extra `frame` has both.

        Returns:
            A frame with one float64 column a tensor and one row a step, NaN where there is no value. The steps are
            pandas' index, or polars' first column.

        Raises:
            ConfigurationError, InvalidWorker: No tensor matches or has the statistic, or an argument is unknown.
            MissingExtra: The library is not installed.
        """
        return frame_of(self._reader, names, statistic, mode, worker, engine)

    @property
    def plot(self) -> TrialPlots:
        """Plots of the run with matplotlib, which the extra `plot` installs: `trial.plot.heatmap("gradients", "l2")`.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        return TrialPlots(self)

    # Refreshing.

    def refresh(self) -> None:
        """Find new data now, even inside `no_refresh`. If another run has replaced this one, it is read from now on.

        Raises:
            RunNotFound: The run was deleted.
        """
        self._reader.refresh(claims=True)

    def close(self) -> None:
        """Release the memory of the trial, which cannot be used afterwards."""
        self._reader.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, here or in another process, opens the run again, because caches belong to one process.
        reader = self._reader
        options = self.name, self.range_steps, reader.engine, reader.verify, reader.always
        return _reopened, (type(self), reader.is_refreshing, reader.storage, *options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, tname: str) -> Tensor:
        return self.tensor(tname)

    def __contains__(self, tname: object) -> bool:
        return isinstance(tname, str) and self._reader.has_name(tname)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensor_names())

    def __len__(self) -> int:
        return len(self.tensor_names())

    def __bool__(self) -> bool:
        # A run without saved steps is a run, too.
        return True

    def _ipython_key_completions_(self) -> list[str]:
        return self.tensor_names()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Trial({self.name!r}, path={self.path!r})"

    def _repr_html_(self) -> str | None:
        return html_facts(f"Trial {self.name}", self._facts())

    def _facts(self) -> Iterator[tuple[str, object]]:
        yield "path", self.path
        yield "state", "ended" if self.loaded_all_steps else "running"
        for mode in self.modes():
            steps = self.steps(mode)
            yield f"steps {mode.name}", f"{len(steps):,}: {steps[0]} to {steps[-1]}" if steps else "none"
        yield "tensors", f"{len(self):,}"
        for name, each in sorted(self.collections().items()):
            if count := len(each.tensor_names):
                yield f"collection {name}", counted(count, "tensor")
        with suppress(QueryLimit):
            found = self.sql("select coalesce(sum(nbytes), 0) from tensors", timeout=SIZE_SECONDS).fetchall()
            yield "size", f"{sized(found[0][0])} of tensors"


def run_reader_of(trial: Trial) -> RunReader:
    """Return the gateway that a trial reads through, for rules and exports."""
    return trial._reader  # noqa: SLF001  the one way in


def _reopened(kind: type[Trial], is_refreshing: bool, storage: Storage, *options: Any) -> Trial:
    trial = kind.__new__(kind)
    # Not by the class, because a subclass may take other arguments.
    Trial.__init__(trial, storage, run_info(storage, has_begun=False), *options)
    run_reader_of(trial).wishes = [(None, is_refreshing)]
    return trial
