"""The export into event files for TensorBoard: `tensorboard:FOLDER`.

FOLDER may be a URL such as s3://bucket/shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ExportError, StorageError
from ...format.arrow_arrays import encoded, numbers
from ...format.documents import read_object
from ...format.schema import path_component
from ...mode import ModeKeys
from ...statistics.definitions import STATISTICS
from ...storage.open import Sink, Storage
from ...tfevents.summary import first_event
from ...tfevents.tfrecord import framed
from ..binary_copy import content
from ..event_records import event_records
from ..tables import SCHEMAS
from ..target import Held, Part, Position, Replacement, Target, reader_of, with_part
from .folder import open_folder

_LEDGER = "exported.json"
_NO_RUNS = {_LEDGER, *(mode.name.lower() for mode in ModeKeys)}
_FIRST_WORKER = "worker_0"
_FILE = re.compile(r"events\.out\.tfevents\.(\d+)-\d+")
_ROWS, _BYTES = 1 << 13, 1 << 28
"""The most rows whose events are made at once, and about the most bytes of these events."""


class TensorBoardFolder(Target):
    """A folder of event files for each mode of each run, with the content of the table `tensors`.

    The files of a part are named after its steps. `exported.json` next to a run's folders lists the exported steps. The
    next export replaces files with later steps, which an interrupted export left, and files of steps that no longer
    count, because the run went back. Options are those of fsspec.
    """

    derives = frozenset(SCHEMAS) - {"tensors", "tensor_values"}

    def __init__(self, url: str, **storage_options: Any) -> None:
        self._storage = open_folder(url, storage_options, "logs")

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        if "tensor_values" in tables:
            raise ExportError(self._storage.url, "TensorBoard shows no raw values: leave out the table tensor_values")

    def held(self, runs: Sequence[str]) -> dict[str, Held]:
        found = {}
        with self._refusals():
            for run in runs:
                with suppress(FileNotFoundError):
                    found[run] = self._noted(_folder(run))
        return found

    def _noted(self, folder: str) -> Held:
        try:
            noted = read_object(self._storage.read_document(f"{folder}/{_LEDGER}"))
            parts = {
                Position("tensors", worker): {int(step): str(digest) for step, digest in steps.items()}
                for worker, steps in noted["digests"].items()
            }
            return Held(noted["identity"], parts)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise ExportError(
                self._storage.url, f"{folder}/{_LEDGER} is damaged: {exc}; delete the run's folder and export it again"
            ) from exc

    def names(self) -> set[tuple[str, str]]:
        with self._refusals():
            return set(self._names_in(""))

    def _names_in(self, folder: str) -> Iterator[tuple[str, str]]:
        entries = self._storage.list(folder)
        if _LEDGER in entries:
            yield self._noted(folder).identity, "/".join(map(unquote, folder.split("/")))
        # The folder of a run may contain other runs.
        for entry in entries:
            if entry not in _NO_RUNS and not _FILE.fullmatch(entry):
                yield from self._names_in(f"{folder}/{entry}" if folder else entry)

    def write(self, parts: Sequence[Part]) -> None:
        with self._refusals():
            for part in parts:
                # An interrupted export left later files, or their steps no longer count.
                self._remove_files(part.run, part.worker, part.after)
                files = _PartFiles(self._storage, part)
                try:
                    for batch in reader_of([part], encoded(part.schema)):
                        files.add(batch)
                    files.publish()
                finally:
                    files.abort()
                self._note(part)

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        """Do nothing: TensorBoard shows no small table."""

    def remove(self, run: str) -> None:
        with self._refusals():
            for at in self._noted(_folder(run)).digests:
                self._remove_files(run, at.worker, after=-1)
            self._storage.remove(f"{_folder(run)}/{_LEDGER}")

    def _remove_files(self, run: str, worker: str, after: int) -> None:
        """Remove the files of steps after a global step."""
        for mode in ModeKeys:
            folder = _mode_folder(run, worker, mode.name)
            for name in self._storage.list(folder):
                found = _FILE.fullmatch(name)
                if found and int(found[1]) > after:
                    self._storage.remove(f"{folder}/{name}")

    def _note(self, part: Part) -> None:
        held = self.held([part.run])
        parts = dict(held[part.run].digests) if held else {}
        at = Position("tensors", part.worker)
        parts[at] = with_part(parts.get(at, {}), part)
        noted = {"identity": part.identity, "digests": {at.worker: steps for at, steps in parts.items()}}
        self._storage.replace(f"{_folder(part.run)}/{_LEDGER}", json.dumps(noted, indent=1).encode())

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except StorageError as exc:
            raise ExportError(self._storage.url, str(exc)) from exc


def _folder(run: str) -> str:
    return "/".join(path_component(part) for part in run.split("/") if part)


def _mode_folder(run: str, worker: str, mode: str) -> str:
    """Return the folder of a mode's event files. The first worker, often the only one, has no folder of its own."""
    own = "" if worker == _FIRST_WORKER else f"/{path_component(worker)}"
    return f"{_folder(run)}{own}/{mode.lower()}"


class _PartFiles:
    """The event files of one part, one for each mode."""

    def __init__(self, storage: Storage, part: Part) -> None:
        self._storage = storage
        self._part = part
        self._sinks: dict[str, Sink] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the events of rows of the table `tensors`, whose texts are dictionaries."""
        longest = pc.max(pc.binary_length(batch["name"].dictionary)).as_py() or 0
        most = max(1, min(_ROWS, _BYTES // (len(STATISTICS) * (longest + 64))))
        for begin in range(0, len(batch), most):
            rows = batch.slice(begin, most)
            records, of_row = event_records(rows, self._part.names())
            modes = rows["mode"].take(numbers(of_row, pa.int64()))
            for mode in modes.unique().to_pylist():
                self._sink(mode).file.write(content(records.filter(pc.equal(modes, mode))))

    def publish(self) -> None:
        for sink in self._sinks.values():
            sink.publish()

    def abort(self) -> None:
        for sink in self._sinks.values():
            sink.abort()

    def _sink(self, mode: str) -> Sink:
        if mode not in self._sinks:
            folder = _mode_folder(self._part.run, self._part.worker, mode)
            path = f"{folder}/events.out.tfevents.{self._part.name}"
            self._sinks[mode] = self._storage.sink(path)
            self._sinks[mode].file.write(framed([first_event(0.0)]))
        return self._sinks[mode]
