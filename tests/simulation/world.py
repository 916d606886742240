"""A world: some processes, their storage, and the clock that they share."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from simulation.clock import SimulatedThreading, SimulatedTime, simulated_condition, simulated_datetime, simulated_event
from simulation.disk import Disk
from simulation.faults import ERRORS, Fault, NoFaults, Plan
from simulation.scheduler import Killed, Process, Scheduler
from simulation.storage import SimulatedStorage
from support.internals import forget_flushes
from tensortrial.engines import duckdb as duckdb_engine
from tensortrial.format import chunk_merge, index_writer
from tensortrial.hooks.core import recorder, run_writer
from tensortrial.hooks.core.process import stop_request
from tensortrial.maintenance import compaction, repair
from tensortrial.read import opening, run_reader, step_states, trial, waiting
from tensortrial.snapshot import index_files, snapshot, workers
from tensortrial.write import claim, close_compaction, lease, writer
from tensortrial.write.lease import Process as ProcessIdentity

_OPENED = (run_writer, opening, compaction, repair)
_THREADED = (writer, lease)
_TIMED = (
    *(writer, lease, recorder, stop_request, run_reader, trial, waiting, compaction, index_writer),
    *(opening, index_files, snapshot, workers, step_states),
    run_writer,
    repair,
    claim,
)
_BOOT = "simulated boot"


class World:
    """Everything that a history needs: `patched` puts it under the code of the project."""

    def __init__(self, rng: Random, is_local: bool, stickiness: float, knobs: dict[str, int]) -> None:
        self.rng = rng
        self.scheduler = Scheduler(rng, stickiness)
        self.disk = Disk(is_local, lambda: self.scheduler.now)
        self.plan: Plan = NoFaults()
        self.calls = 0
        """How many calls the storage has had."""
        self.in_engine = False
        """Whether an engine reads, in threads of its own: nothing is scheduled, and nothing fails."""
        self.failed = Counter[str]()
        """How many calls had each kind of fault."""
        self.on_cut: Callable[[], None] = lambda: None
        """Called when the power is cut."""
        self.on_claim: Callable[[bytes], None] = lambda data: None
        """Called with each claim that a process is about to publish."""
        self.log: list[str] = []
        """The last calls, for messages."""
        self._knobs = knobs
        self._locks: dict[str, Process] = {}
        self._tokens = itertools.count()

    # What a storage calls.

    @contextmanager
    def call(self, process: Process, name: str, path: str) -> Iterator[None]:
        """Let something go wrong before or after the effect of a call, which is the content of the block."""
        scheduler = self.scheduler
        if self.in_engine:
            yield
            return
        is_task = scheduler.is_task()
        if is_task:
            scheduler.pause()
        elif not process.alive:
            raise Killed
        scheduler.now += self.rng.random() * 0.01
        fault = self._next_fault(process, f"{name} {path}")
        self._strike(process, fault, name, after=False)
        yield
        self._strike(process, fault, name, after=True)

    def _next_fault(self, process: Process, call: str) -> Fault | None:
        fault = self.plan.fault(self.calls, call)
        self._note(f"{self.calls} {process.name}: {call}{f' [{fault}]' if fault else ''}")
        self.calls += 1
        return fault

    def _note(self, line: str) -> None:
        self.log.append(f"{self.scheduler.now:.2f} {line}")
        del self.log[:-4000]

    def _strike(self, process: Process, fault: Fault | None, name: str, after: bool) -> None:
        if fault is None or fault.after != after or (fault.kind == "old" and not name.startswith("list")):
            return
        self.failed[fault.kind] += 1
        process.faults += 1
        if fault.kind == "crash":
            process.kill()
            raise Killed
        if fault.kind == "cut":
            self.cut_power()
            raise Killed
        if fault.kind == "error":
            raise ERRORS[fault.error]()
        if fault.kind == "slow" and self.scheduler.is_task():
            self.scheduler.sleep(fault.seconds)
        if fault.kind == "old":
            self._old = fault.seconds

    _old: float | None = None

    def names(self, process: Process, folder: str) -> list[str]:
        """Return the paths below a folder, as a listing shows them."""
        del process
        seconds, self._old = self._old, None
        if seconds is None:
            return self.disk.names(folder)
        whole = self.rng.random() < 0.5
        return self.disk.names(folder, self.scheduler.now - seconds, lambda: whole or self.rng.random() < 0.5)

    def write(self, process: Process, path: str) -> None:
        """Let the disk be full, or the process be killed, in the middle of a file."""
        if not process.alive:
            raise Killed
        fault = self._next_fault(process, f"write {path}")
        if fault is not None and fault.kind not in ("slow", "old"):
            self._strike(process, fault, "write", after=fault.after)

    @contextmanager
    def locked(self, process: Process, path: str, seconds: float) -> Iterator[None]:
        """Lock a file as the process, or go on after some seconds without the lock."""

        def is_free() -> bool:
            holder = self._locks.get(path)
            return holder is None or holder is process or not holder.alive

        free = is_free() or self.scheduler.wait(is_free, seconds)
        if free and path in self.disk.files:
            self._locks[path] = process
        try:
            yield
        finally:
            if self._locks.get(path) is process:
                del self._locks[path]

    # What a history calls.

    def cut_power(self) -> None:
        """Kill every process but that of the operator, and lose what was not durable."""
        self._note("--- the power is cut")
        for process in list(self.scheduler.processes.values()):
            if process.name != "operator":
                process.kill()
        self.disk.cut_power(self.rng)
        self.on_cut()

    def _open(self, url: str, storage_options: Any = None, *, durable: bool = False) -> SimulatedStorage:
        """Return what `open_storage` would, for the running process."""
        del url, storage_options
        return SimulatedStorage(self, self.scheduler.process, durable)

    # The stand-ins.

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Put the clock, the threads and the storage of this world under the code of the project."""
        scheduler = self.scheduler
        time, threads = SimulatedTime(scheduler), SimulatedThreading(scheduler)
        moment = simulated_datetime(scheduler)
        with ExitStack() as stack:
            # What a claim holds determines the history: a seed must replay it on another machine.
            stack.enter_context(patch.dict(os.environ, {"TENSORTRIAL_ENVIRONMENT": "0"}))

            def put(module: Any, name: str, value: Any) -> None:
                stack.enter_context(patch.object(module, name, value))

            for module in _OPENED:
                put(module, "open_storage", self._open)
            event = simulated_event(scheduler)
            for module in _THREADED:
                put(module, "threading", threads)
                put(module, "Event", event)
            put(writer, "Condition", simulated_condition(scheduler))
            put(writer, "_FlushRequest", event)
            for module in _TIMED:
                if hasattr(module, "time"):
                    put(module, "time", time)
                if hasattr(module, "datetime"):
                    put(module, "datetime", moment)
            put(lease, "this_process", self._identity)
            put(ProcessIdentity, "is_local", property(self._is_of_this_machine))
            put(ProcessIdentity, "runs", property(lambda each: self.scheduler.processes[each.id].alive))
            put(chunk_merge, "secrets", self)
            put(run_writer, "uuid", self)
            put(duckdb_engine, "threads_within_limit", lambda: 1)
            put(compaction, "_BLOCK", self._knobs["block"])
            put(compaction, "_SHARE", 2)
            put(close_compaction, "_FEW_FILES", self._knobs["few_files"])
            defaults = {**(writer.Writer.__init__.__kwdefaults__ or {}), "steps_per_directory": self._knobs["width"]}
            put(writer.Writer.__init__, "__kwdefaults__", defaults)
            try:
                yield
            finally:
                forget_flushes("sim://")

    def _identity(self) -> ProcessIdentity:
        process = self.scheduler.process
        # The machines of a bucket's workers do not see one another's processes.
        boot = _BOOT if self.disk.is_local else ""
        return ProcessIdentity(process.number, "1", "simulated", boot)

    def _is_of_this_machine(self, identity: ProcessIdentity) -> bool:
        return identity.boot == _BOOT

    def token_hex(self, nbytes: int) -> str:
        """Return what `secrets.token_hex` would."""
        return f"{next(self._tokens):0{2 * nbytes}x}"

    def uuid4(self) -> Any:
        """Return what `uuid.uuid4` would."""
        return type("Id", (), {"hex": f"{next(self._tokens):032x}"})
