"""The small tables of a catalogue: index files, steps and names, as the footers of the index files summarize them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...engines.base import Database, Rows
from ...format import arrow_arrays
from ...format.index_log import NewFile
from ...format.index_types import NamedTensor, StepSummary

TEXTS = pa.list_(pa.string())
TABLES = {
    # Index files, one a flush.
    "files": pa.schema(
        [
            ("file_id", pa.int32()),
            ("run", pa.string()),
            ("path", pa.string()),
            ("worker", pa.string()),
            ("first_step", pa.int64()),
            ("last_step", pa.int64()),
        ]
    ),
    # Files of raw values that the index names.
    "chunks": pa.schema([("run", pa.string()), ("index_path", pa.string()), ("path", pa.string())]),
    # Tensors, with the collections they are part of.
    "names": pa.schema([("name_id", pa.int32()), ("name", pa.string()), ("collections", TEXTS)]),
    # Most steps hold the same tensors: a step refers to a set of names.
    "name_sets": pa.schema([("name_set", pa.int32()), ("name_id", pa.int32())]),
    "steps": pa.schema(
        [
            ("file_id", pa.int32()),
            ("worker", pa.string()),
            ("mode", pa.string()),
            ("mode_step", pa.int64()),
            ("global_step", pa.int64()),
            ("saved_at", pa.timestamp("us")),
            ("name_set", pa.int32()),
        ]
    ),
}


class IndexTables:
    """The tables `files`, `chunks`, `names`, `name_sets` and `steps` of a catalogue of one run or of many."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name_ids: dict[NamedTensor, int] = {}
        self._name_sets: dict[tuple[NamedTensor, ...], int] = {}
        self.num_files = 0
        """How many files were added."""
        self._last_steps: dict[tuple[str, str], int] = {}
        self.repeats_steps = False
        """Whether a worker may have saved a step twice: values were saved at a past step."""
        self.contradicts_steps = False
        """Whether a worker has saved a step again, in another mode or as another step of it, that the tables have."""

    def add(self, found: Mapping[str, Sequence[NewFile]], in_range: Callable[[int], bool] = lambda step: True) -> None:
        """Add the steps of new index files, by the names of their runs, as far as their global steps are in range."""
        files, steps, chunks = list[tuple[Any, ...]](), list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        names, name_sets = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        repeating: set[tuple[str, str]] = set()
        for run, (worker, path, summary, replaces) in ((name, file) for name in found for file in found[name]):
            kept = [step for step in summary.steps if in_range(step.global_step)]
            ids = {
                number: self._name_set_id(summary.name_sets[number], names, name_sets)
                for number in sorted({step.name_set for step in kept})
            }
            if replaces:
                known = self._steps_in(path)
                kept = [step for step in kept if (step.global_step, ids[step.name_set]) not in known]
            if not kept:
                continue
            self.num_files += 1
            if self._note_repeats((run, worker), kept):
                repeating.add((run, worker))
            first, last = (end(step.global_step for step in kept) for end in (min, max))
            files.append((self.num_files, run, path, worker, first, last))
            for mode, mode_step, global_step, saved_at, name_set in kept:
                steps.append((self.num_files, worker, mode, mode_step, global_step, saved_at, ids[name_set]))
            if not replaces:
                chunks += [(run, path, chunk) for chunk in summary.chunks]
        if repeating:
            self._find_contradictions(files, steps, repeating)
            files, steps = _without_contradicted(files, steps)
        with self._database.transaction():
            self._append("files", files)
            self._append("names", names)
            self._append("name_sets", name_sets)
            self._append("chunks", chunks)
            self._append("steps", steps)

    def replace(self, found: Sequence[NewFile], run: str = "") -> bool:
        """Refer to compacted files in place of those that they replace. Return whether there were any."""
        compacted = [file for file in found if file.replaces]
        for file in compacted:
            self._database.update("files", "path", file.replaces, file.path)
            self._database.delete("chunks", "index_path", file.replaces)
        self._append("chunks", [(run, file.path, chunk) for file in compacted for chunk in file.summary.chunks])
        return bool(compacted)

    def loses_steps(self, found: Sequence[NewFile]) -> bool:
        """Return whether a file lacks steps of those that it replaces: a job went back to an earlier step."""
        for file in found:
            held = {step.global_step for step in file.summary.steps}
            if any(step not in held for path in file.replaces for step, _ in self._steps_in(path)):
                return True
        return False

    def _steps_in(self, path: str) -> frozenset[tuple[int, int]]:
        """Return the known global steps of a file, with their name sets: those of the files that it replaced."""
        return frozenset((step, names) for step, names in self._database.fetch("steps_of_file", {"path": path}))

    def _note_repeats(self, worker: tuple[str, str], steps: Sequence[StepSummary]) -> bool:
        """Return whether a worker may have saved one of the steps before."""
        last, repeats = self._last_steps.get(worker, -1), False
        for step in steps:
            repeats |= step.global_step <= last
            last = max(last, step.global_step)
        self._last_steps[worker] = last
        self.repeats_steps |= repeats
        return repeats

    def _find_contradictions(self, files: Rows, steps: Rows, repeating: Collection[tuple[str, str]]) -> None:
        """Find out whether new rows of some workers, by run, contradict those that the tables have."""
        run_of = {file_id: run for file_id, run, *_ in files}
        for run, worker in repeating:
            new = {
                step: (mode, of)
                for file_id, of_worker, mode, of, step, *_ in steps
                if run_of[file_id] == run and of_worker == worker
            }
            parameters = {"run": run, "worker": worker, "first": min(new), "last": max(new)}
            for step, *known in self._database.fetch("modes_of_steps", parameters):
                self.contradicts_steps |= new.get(step, tuple(known)) != tuple(known)

    def _name_set_id(self, tensors: tuple[NamedTensor, ...], names: Rows, name_sets: Rows) -> int:
        number = self._name_sets.get(tensors)
        if number is None:
            number = self._name_sets[tensors] = len(self._name_sets)
            for tensor in tensors:
                name_id = self._name_ids.get(tensor)
                if name_id is None:
                    name_id = self._name_ids[tensor] = len(self._name_ids)
                    names.append((name_id, tensor.name, list(tensor.collections)))
                name_sets.append((number, name_id))
        return number

    def _append(self, table: str, rows: Rows) -> None:
        if rows:
            self._database.append(table, arrow_arrays.table(TABLES[table], rows))


def _without_contradicted(
    files: Sequence[tuple[Any, ...]], steps: Sequence[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the rows without the steps that their worker has saved again, in another mode or as another step of it.

    A job went back to a checkpoint, and a damaged file kept them from being set aside. As with values, the last one
    counts.
    """
    run_of = {file_id: run for file_id, run, *_ in files}
    last = {(run_of[row[0]], row[1], row[4]): row[2:4] for row in steps}
    steps = [row for row in steps if last[run_of[row[0]], row[1], row[4]] == row[2:4]]
    spans: dict[int, list[int]] = {}
    for row in steps:
        spans.setdefault(row[0], []).append(row[4])
    return [(*row[:4], min(spans[row[0]]), max(spans[row[0]])) for row in files if row[0] in spans], steps
