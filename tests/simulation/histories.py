"""Histories of a run, each from one seed: who does what when, and what goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

from simulation.actors import Reader, Training, Worker, compactor, marker, repairer
from simulation.faults import FaultAt, NoFaults, Plan, RandomFaults, faults_at
from simulation.model import Model
from simulation.scheduler import Process
from simulation.world import World
from tensortrial.mode import ModeKeys

_LONGEST_SECONDS = 4000.0
_TRAIN = (ModeKeys.TRAIN,)


@dataclass
class Outcome:
    """What a history went through."""

    calls: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    published: int = 0
    """How many steps were published, each once for each worker."""
    histories: int = 1

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.calls + other.calls,
            self.failed + other.failed,
            self.checks + other.checks,
            self.published + other.published,
            self.histories + other.histories,
        )


class Operator:
    """Starts the processes of a history, waits for them, and compares the run with the model at the end."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.model = world, Model(world)
        self._seed = seed
        self._started = 0
        world.on_cut = self.model.power_was_cut
        self.calls = 0
        """The number of calls before `finish`."""

    def rng(self) -> Random:
        """Return a generator for one more actor."""
        self._started += 1
        return Random(f"{self._seed} {self._started}")

    def worker(self, training: Training) -> Process:
        return self._start(f"worker_{training.rank}", Worker(self.world, self.model, training, self.rng()).run)

    def reader(self, looks: int, pause_seconds: float, audits: bool = False) -> Process:
        return self._start("reader", Reader(self.world, self.model, self.rng(), looks, pause_seconds, audits).run)

    def compactor(self, delete_older_than: float, times: int = 1, pause_seconds: float = 0.0) -> Process:
        return self._start("compactor", compactor(self.world, self.model, delete_older_than, times, pause_seconds))

    def repairer(self, delete_older_than: float, pause_seconds: float = 0.0) -> Process:
        return self._start("repairer", repairer(self.world, self.model, delete_older_than, pause_seconds))

    def marker(self, worker: str | None) -> Process:
        return self._start("marker", marker(self.world, self.model, worker))

    def _start(self, name: str, run: Callable[[], None]) -> Process:
        return self.world.scheduler.start(name, run)

    def wait_for(self, *processes: Process) -> None:
        """Wait until processes have ended; kill those that do not."""
        scheduler = self.world.scheduler
        scheduler.wait(lambda: not any(each.alive for each in processes), _LONGEST_SECONDS)
        for process in processes:
            process.kill()

    def check(self) -> None:
        """Compare what a new reader sees with the model."""
        self.wait_for(self.reader(looks=1, pause_seconds=1.0, audits=True))

    def finish(self, size: int = 1) -> None:
        """Let nothing more go wrong; then read, compact, resume and read again."""
        self.calls = self.world.calls
        self.world.plan = NoFaults()
        self.check()
        self.wait_for(self.compactor(delete_older_than=0))
        self.wait_for(self.repairer(delete_older_than=0))
        again = Training(steps=2, size=size, resume=True, flush_every=1)
        self.wait_for(*[self.worker(replace(again, rank=rank)) for rank in range(size)])
        self.check()


Story: TypeAlias = Callable[[Operator], None]


def run(seed: int, is_local: bool, plan: Plan, story: Story) -> tuple[World, Outcome, BaseException | None]:
    """Run a history. Return its world, what it went through, and the error that shows something to be wrong."""
    rng = Random(f"world {seed}")
    knobs = {"block": rng.choice([2, 4, 64]), "few_files": rng.choice([1, 4]), "width": rng.choice([2, 5, 1000])}
    world = World(rng, is_local, rng.choice([0.0, 0.5, 0.9, 0.98]), knobs)
    world.plan = plan
    operator = Operator(world, seed)
    error: BaseException | None = None
    with world.patched():
        world.scheduler.start("operator", lambda: story(operator))
        try:
            world.scheduler.run()
        except Exception as exc:  # noqa: BLE001 - returned
            error = exc
    model = operator.model
    return world, Outcome(operator.calls, world.failed, model.checks, len(model.expected())), error


def shortest(operator: Operator) -> None:
    """A worker saves two steps, and compacts its index as it closes."""
    operator.wait_for(operator.worker(Training(steps=2, flush_every=1, flush_seconds=0.0)))
    operator.finish()


def short(operator: Operator) -> None:
    """A worker saves three steps, while another process reads and a third compacts; then a worker resumes the run."""
    worker = operator.worker(Training(steps=3, flush_every=1, flush_seconds=0.0))
    reader = operator.reader(looks=3, pause_seconds=1.0)
    operator.wait_for(worker)
    compactor = operator.compactor(delete_older_than=0)
    operator.wait_for(reader, compactor)
    operator.finish()


def unflushed(operator: Operator) -> None:
    """A worker publishes its two steps only when it closes."""
    operator.wait_for(operator.worker(Training(steps=2, flush_seconds=3600.0)))
    operator.finish()


def overtaken(operator: Operator) -> None:
    """While a worker trains, another process takes the run over from it."""
    steady = Training(steps=6, flush_every=1, flush_seconds=0.0, pause_seconds=2.0, modes=_TRAIN)
    first = operator.worker(steady)
    operator.world.scheduler.sleep(2.0 + operator.rng().random())
    operator.wait_for(first, operator.worker(replace(steady, resume=True, force=True)))
    operator.finish()


def compacted(operator: Operator) -> None:
    """A run that has long been durable is compacted, and then resumed."""
    operator.wait_for(operator.worker(Training(steps=5, flush_every=1, flush_seconds=0.0, modes=_TRAIN, end="kill")))
    operator.world.scheduler.sleep(100.0)
    operator.wait_for(operator.compactor(delete_older_than=0))
    operator.finish()


LONGER: tuple[Story, ...] = (short, unflushed, overtaken, compacted)
"""The written histories that are too long to let each of their calls fail in a build."""

KINDS = ("crash", "error", "cut", "slow", "old")
"""The kinds of faults."""


def long(operator: Operator) -> None:
    """Some sessions of some workers, which overlap, go back and end in any way; readers, compactions, repairs."""
    rng, world = operator.rng(), operator.world
    size = rng.choice([1, 1, 1, 2, 3])
    durable = operator.model.durable = rng.random() < 0.5
    background = [operator.reader(rng.randint(2, 4), rng.choice([0.5, 5.0, 60.0])) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.6:
        background.append(operator.compactor(rng.choice([0.0, 5.0, 60.0]), rng.randint(1, 3), rng.choice([0.5, 20.0])))
    if rng.random() < 0.3:
        background.append(operator.repairer(rng.choice([200.0, 3600.0]), rng.choice([0.5, 20.0, 200.0])))
    jobs: list[Process] = []
    for session in range(rng.randint(1, 3)):
        modes = tuple(rng.choices([ModeKeys.TRAIN, ModeKeys.EVAL], k=rng.randint(0, 3)))
        back = rng.randint(0, 6) if session and rng.random() < 0.3 else None
        same = Training(size=size, resume=session > 0, resume_at=back, modes=modes, durable=durable)
        job = [operator.worker(_training(rng, replace(same, rank=rank))) for rank in range(size)]
        jobs += job
        if rng.random() < 0.7:
            operator.wait_for(*job)
        else:
            world.scheduler.sleep(rng.choice([0.5, 3.0, 100.0]))
        if rng.random() < 0.2:
            rng.choice(job).kill()
        if rng.random() < 0.15:
            background.append(operator.marker(rng.choice([None, "worker_0"])))
        if world.disk.is_local and rng.random() < 0.2:
            world.cut_power()
    operator.wait_for(*jobs, *background)
    operator.finish(size)


def _training(rng: Random, training: Training) -> Training:
    return replace(
        training,
        steps=rng.randint(1, 7),
        force=rng.random() < 0.3,
        flush_seconds=rng.choice([None, 0.0, 1.0, 3600.0]),
        codec=rng.choice(["none", "none", "zstd"]),
        flush_every=rng.choice([0, 1, 3]),
        pause_seconds=rng.choice([0.1, 2.0, 30.0]),
        end=rng.choice(["close", "close", "kill", "hang"]),
    )


def run_world(seed: int) -> tuple[World, BaseException | None]:
    """Run the long history of a seed. Return its world, and the error that shows something to be wrong."""
    world, _, error = _run_long(seed)
    return world, error


def run_seed(seed: int) -> Outcome:
    """Run the long history of a seed, and raise what it shows to be wrong."""
    _, outcome, error = _run_long(seed)
    if error is not None:
        error.add_note(f"again: make simulate SEED={seed}")
        raise error
    return outcome


def _run_long(seed: int) -> tuple[World, Outcome, BaseException | None]:
    rng = Random(f"seed {seed}")
    is_local = rng.random() < 0.5
    return run(seed, is_local, RandomFaults(rng, is_local), long)


def exhaust(story: Story, seed: int, is_local: bool, kinds: Sequence[str], every: int = 1) -> Outcome:
    """Run a short history once for each of its calls and each fault of some kinds, and raise what shows to be wrong.

    Of all those pairs only each `every`-th one is run.
    """
    _, outcome, error = run(seed, is_local, NoFaults(), story)
    if error is not None:
        raise error
    pairs = [(number, fault) for number in range(outcome.calls) for fault in faults_at(number, is_local)]
    for number, fault in [pair for pair in pairs if pair[1].kind in kinds][::every]:
        _, one, error = run(seed, is_local, FaultAt(number, fault), story)
        if error is not None:
            place = f"call {number} of {story.__name__!r}, seed {seed}, {'disk' if is_local else 'bucket'}"
            error.add_note(f"after the fault {fault} at {place}")
            raise error
        outcome += one
    return outcome
