"""Flips bits of runs, one at a time, and asks for all that the flipped file tells: `make flips FLIPS=1000 SEED=1`.

A flip passes if each answer is right, or an error of this project, or lacks rows while `trial.damaged` names the file,
and if `verify` names the file. It fails on any other answer, on an exception of another project, and on the end of the
process. Some files are cut instead, and a manifest is also removed. `--every` flips every bit of small runs, and cuts
their files at every byte. `make flips FLIP=17 SEED=1` does one flip again.

With `--asked 50`, the checksums of the flipped file are verified by themselves, which takes a thousandth of the time.
Only where they do not refuse the file, and for one flip in 50, all is asked.
"""

from __future__ import annotations

import argparse
import logging
import mmap
import os
import pickle
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from samples import in_own_process, write_closed_run, write_run  # noqa: E402

import tensortrial  # noqa: E402
from support.runs import Job  # noqa: E402
from tensortrial.errors import CorruptFile, TensorTrialError  # noqa: E402
from tensortrial.format.checksum import check_file  # noqa: E402
from tensortrial.format.documents import read_object  # noqa: E402
from tensortrial.format.schema import MANIFEST  # noqa: E402
from tensortrial.maintenance.compaction import compact  # noqa: E402
from tensortrial.maintenance.notes import read_notes  # noqa: E402
from tensortrial.mode import ModeKeys  # noqa: E402
from tensortrial.rules.finding import Finding, FindingLog  # noqa: E402
from tensortrial.storage.open import Storage, open_storage  # noqa: E402

SECONDS = 120
"""For one flip. It takes a tenth of a second; a machine may be busy."""

Answers = dict[str, frozenset[Any] | None]
"""The rows of each answer; None where an error of this project was raised."""
Ask = Callable[[tensortrial.Trial], Iterable[Any]]


def _sql(query: str) -> Ask:
    return lambda trial: map(repr, trial.sql(query).fetchall())


def _values(trial: tensortrial.Trial) -> Iterator[Any]:
    for worker in trial.workers():
        for name, values in trial.values(trial.tensor_names(), worker=worker).items():
            yield from (
                (worker, name, step, str(each.dtype), each.shape, each.tobytes()) for step, each in values.items()
            )


def _first_values(trial: tensortrial.Trial) -> Iterator[Any]:
    for name in ("loss", "w"):
        tensor = trial.tensor(name)
        for step in tensor.steps(show_incomplete_steps=True):
            yield name, step, tensor.value(step).tobytes()


def _statistics(trial: tensortrial.Trial) -> Iterator[Any]:
    for name in ("norms", "w"):
        tensor = trial.tensor(name)
        for step in tensor.steps(show_incomplete_steps=True):
            yield name, step, repr(sorted(tensor.reduction_values(step).items())), repr(tensor.histogram(step))


INDEX: dict[str, Ask] = {
    "steps": lambda trial: [(mode.name, step) for mode in ModeKeys for step in trial.steps(mode, True)],
    "names": lambda trial: trial.tensor_names(),
    "values": _values,
    "first values": _first_values,
    "statistics": _statistics,
    "view tensors": _sql("select * from tensors"),
    "view reductions": _sql("select * from reductions"),
    "view steps": _sql("select * from steps"),
}
DOCUMENTS: dict[str, Ask] = {
    **{name: INDEX[name] for name in ("steps", "names", "view steps")},
    "collections": lambda trial: [
        (name, repr(each.include_regex), repr(each.tensor_names)) for name, each in trial.collections().items()
    ],
    "workers": lambda trial: trial.workers(),
    "ended": lambda trial: ["yes"] * trial.loaded_all_steps,
    "notes": lambda trial: [repr(read_notes(open_storage(trial.path)))],
    "view collections": _sql("select * from collections"),
}
QUESTIONS: dict[str, dict[str, Ask]] = {
    "index": INDEX,
    "tensors": {"values": _values, "view tensor_values": _sql("select * from tensor_values")},
    "findings": {"view findings": _sql("select * from findings")},
    "documents": DOCUMENTS,
    MANIFEST: {**INDEX, **DOCUMENTS},
}
"""What is asked after a flip in a file of a folder: all that reads this file."""


def kind_of(path: str) -> str:
    folder = path.partition("/")[0]
    return folder if folder in QUESTIONS else "documents"


def is_refused(path: str, data: bytes) -> bool:
    """Return whether the checks that a file passes before it is read refuse these bytes."""
    try:
        if path.endswith(".json"):
            read_object(data)
        else:
            check_file(path, data)
    except (CorruptFile, ValueError):
        return True
    return False


def ask(run: str, kind: str) -> tuple[Answers, bool]:
    """Return the answers of a run, and whether it names a damaged file."""
    answers: Answers = dict.fromkeys(QUESTIONS[kind])
    try:
        with tensortrial.create_trial(run) as trial:
            for name, question in QUESTIONS[kind].items():
                try:
                    answers[name] = frozenset(question(trial))
                except TensorTrialError:
                    continue
            return answers, bool(trial.damaged)
    except TensorTrialError:
        return answers, True


def names_damage(run: str, file: str) -> bool:
    """Return whether `verify` names a damaged file, or raises an error of this project."""
    try:
        return file in [each.path for each in tensortrial.verify(run).damaged]
    except TensorTrialError:
        return True


@dataclass
class Template:
    run: Path
    files: list[str]
    is_remote: bool = False
    """True for a run that is read in an object store, as only such runs are opened by their manifest."""
    truth: dict[str, Answers] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Path) -> Template:
        files = sorted(file.relative_to(run).as_posix() for file in run.rglob("*") if file.is_file())
        made = cls(run, files, MANIFEST in files)
        url = made.copy(run.parent / "asked").url
        for kind in QUESTIONS:
            made.truth[kind], damaged = ask(url, kind)
            assert not damaged
            assert None not in made.truth[kind].values(), (kind, made.truth[kind])
        return made

    def copy(self, folder: Path) -> Storage:
        """Copy the run into a folder, or into the memory of this process."""
        storage = open_storage(f"memory://{self.run.name}" if self.is_remote else folder / self.run.name)
        for file in self.files:
            storage.replace(file, (self.run / file).read_bytes())
        return storage


def write_templates(folder: Path, every: bool) -> list[Template]:
    if every:
        run = folder / "tiny"
        with Job(run, flush_seconds=3600) as job:
            job.step({"loss": 0.5, "w": ({"statistics": ("min",), "histogram": True}, np.arange(3.0))})
            job.step({"norms": ({"raw": False, "statistics": ("l2",)}, np.arange(3.0))})
        log = FindingLog(job.storage)
        log.add([Finding("r", None, None, None, None, None, None, "s")])
        log.flush()
        return [Template.of(run), Template.of(write_closed_run(folder / "tiny-closed", steps=1))]
    runs = [write_run(folder / "plain"), write_run(folder / "two", workers=2), write_run(folder / "zstd", codec="zstd")]
    runs.append(write_run(folder / "compacted", codec="lz4"))
    compact(runs[-1], delete_older_than=0)
    runs += [_write_larger(folder / "larger"), write_closed_run(folder / "closed")]
    return [Template.of(run) for run in runs]


def _write_larger(run: Path) -> Path:
    """Write files of several blocks."""
    rng = np.random.default_rng(3)
    with Job(run, flush_seconds=3600) as job:
        for _ in range(2):
            values = {f"many{number}": ({"statistics": ("min", "l2")}, rng.normal(size=3)) for number in range(3000)}
            job.publish(
                {
                    "loss": 1.0,
                    "norms": ({"raw": False, "statistics": ("l2",)}, np.ones(3)),
                    "w": rng.normal(size=30_000),
                    **values,
                }
            )
    return run


CUT, REMOVED = 8, 9


@dataclass(frozen=True)
class Flip:
    template: int
    file: str
    position: int
    bit: int
    """Of the byte at the position; CUT if the file ends before it, REMOVED if there is no file."""

    def apply(self, good: bytes) -> bytes | None:
        """Return the damaged file; None if it is removed."""
        if self.bit == REMOVED:
            return None
        if self.bit == CUT:
            return good[: self.position]
        bad = bytearray(good)
        bad[self.position] ^= 1 << self.bit
        return bytes(bad)


_KINDS = {"index": 9, "tensors": 6, "documents": 5, "findings": 1, MANIFEST: 4}


def random_flip(number: int, seed: int, templates: list[Template]) -> Flip:
    rng = Random(f"{seed} {number}")
    (kind,) = rng.choices(list(_KINDS), list(_KINDS.values()))
    chosen, file = rng.choice(
        [(at, file) for at, template in enumerate(templates) for file in template.files if kind_of(file) == kind]
    )
    size = (templates[chosen].run / file).stat().st_size
    # Half of them near the end: footers say where all else is.
    first = max(0, size - 4000) if rng.random() < 0.5 else 0
    # Without its manifest, a run is listed, and nothing is lost.
    bits = [*range(8), CUT, *([REMOVED] if file == MANIFEST else [])]
    return Flip(chosen, file, rng.randrange(first, size), rng.choice(bits))


def every_flip(templates: list[Template]) -> list[Flip]:
    return [
        Flip(number, file, position, bit)
        for number, template in enumerate(templates)
        for file in template.files
        for position in range((template.run / file).stat().st_size)
        for bit in (*range(8), CUT)
    ]


@dataclass
class Totals:
    flips: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        self.flips += other.flips
        self.named += other.named
        self.asked += other.asked
        self.failures += other.failures


def try_flip(flip: Flip, template: Template, run: Storage, totals: Totals, again: str, is_asked: bool = True) -> None:
    """Flip a bit in a copy of a run, ask unless the file is refused and `is_asked` is false, and put it right again."""
    kind = kind_of(flip.file)
    good = (template.run / flip.file).read_bytes()
    bad = flip.apply(good)
    is_whole = bad is None or (flip.file.endswith(".json") and not is_refused(flip.file, bad))
    totals.flips[kind] += 1
    if not is_asked and bad is not None and is_refused(flip.file, bad):
        totals.named[kind] += 1
        return
    if bad is None:
        run.remove(flip.file)
    else:
        run.replace(flip.file, bad)
    done = {CUT: "the end at", REMOVED: "no file instead of"}.get(flip.bit, f"bit {flip.bit} of")
    what = f"{done} byte {flip.position} of {len(good)} of {template.run.name}/{flip.file}"
    totals.asked += 1
    try:
        answers, damaged = ask(run.url, kind)
        wrong = [
            name
            for name, truth in template.truth[kind].items()
            if (got := answers[name]) is not None
            and got != truth
            and not (damaged and truth is not None and got < truth)
        ]
        totals.named[kind] += damaged or None in answers.values()
        if wrong:
            totals.failures.append(f"{what}: wrong without a sign: {', '.join(wrong)}\n{again}")
        if not is_whole and not names_damage(run.url, flip.file):
            totals.failures.append(f"{what}: verify does not name the file\n{again}")
    except Exception:  # noqa: BLE001 - reported
        totals.failures.append(f"{what}\n{traceback.format_exc()}{again}")
    finally:
        run.replace(flip.file, good)


class Worker:
    """A process that does some of the flips. If it dies, another goes on after the flip at which it died."""

    def __init__(
        self,
        folder: Path,
        templates: list[Template],
        numbers: Sequence[int],
        flip_of: Callable[[int], Flip],
        deadline: float,
        selection: Selection,
    ) -> None:
        self._folder, self._templates, self._numbers, self._flip_of = folder, templates, numbers, flip_of
        self._deadline, self._selection = deadline, selection
        self._at = mmap.mmap(-1, 8)
        self.totals = Totals()
        self._begin(0)

    def _begin(self, first: int) -> None:
        self._result = self._folder / "result.pickle"
        self._process = os.fork()
        if not self._process:
            try:
                self._work(first)
            except BaseException:  # noqa: BLE001 - the process ends
                traceback.print_exc()
                os._exit(1)
            os._exit(0)

    def _work(self, first: int) -> None:
        logging.disable()
        runs = [each.copy(self._folder) for each in self._templates]
        totals = Totals()
        for index in range(first, len(self._numbers)):
            if time.monotonic() > self._deadline:
                break
            self._at[:] = struct.pack("<q", index)
            signal.alarm(SECONDS)
            flip = self._flip_of(number := self._numbers[index])
            template, run = self._templates[flip.template], runs[flip.template]
            is_asked = index % self._selection.asked == 0
            try_flip(flip, template, run, totals, self._selection.again(number), is_asked)
            if index % 50 == 49:
                self._result.write_bytes(pickle.dumps(totals))
        signal.alarm(0)
        self._result.write_bytes(pickle.dumps(totals))

    def wait(self) -> Totals:
        while True:
            _, status = os.waitpid(self._process, 0)
            if self._result.exists():
                done = pickle.loads(self._result.read_bytes())
                self._result.unlink()
                self.totals.add(done)
            if not status:
                return self.totals
            index = struct.unpack("<q", self._at[:])[0]
            flip = self._flip_of(self._numbers[index])
            self.totals.failures.append(
                f"ended the process with {os.waitstatus_to_exitcode(status)}: {flip}\n"
                + self._selection.again(self._numbers[index])
            )
            if index + 1 == len(self._numbers):
                return self.totals
            self._begin(index + 1)


@dataclass(frozen=True)
class Selection:
    """Which flips are done."""

    count: int
    seed: int = 1
    """Of the random ones, or of the order."""
    every: bool = False
    """The bits of a small run, each once, instead of random ones."""
    first: int = 0
    step: int = 1
    """Only each so many."""
    asked: int = 1
    """Of how many flips that the checks of the file refuse, one is asked about."""

    def again(self, number: int) -> str:
        """Return the command that does a flip again."""
        return f"again: make flips FLIP={number}{' EVERY=1' if self.every else ''} SEED={self.seed}"


def run_flips(selection: Selection, processes: int = 2, seconds: float = float("inf")) -> Totals:
    """Flip bits in several processes, which begin flips for so many seconds, and return what was found."""
    totals = Totals()
    with tempfile.TemporaryDirectory(
        prefix="tensortrial-flips-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as folder:
        templates = in_own_process(lambda: write_templates(Path(folder), selection.every), Path(folder))
        all_flips = every_flip(templates) if selection.every else []
        end = len(all_flips) if selection.every else selection.first + selection.count * selection.step
        numbers: Sequence[int] = range(selection.first, end, selection.step)[: selection.count]
        if selection.every:  # in any order: there may not be time for all
            numbers = Random(selection.seed).sample(numbers, len(numbers))
        flip_of = (
            all_flips.__getitem__ if selection.every else lambda number: random_flip(number, selection.seed, templates)
        )
        workers, deadline = [], time.monotonic() + seconds  # what it takes to write runs is no time for flips
        for number in range(processes):
            (own := Path(folder) / f"worker{number}").mkdir()
            workers.append(Worker(own, templates, numbers[number::processes], flip_of, deadline, selection))
        for worker in workers:
            totals.add(worker.wait())
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--every", action="store_true", help="every bit of a small run instead of random ones")
    parser.add_argument("--step", type=int, default=1, help="only each so many")
    parser.add_argument("--asked", type=int, default=1, help="of how many refused files one is asked about")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for how long flips are begun")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    begun = time.monotonic()
    selection = Selection(given.flips, given.seed, given.every, given.first, given.step, given.asked)
    totals = run_flips(selection, given.processes, given.seconds)
    for failure in totals.failures:
        print(failure)
    print(
        f"{totals.flips.total()} flips in {time.monotonic() - begun:.0f} s ({dict(totals.flips)}), "
        f"{totals.asked} asked about; {totals.named.total()} named, {len(totals.failures)} failed"
    )
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
