"""Stand-ins for the modules `threading`, `time` and `datetime` that run on a scheduler and its clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

from simulation.scheduler import Scheduler, Task


class SimulatedTime:
    """The functions of `time` that the project uses."""

    CLOCK_MONOTONIC = time.CLOCK_MONOTONIC

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def time(self) -> float:
        return self._scheduler.now

    def time_ns(self) -> int:
        return int(self._scheduler.now * 1e6) * 1000

    def monotonic(self) -> float:
        return self._scheduler.now

    def clock_gettime(self, clock: int) -> float:
        del clock
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)


def simulated_datetime(scheduler: Scheduler) -> type[datetime]:
    """Return a class like datetime, whose `now` is by the scheduler's clock."""

    class SimulatedDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(scheduler.now, tz or UTC)

    return SimulatedDatetime


class SimulatedThreading:
    """The names of `threading` that the writing side uses. Locks may be real ones where no task waits inside."""

    Lock = staticmethod(threading.Lock)
    RLock = staticmethod(threading.RLock)

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.Thread = _simulated_thread(scheduler)

    def get_ident(self) -> int:
        return id(self._scheduler.task)

    def current_thread(self) -> Any:
        thread = self.Thread(lambda: None)
        thread.task = self._scheduler.task
        return thread


def simulated_event(scheduler: Scheduler) -> type[Any]:
    """Return a class like `tensortrial.interrupts.Event`."""

    class Event:
        def __init__(self) -> None:
            self._is_set = False

        def set(self) -> None:
            self._is_set = True

        def is_set(self) -> bool:
            return self._is_set

        def wait(self, timeout: float | None = None) -> bool:
            return self._is_set or scheduler.wait(self.is_set, timeout)

    return Event


def simulated_condition(scheduler: Scheduler) -> type[Any]:
    """Return a class like `tensortrial.interrupts.Condition`."""

    class Condition:
        def __init__(self, lock: Any) -> None:
            self._lock = lock
            self._calls = 0

        def wait(self, timeout: float | None = None) -> bool:
            before = self._calls
            self._lock.release()
            try:
                return scheduler.wait(lambda: self._calls != before, timeout)
            finally:
                self._lock.acquire()

        def notify_all(self) -> None:
            self._calls += 1

    return Condition


def _simulated_thread(scheduler: Scheduler) -> type[Any]:
    class Thread:
        def __init__(self, target: Callable[[], None], name: str = "", daemon: bool = False) -> None:
            del daemon
            self._target, self._name = target, name
            self.task: Task | None = None

        def start(self) -> None:
            self.task = scheduler.add_thread(scheduler.process, self._name, self._target)

        def join(self, timeout: float | None = None) -> None:
            task = self.task
            assert task is not None
            scheduler.wait(lambda: task.done, timeout)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Thread) and other.task is self.task

        def __hash__(self) -> int:
            return hash(self.task)

    return Thread
