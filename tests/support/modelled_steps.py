"""Runs of random steps, as a list of all their rows: a model for what `SavedSteps` says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from support.runs import EVAL, GLOBAL, TRAIN
from tensortrial.format.index_types import IndexSummary, NamedTensor, StepSummary
from tensortrial.mode import ModeKeys
from tensortrial.snapshot.index_files import IndexFile
from tensortrial.snapshot.saved_steps import SavedSteps, StepRange, is_in_range

WORKERS = ["w0", "w1", "w2"]
STEPS = 8
A, B, C = NamedTensor("a", ("x",)), NamedTensor("b", ("x", "y")), NamedTensor("c", ())
SETS = [(A,), (A, B), (B, C), (NamedTensor("a", ("z",)), C)]


class Row(NamedTuple):
    """A step of a worker, as the model keeps it."""

    worker: str
    mode: ModeKeys
    mode_step: int
    global_step: int
    saved_at: int
    tensors: tuple[NamedTensor, ...]
    flush: int
    """Counts the flushes of all workers."""


def unique(found: Iterable[Any]) -> list[Any]:
    """Return each of some objects once, where it came first."""
    return list(dict.fromkeys(found))


def index_file(path: str, rows: Sequence[Row], replaces: Iterable[str] = ()) -> IndexFile:
    sets = list(dict.fromkeys(row.tensors for row in rows))
    steps = [
        StepSummary(row.mode.name, row.mode_step, row.global_step, row.saved_at, sets.index(row.tensors))
        for row in rows
    ]
    return IndexFile(rows[0].worker, path, IndexSummary(len(rows), steps, sets, [f"chunk of {path}"], ""), [*replaces])


class Model:
    """A run that grows: steps of `SavedSteps` and the rows that they must have, each with its file."""

    def __init__(self, range_steps: StepRange | None) -> None:
        self.range_steps = range_steps
        self.saved = SavedSteps()
        self.rows: list[tuple[str, Row]] = []

    def add(self, files: Sequence[tuple[str, list[Row]]]) -> None:
        self.saved = self.saved.added([index_file(path, rows) for path, rows in files], self.range_steps)
        for path, rows in files:
            self._keep(path, rows)

    def compact(self, path: str, rows: list[Row], replaces: list[str]) -> None:
        """Replace files by one, which may hold rows that are new."""
        file = index_file(path, rows, replaces)
        assert not self.saved.lack([file])
        self.saved = self.saved.compacted([file])
        self.rows = [(path if old in replaces else old, row) for old, row in self.rows]
        self.check_rows()  # those that are new wait
        self.saved = self.saved.added([file], self.range_steps)
        known = [row for _, row in self.rows]
        self._keep(path, [row for row in rows if row not in known])

    def _keep(self, path: str, rows: Iterable[Row]) -> None:
        for row in rows:
            if self.range_steps is None or is_in_range(row.global_step, self.range_steps):
                self.rows.append((path, row))

    def check_rows(self) -> None:
        """Check that the steps have exactly the rows of the model, in their order."""
        saved, rows = self.saved, [row for _, row in self.rows]
        columns = ["run", "mode", "mode_step", "global_step", "worker", "num_tensors"]
        names: dict[tuple[str, int], set[str]] = {}
        for row in rows:
            names.setdefault((row.worker, row.global_step), set()).update(dict(row.tensors))
        last = {(row.worker, row.global_step): row for row in rows}
        assert [tuple(row[name] for name in columns) for row in saved.table("r").to_pylist()] == [
            ("r", row.mode.name, row.mode_step, row.global_step, row.worker, len(names[row.worker, row.global_step]))
            for row in rows
            if row is last[row.worker, row.global_step]
        ]
        assert saved.columns.saved_at.tolist() == [row.saved_at for row in rows]
        assert [saved.name_sets[number] for number in saved.columns.name_set.tolist()] == [row.tensors for row in rows]
        assert [saved.paths[number] for number in saved.columns.file.tolist()] == [path for path, _ in self.rows]
        assert saved.files() == [path for path, _, _ in saved.spans] == unique(path for path, _ in self.rows)
        assert saved.chunk_paths() == [f"chunk of {path}" for path in sorted(saved.files(), key=[*saved.chunks].index)]

    def of(self, mode: ModeKeys) -> list[tuple[int, str, Row]]:
        """Return the rows of a mode, each with its step of that mode and its file."""
        return [
            (row.global_step if mode is GLOBAL else row.mode_step, path, row)
            for path, row in self.rows
            if mode in (GLOBAL, row.mode)
        ]


@st.composite
def models(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Model:
    """Return a run whose workers may go through modes differently, save steps again and be compacted."""
    bound = st.none() | st.integers(0, STEPS)
    model = Model(draw(st.none() | st.tuples(bound, bound)))
    modes = {name: draw(st.lists(st.sampled_from([TRAIN, EVAL]), min_size=STEPS, max_size=STEPS)) for name in WORKERS}
    if draw(st.booleans()):
        modes = dict.fromkeys(WORKERS, modes["w0"])
    files: dict[str, list[tuple[str, list[Row]]]] = {name: [] for name in WORKERS}
    seen: dict[str, int] = dict.fromkeys(WORKERS, 0)
    step = st.tuples(st.integers(0, STEPS - 1), st.integers(0, 9), st.sampled_from(SETS))
    flush = st.tuples(st.sampled_from(WORKERS), st.lists(step, min_size=1, max_size=4), st.sampled_from("hfffffc"))
    for number, (worker, steps, then) in enumerate(draw(st.lists(flush, max_size=9))):
        rows = [
            Row(
                worker, mode := modes[worker][at], modes[worker][:at].count(mode), at, saved_at, tensors, number * 9 + i
            )
            for i, (at, saved_at, tensors) in enumerate(sorted(steps, key=lambda each: each[0]))
        ]
        own = files[worker]
        own.append((f"{worker}/{number}", rows))
        if then == "f":  # otherwise the reader does not see it yet
            model.add(own[seen[worker] :])
            seen[worker] = len(own)
        elif then == "c" and seen[worker]:
            first = draw(st.integers(0, seen[worker] - 1))
            end = draw(st.integers(first + 1, seen[worker]))
            end = len(own) if end == seen[worker] else end  # with all that the reader does not see yet
            merged = [row for _, rows in own[first:end] for row in rows]
            path = f"{worker}/{first}-{number}"
            model.compact(path, merged, [old for old, _ in own[first : min(end, seen[worker])]])
            own[first:end] = [(path, merged)]
            seen[worker] = len(own) if end >= seen[worker] else seen[worker] - (end - first) + 1
    return model
