"""Format 1: the names and the columns of a run on disk. `docs/format.md` is its specification."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from ..errors import NotARun, UnknownFormat
from ..statistics.definitions import STATISTICS
from .checksum import document_bytes
from .documents import Count, Described, Number, Time, check_value, from_object, read_document, read_object

FORMAT = 1
STEPS_PER_DIRECTORY = 1000
LENGTH_PREFIX = 4
"""Bytes before each value of a binary column: its length, little-endian."""
CODECS = ("none", "lz4", "zstd")
"""The codecs that may compress raw values."""

RUN_FILE = "run.json"
# A cache of the ends of all index files, once the run is closed.
MANIFEST = "manifest.parquet"
COLLECTIONS = "collections"
INDEX = "index"
TENSORS = "tensors"
END = "end"
# Marks all workers as ended, by another process that knows that the job has ended.
MARKED_END = f"{END}/_marked.json"
# Which processes write to the run.
LEASES = "leases"
# The findings of rules. Any number of processes may evaluate rules, and write them.
FINDINGS = "findings"
# Files that a repair has marked as lost.
LOST = "lost"
# A run of its own, whose steps are samples of system metrics.
SYSTEM = "system"
# Requests that the hooks of the run stop training at the next step.
STOP_FILE = "stop.json"
# Notes and tags that people give the run.
NOTES_FILE = "notes.json"

# Keys of an index file's Parquet footer.
FOOTER_FORMAT = b"tensortrial.format"
FOOTER_NAMES = b"tensortrial.names"
FOOTER_STEPS = b"tensortrial.steps"
FOOTER_CHUNKS = b"tensortrial.chunks"
# The worker's index file before this one.
FOOTER_PREVIOUS = b"tensortrial.previous"
FOOTER_GROUPS = b"tensortrial.row_groups"
FOOTER_EMPTY = b"tensortrial.empty_columns"
# In compacted files only: when the file was written, in seconds since 1970.
FOOTER_COMPACTED = b"tensortrial.compacted_at"

# The dtype and shape of an imported row for which the old run has only statistics.
UNKNOWN_DTYPE = "unknown"
UNKNOWN_SHAPE = (-1,)

_TEXT = pa.string()
_COMMON = (
    pa.field("name", _TEXT, nullable=False),
    pa.field("mode", _TEXT, nullable=False),
    pa.field("mode_step", pa.int64(), nullable=False),
    pa.field("global_step", pa.int64(), nullable=False),
    pa.field("worker", _TEXT, nullable=False),
    pa.field("dtype", _TEXT, nullable=False),
    pa.field("shape", pa.list_(pa.int64()), nullable=False),
)
"""The columns that chunks and index files share."""

TENSORS_SCHEMA = pa.schema(
    [
        *_COMMON,
        pa.field("part", pa.int32(), nullable=False),
        # Required, so that a page has no definition levels between its bytes.
        pa.field("value", pa.binary(), nullable=False),
    ]
)

HISTOGRAM = pa.struct([("edges", pa.list_(pa.float64())), ("counts", pa.list_(pa.int64()))])
SKETCH = pa.struct([("values", pa.list_(pa.float64())), ("counts", pa.list_(pa.int64()))])

INDEX_SCHEMA = pa.schema(
    [
        *_COMMON,
        pa.field("nbytes", pa.int64(), nullable=False),
        pa.field("saved_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("collections", pa.list_(_TEXT), nullable=False),
        pa.field("scalar", pa.float64()),
        *(pa.field(name, pa.float64()) for name in STATISTICS),
        pa.field("histogram", HISTOGRAM),
        pa.field("sketch", SKETCH),
        pa.field("chunk", _TEXT),
        pa.field("offset", pa.int64()),
        pa.field("row_group", pa.int32()),
        pa.field("row", pa.int32()),
        pa.field("parts", pa.int32()),
        pa.field("parameter", _TEXT),
        pa.field("digest", pa.uint64()),
        pa.field("order", pa.int32()),
    ]
)

FINDINGS_SCHEMA = pa.schema(
    [
        pa.field("rule", _TEXT, nullable=False),
        pa.field("step", pa.int64()),
        pa.field("mode", _TEXT),
        pa.field("worker", _TEXT),
        pa.field("tensor", _TEXT),
        pa.field("observed", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("sentence", _TEXT, nullable=False),
        pa.field("failed", pa.bool_(), nullable=False),
        pa.field("found_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


def chunk_folder(mode: str, directory: str, worker: str) -> str:
    """Return the folder of a worker's chunks. `directory` is a range of steps, such as `step=000000001000`."""
    return f"{TENSORS}/mode={mode}/{directory}/worker={path_component(worker)}"


def chunk_path(mode: str, mode_step: int, worker: str, flush: int, width: int = STEPS_PER_DIRECTORY) -> str:
    """Return the path of the raw values of one flush, relative to the run."""
    return f"{chunk_folder(mode, _directory(mode_step, width), worker)}/{flush:08d}.parquet"


@lru_cache(maxsize=1024)
def is_chunk_path(path: object) -> bool:
    """Return whether this may be the path of a chunk. A forged index could name a path outside the run."""
    if not isinstance(path, str) or not path.startswith(f"{TENSORS}/") or "\0" in path:
        return False
    return {"", ".", ".."}.isdisjoint(path.split("/"))


def is_chunk_of(path: str, worker: str) -> bool:
    """Return whether a chunk lies in a folder of the worker."""
    return is_chunk_path(path) and path.split("/")[-2] == f"worker={path_component(worker)}"


def index_folder(worker: str) -> str:
    """Return the folder of a worker's index, relative to the run."""
    return f"{INDEX}/worker={path_component(worker)}"


def index_path(worker: str, global_step: int, flush: int, width: int = STEPS_PER_DIRECTORY) -> str:
    """Return the path of the index rows of one flush, relative to the run. `global_step` is the first of the flush."""
    return f"{index_folder(worker)}/{_directory(global_step, width)}/{flush:08d}.parquet"


def collections_path(worker: str) -> str:
    """Return the path of a worker's claim, which lists its collections."""
    return f"{COLLECTIONS}/{path_component(worker)}.json"


def end_path(worker: str) -> str:
    """Return the path of the mark that a worker has ended."""
    return f"{END}/{path_component(worker)}.json"


def session_end_path(worker: str, session: int) -> str:
    """Return the path of the mark that one session of a worker has ended, because another one continues."""
    return f"{END}/{_of_session(worker, session)}"


def lost_path(path: str) -> str:
    """Return the path of the mark that a file of the run is lost."""
    return f"{LOST}/{xxh3_64_hexdigest(path.encode(errors='surrogateescape'))}.json"


def lease_path(worker: str, session: int) -> str:
    """Return the path of the lease of a worker's session."""
    return f"{LEASES}/{_of_session(worker, session)}"


def _of_session(worker: str, session: int) -> str:
    # No worker's name has a '=' once it is quoted.
    return f"{path_component(worker)}={session:08d}.json"


def worker_of(path: str) -> str:
    """Return the worker that a file such as `collections/worker_0.json` is named after."""
    return unquote(path.rpartition("/")[2].removesuffix(".json"))


def _check_path(path: str, expected: str, owner: str) -> None:
    if path != expected:
        raise ValueError(f"it names {owner}, whose file is {expected}")


def _directory(step: int, width: int) -> str:
    return f"step={step - step % width:012d}"


@lru_cache(maxsize=1024)
def path_component(worker: str) -> str:
    """Return a worker's name as one component of a path. A worker may be named after a device, with slashes."""
    quoted = quote(worker, safe="")
    # '..' would lead out of the run, and readers ignore names that begin with a dot.
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


@dataclass(frozen=True)
class RunInfo:
    """`run.json`: the identity of the run. Written once, by the first worker."""

    started_at: Time
    """ISO 8601 with time zone."""
    framework: str = ""
    num_workers: Count = 1
    codec: str = "none"
    steps_per_directory: Count = STEPS_PER_DIRECTORY
    versions: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The values that the user passed to the hook to be kept with the run."""
    id: str = field(kw_only=True)
    """Unique to this run and its copies."""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return document_bytes({"tensortrial": "run", **vars(self)})

    @classmethod
    def from_bytes(cls, data: bytes, url: str) -> RunInfo:
        """Return the document. Raises NotARun if it is not a run.json, UnknownFormat for a later format."""
        try:
            document = read_object(data)
            if document.get("tensortrial") != "run":
                raise ValueError("it was not written by tensortrial")
            # First of all: a later format may look entirely different.
            check_value("format", document.get("format"), int)
            if document["format"] > FORMAT:
                number = document["format"]
                raise UnknownFormat(
                    url, f"the run has format {number}, this release reads up to {FORMAT}: upgrade tensortrial"
                )
            if "created_at" in document:  # the key of runs before December 2026
                document.setdefault("started_at", document["created_at"])
            return from_object(document, cls)
        except UnknownFormat:
            raise
        except ValueError as exc:
            raise NotARun(url, f"its {RUN_FILE} cannot be read, so this is not a run: {exc}") from exc


@dataclass(frozen=True)
class CollectionInfo:
    """A collection in a worker's claim."""

    name: str
    include_regex: list[str] | None = None
    tensor_names: list[str] | None = None
    save_config: Mapping[str, Any] | None = None
    reduction_config: Mapping[str, Any] | None = None
    save_histogram: bool | str | None = None


@dataclass(frozen=True)
class EndInfo:
    """`end/WORKER.json`: a worker has ended. `end/_marked.json`: another process has marked all workers as ended."""

    ended_at: Time
    worker: str | None = None
    """None in `end/_marked.json`."""
    session: Number | None = None
    """The session that has ended; None in `end/_marked.json`, and of an importer, which holds no lease."""
    failure: str | None = None
    last_index_file: str | None = None
    """The path of the worker's last index file; empty if it has none, None if another process marked the end."""
    steps: Number | None = None
    """The number of global steps that the job had begun, whether they were saved or not."""

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> EndInfo:
        """Return the document in the file `path`.

        Raises:
            ValueError: It is damaged, or names another worker or session than the file does.
        """
        end = read_document(data, cls)
        if end.worker is not None and path != end_path(end.worker):
            _check_path(path, session_end_path(end.worker, end.session or 0), f"worker {end.worker!r}")
        return end


@dataclass(frozen=True)
class LostInfo:
    """`lost/….json`: a file of the run is damaged or missing, and a repair has recorded that."""

    path: str
    """The file that is lost, relative to the run."""
    reason: str
    marked_at: Time
    worker: str | None = None
    steps: list[Number] = field(default_factory=list)
    """The global steps that lost rows or values, if they are known."""
    tensors: list[str] = field(default_factory=list)
    """The tensors that lost rows or values, if they are known."""

    def to_bytes(self) -> bytes:
        return document_bytes(vars(self))

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> LostInfo:
        """Return the mark in the file `path`.

        Raises:
            ValueError: It is damaged, or is the mark of another file.
        """
        info = read_document(data, cls)
        _check_path(path, lost_path(info.path), info.path)
        return info


@dataclass(frozen=True)
class StopInfo:
    """`stop.json`: a rule requests that the job stop."""

    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError("reason must not be empty")


@dataclass(frozen=True)
class WorkerInfo:
    """`collections/WORKER.json`: a worker's claim of its name, and the collections that it saves."""

    worker: str
    num_workers: Count
    started_at: Time
    collections: list[Annotated[Mapping[str, Any], Described(CollectionInfo)]]
    include_collections: list[str] = field(default_factory=list)
    """The collections that are saved; a tensor outside of them is saved only by an explicit call."""
    session: Number = 0
    """0 for the job that began the run, plus one for each time that it was resumed."""
    first_global_step: Number = 0
    first_mode_steps: Mapping[str, Number] = field(default_factory=dict)
    """The steps at which the session began."""
    goes_back: bool = False
    """True if the session began at a checkpoint, before the last steps of earlier sessions."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The parts of the worker's environment that are kept."""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return document_bytes(vars(self))

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> WorkerInfo:
        """Return the claim in the file `path`.

        Raises:
            ValueError: It is damaged, or names another worker than the file does.
        """
        info = read_document(data, cls)
        _check_path(path, collections_path(info.worker), f"worker {info.worker!r}")
        return info


_NAME = re.compile(r"(?:.*/)?(\d{8,})(?:-(\d{8,}))?\.parquet", re.DOTALL)


class FlushRange(NamedTuple):
    """The numbers of the first and the last flush that a file holds. Between them numbers may be missing."""

    first: int
    last: int

    def supersedes(self, other: FlushRange) -> bool:
        """Return whether a file with these flushes supersedes one with the `other` flushes."""
        return self.first <= other.first and other.last <= self.last


def flush_range_of(path: str) -> FlushRange | None:
    """Return the flushes of `00000007.parquet` or `00000000-00000063.parquet`; None for a file of any other name."""
    found = _NAME.fullmatch(path)
    if found is None:
        return None
    first = int(found[1])
    return FlushRange(first, int(found[2] or first))


def flushes_in(path: str) -> FlushRange:
    """Return the flushes of a file whose name has their numbers."""
    flushes = flush_range_of(path)
    assert flushes is not None
    return flushes


class FirstFlush(NamedTuple):
    """The beginning of a worker's session in the run."""

    number: int = 0
    """The number of its first flush."""
    previous: str = ""
    """The path of the worker's index file before it, empty if there is none."""
    folder: str = ""
    """The last folder of the worker's index. Its files have greater names than all earlier ones."""


FROM_START = FirstFlush()


def range_path(first: str, last: str) -> str:
    """Return the path of a file that supersedes those from `first` to `last`, in their folder."""
    return f"{folder_of(first)}/{flushes_in(first).first:08d}-{flushes_in(last).last:08d}.parquet"


def folder_of(path: str) -> str:
    """Return the folder of a path, or an empty string if it has none."""
    return path.rpartition("/")[0]


def current_files(paths: Iterable[str]) -> list[str]:
    """Return the files that no other file of their folder supersedes, by folder and first flush.

    A file whose name is not a number neither supersedes others nor is superseded.
    """
    numbered, others, kept = list[tuple[str, int, int, str]](), list[str](), list[str]()
    for path in paths:
        if flushes := flush_range_of(path):
            numbered.append((folder_of(path), flushes.first, -flushes.last, path))
        else:
            others.append(path)
    wide_folder, wide = "", FlushRange(-1, -1)
    for folder, first, last, path in sorted(numbered):
        flushes = FlushRange(first, -last)
        if folder != wide_folder or not wide.supersedes(flushes):
            wide_folder, wide = folder, flushes
            kept.append(path)
    return sorted([*kept, *others]) if others else kept
