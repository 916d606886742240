"""Every error that tensortrial raises on purpose, in one tree.

A builtin in parentheses is a further base class of the error, in addition to its parent's.

TensorTrialError
├── UnavailableError (LookupError)          the run does not hold this, or not yet: choose something else, or wait
│   ├── TensorUnavailable (KeyError)            no tensor of this name was saved
│   ├── TensorUnavailableForStep (KeyError)     the tensor exists, but not at this step, or not in this form
│   ├── ShapeUnavailableForStep (KeyError)      the shape of the tensor is not known at this step
│   ├── StepUnavailable                         the step was skipped and will never be saved
│   ├── StepNotYetAvailable                     the step may still be saved
│   ├── NoMoreData                              the job ended before the step
│   └── InvalidWorker (KeyError)                no worker of this name saved the tensor
├── RunError                                the run as a whole cannot be opened, or cannot be written to
│   ├── RunNotFound (FileNotFoundError)         nothing is at the path
│   ├── NotARun (ValueError)                    the files at the path are not a run
│   ├── MissingCollectionFiles (FileNotFoundError)  the run exists, but no worker has begun
│   ├── SnapshotNotFound (LookupError)          the files of a snapshot cannot be found in the run
│   ├── UnknownFormat (ValueError)              a later release wrote the run
│   ├── RunExists (FileExistsError, RuntimeError)  out_dir holds a run already
│   ├── WorkerClaimed (FileExistsError)         another process writes as this worker
│   ├── RunInUse (FileExistsError)              the run cannot be resumed while a process writes to it
│   ├── RunTakenOver (PermissionError)          another process has taken the run over
│   └── RunStalled (TimeoutError)               no new step came for as long as the caller waits
├── RunClosed (ValueError)                  a trial, or many runs, were used after they were closed
├── FileError                               one file of the run is damaged; the rest stays readable
│   ├── CorruptFile (ValueError)                the file is truncated, foreign or malicious
│   ├── MissingChunk (FileNotFoundError)        the index names a chunk that is missing
│   ├── MissingIndexFile (FileNotFoundError)    another file of the run names an index file that is missing
│   ├── AlreadyPublished (FileExistsError)      a published file is never overwritten
│   └── StorageError (OSError)                  the file system or the object store refused
├── ConfigurationError (ValueError)         a setting or an argument is wrong
│   ├── InvalidCollectionConfiguration          a collection can never match, or has an unknown key
│   ├── InvalidRuleParameter                    a rule has no such parameter, or does not accept this value
│   ├── UnknownRule (KeyError)                  no built-in rule has this name
│   ├── UnknownQuery (KeyError)                 no named query has this name
│   ├── InvalidQueryParameter                   a named query lacks a parameter, or does not accept this one
│   └── UnsupportedValue (TypeError)            the format cannot hold this value or dtype
├── QueryError (ValueError)                 the SQL cannot be run; the message is DuckDB's
│   ├── QueryRefused (PermissionError)          the SQL is not one SELECT on the run's views
│   └── QueryLimit                              the query was stopped by a limit, which the message names
│       ├── QueryTimeout (TimeoutError)             the query took longer than its timeout
│       ├── QueryMemoryExceeded (MemoryError)       the query needs more memory than the engine may use
│       └── TemporaryDiskExceeded (MemoryError)     the query needs more temporary disk than the engine may use
├── StatisticsNotSaved (LookupError)        a named query needs a statistic that the runs do not hold
├── EngineOutOfMemory (MemoryError)         the engine cannot get the memory that opening a run takes
├── ExportError (OSError)                   the target of an export refused, or cannot be reached
│   └── TableMismatch (ValueError)              the target holds the table with other columns
├── MissingExtra (ImportError)              an optional dependency is not installed
├── UnsupportedFramework (ImportError)      a library is too old for its callback
└── RuleError                               something that concerns a rule
    ├── RuleEvaluationConditionMet              a rule fired; not a failure
    └── InsufficientInformationForRuleInvocation (LookupError)  the run does not hold what a rule needs

Outside the tree is TrainingStopped (SystemExit): a training process ends by it when a rule requested a stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .redaction import without_credentials

_FEW = 3
"""The most names of a suggestion. More names are no suggestion, but the list of all known names."""


class TensorTrialError(Exception):
    """Root of the tree: `except TensorTrialError` catches every error that this package raises on purpose.

    No message shows a password or a token that a URL holds.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_credentials(each) if isinstance(each, str) else each for each in args))

    def __reduce__(self) -> tuple[Any, ...]:
        # By default the message would be passed to __init__ again, but errors must be pickled between processes.
        return _rebuild, (type(self), self.args, self.__dict__.copy())

    def __str__(self) -> str:
        # KeyError would show the repr of its message; every message here is a plain sentence.
        return str(self.args[0]) if self.args else ""


class UnavailableError(TensorTrialError, LookupError):
    """The run does not hold the tensor, the step or the worker, or not yet."""


class TensorUnavailable(UnavailableError, KeyError):
    """No tensor of the name `tname` has been saved."""

    def __init__(self, tname: str, hint: str = "") -> None:
        self.tname = tname
        super().__init__(f"no tensor named {tname!r} has been saved{_and(hint)}")


class TensorUnavailableForStep(UnavailableError, KeyError):
    """The tensor `tname` was not saved at `step` of `mode`, or not in the requested form, and never will be."""

    def __init__(self, tname: str, step: int, mode: Any = None, has_reductions: bool = False, hint: str = "") -> None:
        self.tname, self.step, self.mode, self.has_reductions = tname, step, mode, has_reductions
        if not hint and has_reductions:
            hint = "its raw value was not saved, only reductions were"
        super().__init__(f"tensor {tname!r} is not available at step {step}{_of(mode)}{_and(hint)}")


class ShapeUnavailableForStep(UnavailableError, KeyError):
    """The shape of the tensor `tname` is not known at `step` of `mode`."""

    def __init__(self, tname: str, step: int, mode: Any = None) -> None:
        self.tname, self.step, self.mode = tname, step, mode
        super().__init__(f"the shape of tensor {tname!r} is not available at step {step}{_of(mode)}")


class StepUnavailable(UnavailableError):
    """The step was skipped: no tensor will ever be available for it."""

    def __init__(self, step: int, mode: Any = None, hint: str = "") -> None:
        self.step, self.mode = step, mode
        super().__init__(f"step {step}{_of(mode)} was not saved and will not be" + (f"; {hint}" if hint else ""))


class StepNotYetAvailable(UnavailableError):
    """The step has not been saved yet; it may still be."""

    def __init__(self, step: int, mode: Any = None, hint: str = "") -> None:
        self.step, self.mode = step, mode
        super().__init__(f"step {step}{_of(mode)} is not available yet: {hint or 'the job has not ended'}")


class NoMoreData(UnavailableError):
    """The job has ended: no step after `last_step` will come."""

    def __init__(self, step: int | None = None, mode: Any = None, last_step: int | None = None, hint: str = "") -> None:
        self.step, self.mode, self.last_step = step, mode, last_step
        before = "" if step is None else f" before step {step}{_of(mode)}"
        last = "it saved no step" if last_step is None else f"its last step is {last_step}"
        super().__init__(f"the job has ended{before}: {last}" + (f"; {hint}" if hint else ""))


class InvalidWorker(UnavailableError, KeyError):
    """No worker of the name `worker` saved the tensor."""

    def __init__(self, worker: str, known: list[str] | None = None) -> None:
        self.worker, self.known = worker, list(known or ())
        choice = f"choose one of: {', '.join(self.known)}" if self.known else "no worker has saved anything"
        super().__init__(f"unknown worker {worker!r}; {choice}")


class RunError(TensorTrialError):
    """The run as a whole cannot be opened, or cannot be written to."""

    def __init__(self, path: str, message: str) -> None:
        self.path = without_credentials(path)
        super().__init__(f"{path}: {message}")


class RunNotFound(RunError, FileNotFoundError):
    """Nothing is at the path."""


class NotARun(RunError, ValueError):
    """There are files at the path, but they are not a run."""


class MissingCollectionFiles(RunError, FileNotFoundError):
    """The run exists, but no worker has begun to save."""


class SnapshotNotFound(RunError, LookupError):
    """The files of a snapshot cannot be found in the run."""


class UnknownFormat(RunError, ValueError):
    """The run was written in a format that this release does not know."""


class RunExists(RunError, FileExistsError, RuntimeError):
    """The out_dir of a new hook holds a run already."""


class WorkerClaimed(RunError, FileExistsError):
    """Another process writes to the run under the same worker name."""


class RunStalled(RunError, TimeoutError):
    """No new step came for as long as the caller waits, and the job has not ended."""


class RunInUse(RunError, FileExistsError):
    """A run cannot be resumed, because `process` still writes to it as `worker`, `since` an ISO 8601 time."""

    def __init__(self, path: str, worker: str, process: str, since: str, remedy: str = "") -> None:
        self.worker, self.process, self.since = worker, process, since
        super().__init__(
            path,
            f"{process} has been writing to this run as {worker} since {since} and is still alive: let it end or close "
            "its hook, or "
            + (remedy or "take the run over with force=True (or the environment variable TENSORTRIAL_FORCE=1)"),
        )


class RunTakenOver(RunError, PermissionError):
    """This process may not write to the run any more.

    `process` has resumed the run: with `force=True`, or after this process had not renewed its lease for too long.
    """

    def __init__(self, path: str, worker: str, process: str) -> None:
        self.worker, self.process = worker, process
        super().__init__(path, f"{process} has taken the run over, so {worker} saves nothing more here")


class RunClosed(TensorTrialError, ValueError):
    """A trial, or many runs, were used after they were closed."""

    def __init__(self) -> None:
        super().__init__("this was closed and can no longer be read; open it again with create_trial or open_runs")


class FileError(TensorTrialError):
    """The file `path` of a run is damaged; the rest stays readable."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


class CorruptFile(FileError, ValueError):
    """The file is truncated, or is not what its name says."""


class MissingChunk(FileError, FileNotFoundError):
    """The index names a chunk of values that is missing."""


class MissingIndexFile(FileError, FileNotFoundError):
    """An index file is missing: it was listed before, or the file `named_by` of the run names it."""

    def __init__(self, path: str, named_by: str = "") -> None:
        by = f": {named_by} names it" if named_by else "; was it deleted?"
        super().__init__(path, f"it is missing, with its steps and newer rows of earlier ones{by}")


class AlreadyPublished(FileError, FileExistsError):
    """A file of this name was published before; published files are never overwritten."""


class StorageError(FileError, OSError):
    """The file system or the object store refused an operation."""


class ConfigurationError(TensorTrialError, ValueError):
    """A setting or an argument is wrong; the message says which, and what is accepted."""


class InvalidCollectionConfiguration(ConfigurationError):
    """The collection `name` can never match a tensor, or has a key that is unknown."""

    def __init__(self, name: str, message: str = "it has no include_regex, no tensor names and no modules") -> None:
        self.name = name
        super().__init__(f"collection {shown(name)}: {message}")


class InvalidRuleParameter(ConfigurationError):
    """The rule `rule` has no parameter `parameter`, or does not accept `value`; `accepted` says what it accepts."""

    def __init__(self, rule: str, parameter: str, value: Any, accepted: str) -> None:
        self.rule, self.parameter, self.value, self.accepted = rule, parameter, value, accepted
        super().__init__(f"rule {rule}: parameter {parameter}={value!r} is not accepted: {accepted}")


class UnknownRule(ConfigurationError, KeyError):
    """No built-in rule has the name `rule`; `near` are names like it, if any."""

    def __init__(self, rule: str, near: list[str]) -> None:
        self.rule, self.near = rule, near
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`tensortrial rules` prints their names"
        super().__init__(f"unknown rule {rule!r}; {hint}")


class UnsupportedValue(ConfigurationError, TypeError):
    """A value that the format cannot hold, such as an array of Python objects."""


class QueryError(TensorTrialError, ValueError):
    """SQL that cannot be run: a wrong name, a wrong type. The message is DuckDB's."""


class QueryRefused(QueryError, PermissionError):
    """SQL that is not one SELECT on the run's own views."""


class EngineOutOfMemory(TensorTrialError, MemoryError):
    """The engine cannot get the memory that it needs to open a run; `limit` is the engine's own limit."""

    def __init__(self, message: str, limit: str) -> None:
        self.limit = limit
        super().__init__(
            f"the engine cannot get the memory that it needs: {message}. It may use {limit}; the environment variable "
            "TENSORTRIAL_MEMORY_LIMIT=8GB allows more, unless the process itself is limited (ulimit -v, a container)"
        )


class QueryLimit(QueryError):
    """A query was stopped by one of its limits, which the message names."""


class QueryTimeout(QueryLimit, TimeoutError):
    """A query was stopped after `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        super().__init__(
            f"the query was stopped by its timeout of {float(timeout):g} seconds; "
            "allow more by sql(…, timeout=SECONDS), or by --timeout on the command line"
        )


class QueryMemoryExceeded(QueryLimit, MemoryError):
    """A query needs more memory than its engine may use."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"the query needs more than its memory limit: {message}; select fewer rows or columns, or allow more by "
            "DuckDBEngine(memory_limit='8GB', temporary_disk='20GB')"
        )


class TemporaryDiskExceeded(QueryLimit, MemoryError):
    """A query needs more memory than its engine may use, and more temporary disk for what did not fit."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"the query needs more than its limit of temporary disk: {message}; select fewer rows or columns, or allow "
            "more by DuckDBEngine(temporary_disk='20GB')"
        )


class UnknownQuery(ConfigurationError, KeyError):
    """No named query has the name `query`; `near` are names like it."""

    def __init__(self, query: str, near: list[str]) -> None:
        self.query, self.near = query, near
        few = len(near) <= _FEW
        hint = f"did you mean {' or '.join(map(repr, near))}?" if few else f"known queries: {', '.join(near)}"
        super().__init__(f"unknown query {query!r}; {hint}")


class InvalidQueryParameter(ConfigurationError):
    """The named query `query` needs the parameter `parameter`, has no such parameter, or does not accept its value."""

    def __init__(self, query: str, parameter: str, message: str) -> None:
        self.query, self.parameter = query, parameter
        super().__init__(f"query {query}: parameter {parameter} {message}")


class ExportError(TensorTrialError, OSError):
    """The `target` of an export refused something, or cannot be reached."""

    def __init__(self, target: str, message: str) -> None:
        self.target = without_credentials(target)
        super().__init__(f"{target}: {message}")


class TableMismatch(ExportError, ValueError):
    """The target holds the table `table` with other columns; `difference` has one line for each."""

    def __init__(self, target: str, table: str, difference: list[str]) -> None:
        self.table, self.difference = table, difference
        lines = "".join(f"\n  {line}" for line in difference)
        super().__init__(
            target,
            f"the table {table} exists with other columns and was not changed; rename it, or choose another "
            f"target:{lines}",
        )


class StatisticsNotSaved(TensorTrialError, LookupError):
    """A named query needs a statistic that was not saved.

    The query `query` needs `statistic` of `tensors`. None of their `rows` rows has it; `raw` of them have a raw value.
    """

    def __init__(self, query: str, statistic: str, tensors: str, rows: int, raw: int) -> None:
        lacks = f"none of {rows} rows has it" if rows else "none were saved"
        advice = (
            "compute it with from_raw=True, or --from-raw at the command line"
            if raw
            else "see the view `collections` for what was saved"
            if not rows
            else f"save it with a ReductionConfig that has {statistic!r}"
        )
        super().__init__(f"{query} needs {statistic} of {tensors}, and {lacks}; {advice}")
        self.query, self.statistic, self.tensors, self.rows, self.raw = query, statistic, tensors, rows, raw


class MissingExtra(TensorTrialError, ImportError):
    """A feature needs an optional dependency that is not installed, or that cannot be imported."""

    def __init__(self, package: str, extra: str, purpose: str, state: str = "is not installed") -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{purpose} needs {package}, which {state}: pip install 'tensortrial[{extra}]'")


@contextmanager
def importing(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Raise MissingExtra for an import that fails in the block."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise MissingExtra(package, extra, purpose) from exc
    except ImportError as exc:
        raise MissingExtra(package, extra, purpose, f"cannot be imported ({exc})") from exc


class UnsupportedFramework(TensorTrialError, ImportError):
    """The library `package` has the version `version`, and its callback needs `oldest` or newer."""

    def __init__(self, package: str, version: str, oldest: str) -> None:
        self.package, self.version, self.oldest = package, version, oldest
        super().__init__(
            f"{package} {version} is too old for the callback of tensortrial, which needs {oldest} or newer: "
            f"pip install '{package}>={oldest}'"
        )


class RuleError(TensorTrialError):
    """An error of a rule."""


class RuleEvaluationConditionMet(RuleError):
    """The rule `rule_name` fired at `step`. Not a failure: it is how a rule reports."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule
        super().__init__(f"the condition of rule {rule_name} was met at step {step}")


class InsufficientInformationForRuleInvocation(RuleError, LookupError):
    """The run does not hold what the rule `rule_name` needs."""

    def __init__(self, rule_name: str, message: str) -> None:
        self.rule_name, self.message = rule_name, message
        super().__init__(f"rule {rule_name} cannot run: {message}")


class TrainingStopped(SystemExit):
    """A rule requested that the training of the run at `path` stop, for `reason`.

    It ends the training process as `sys.exit` would: no `except Exception` of a training loop stops it, `finally`
    blocks run, and the hook closes its run. The exit status is 3, so that a script does not go on as after a good
    training, and a launcher of many processes ends the others. A program that wants to go on after training catches
    it.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = without_credentials(path), reason
        super().__init__(3)

    def __str__(self) -> str:
        return f"training of {self.path} was stopped: {self.reason}"


def shown(value: Any) -> str:
    """Return the beginning of a value's repr, for a message."""
    return _text(value, repr)[:200]


def message_of(exc: BaseException) -> str:
    """Return the text of an error of any library."""
    return _text(exc, str)


def _text(value: Any, convert: Callable[[Any], str]) -> str:
    try:
        return convert(value)
    except Exception:  # noqa: BLE001 - of a foreign `__repr__` or `__str__`
        return f"a {type(value).__name__}"


def _rebuild(kind: type[TensorTrialError], args: tuple[Any, ...], attributes: dict[str, Any]) -> TensorTrialError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def _and(hint: str) -> str:
    return f": {hint}" if hint else ""


def _of(mode: Any) -> str:
    return "" if mode is None else f" of mode {getattr(mode, 'name', mode)}"
