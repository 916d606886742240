"""Runs the threads of simulated processes one at a time, in an order that a seed decides, on a virtual clock.

Each task is a real thread, but only one runs at a time: it goes on until it waits, or until it reaches a call of the
storage, where the scheduler may let another one run. So a run of the same seed is the same run.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from random import Random

_MOST_SWITCHES = 400_000
_MOST_SECONDS = 30 * 86_400.0


class Killed(BaseException):
    """The simulated process has been killed: nothing that it does has an effect any more."""


class Hang(AssertionError):
    """The simulated processes wait for one another forever, or for nothing."""


class Process:
    """A simulated process."""

    def __init__(self, scheduler: Scheduler, number: int, name: str) -> None:
        self._scheduler = scheduler
        self.number, self.name = number, name
        self.alive = True
        self.faults = 0
        """How many of its calls have failed, were slow or returned an old listing."""
        self.at_end: list[Callable[[], None]] = []
        """Called when the process has ended."""

    def kill(self) -> None:
        """End the process at once, as SIGKILL does."""
        self._scheduler.end(self)


class Task:
    """A thread of a simulated process."""

    def __init__(self, process: Process, name: str, run: Callable[[], None], is_main: bool) -> None:
        self.process, self.name, self.is_main = process, name, is_main
        self.run = run
        self.thread: threading.Thread | None = None
        self.baton = threading.Semaphore(0)
        self.ready: Callable[[], bool] | None = None
        self.wakes_at: float | None = None
        self.waits = False
        self.done = False


class Scheduler:
    """Decides which task runs next, and what time it is."""

    def __init__(self, rng: Random, stickiness: float = 0.5) -> None:
        self._rng = rng
        self._stickiness = stickiness
        self.now = 1_767_225_600.0
        self.current: Task | None = None
        self.error: BaseException | None = None
        """The first error that ended a task, other than its being killed."""
        self.switches = 0
        self.processes: dict[int, Process] = {}
        self._numbers = itertools.count(1)
        self._tasks: list[Task] = []
        self._over = threading.Semaphore(0)

    @property
    def task(self) -> Task:
        """The running task."""
        assert self.current is not None
        return self.current

    @property
    def process(self) -> Process:
        """The process of the running task."""
        return self.task.process

    def start(self, name: str, run: Callable[[], None]) -> Process:
        """Start a process whose main thread is `run`. The process ends with it."""
        number = next(self._numbers)
        process = self.processes[number] = Process(self, number, name)
        self.add_thread(process, name, run, is_main=True)
        return process

    def add_thread(self, process: Process, name: str, run: Callable[[], None], is_main: bool = False) -> Task:
        """Start a thread in a process."""
        task = Task(process, name, run, is_main)
        self._tasks.append(task)
        task.thread = threading.Thread(target=self._body, args=(task,), name=f"simulated {name}", daemon=True)
        task.thread.start()
        return task

    def run(self) -> None:
        """Run all tasks until they have ended. Raises the first error of any."""
        self._pass_on()
        if not self._over.acquire(timeout=600):
            raise Hang("a task of the simulation waits outside of it")
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Let other tasks run, or not."""
        self._check_alive()
        if self._rng.random() >= self._stickiness:
            self._switch()

    def sleep(self, seconds: float) -> None:
        """Let other tasks run for some virtual seconds."""
        self.wait(None, seconds)

    def wait(self, ready: Callable[[], bool] | None, seconds: float | None = None) -> bool:
        """Wait until `ready()`, for some virtual seconds at most. Return whether it is ready."""
        self._check_alive()
        task = self.task
        task.ready, task.waits = ready, True
        task.wakes_at = None if seconds is None else self.now + max(0.0, seconds)
        self._switch()
        return ready is not None and ready()

    def is_task(self) -> bool:
        """Return whether the calling thread is the running task, and not one of an engine's own."""
        return self.current is not None and self.current.thread is threading.current_thread()

    def end(self, process: Process) -> None:
        """End a process. Its threads end as soon as they would run again."""
        if process.alive:
            process.alive = False
            for callback in process.at_end:
                callback()

    def _check_alive(self) -> None:
        if not self.process.alive:
            raise Killed

    def _switch(self) -> None:
        task = self.task
        following = self._choose()
        if following is not task:
            self.current = following
            following.baton.release()
            task.baton.acquire()
        task.waits, task.ready, task.wakes_at = False, None, None
        self._check_alive()

    def _choose(self) -> Task:
        self.switches += 1
        if self.switches > _MOST_SWITCHES or self.now > 1_767_225_600.0 + _MOST_SECONDS:
            self._fail(Hang(f"the simulation does not end: {self._shown()}"))
        while True:
            runnable = [task for task in self._tasks if not task.done and self._is_runnable(task)]
            if runnable:
                return runnable[0] if len(runnable) == 1 else self._rng.choice(runnable)
            times = [task.wakes_at for task in self._tasks if not task.done and task.wakes_at is not None]
            if times:
                self.now = max(self.now, min(times))
            else:
                self._fail(Hang(f"every task waits: {self._shown()}"))

    def _is_runnable(self, task: Task) -> bool:
        if not task.waits or not task.process.alive:
            return True
        if task.ready is not None and task.ready():
            return True
        return task.wakes_at is not None and task.wakes_at <= self.now

    def _shown(self) -> str:
        return ", ".join(f"{task.process.name}/{task.name}" for task in self._tasks if not task.done)

    def _fail(self, error: BaseException) -> None:
        """End all processes because of an error of one, or of the simulation."""
        self.error = self.error or error
        self._stickiness = 0.0
        self.switches = 0
        for process in self.processes.values():
            self.end(process)

    def _body(self, task: Task) -> None:
        task.baton.acquire()
        try:
            if task.process.alive:
                task.run()
        except Killed:
            pass
        except BaseException as exc:  # noqa: BLE001 - raised by `run`
            self._fail(exc)
        task.done = True
        if task.is_main:
            self.end(task.process)
        self._tasks.remove(task)
        self._pass_on()

    def _pass_on(self) -> None:
        if not self._tasks:
            self.current = None
            self._over.release()
            return
        self.current = self._choose()
        self.current.baton.release()
