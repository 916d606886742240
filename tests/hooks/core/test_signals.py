"""SIGTERM, and processes that are forked where a hook handles it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Container
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from night import signals

from support.plain_hook import Hook
from support.programs import run, start, start_cold
from tensortrial import Run, create_trial, forking, interrupts
from tensortrial.hooks.core import run_writer, step_recorder
from tensortrial.write import claim, lease, writer

BEGINNING = """
    import asyncio, ctypes, glob, os, signal, sys, threading, time
    from support.plain_hook import Hook

    def begin():
        hook = Hook("run", flush_seconds=1000)
        hook.set_mode("TRAIN")
        for step in range(3):
            hook.save_scalar("x", step)
            hook.set_mode("TRAIN")  # closes the step
        return hook
"""
BLOCKED = """
    def block():
        print("ready", flush=True)
        # A lock that this thread has already: waits inside C forever, also after signals.
        lock = ctypes.create_string_buffer(64)
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_lock(lock)
        libc.pthread_mutex_lock(lock)
"""


def ended(program: str, folder: Path, times: int = 1) -> tuple[int | None, str]:
    """Start a program, and send it SIGTERM when it is ready. Return its status and what it wrote to stderr."""
    with start(program, folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=30)[1]
        for _ in range(times):
            process.terminate()
            time.sleep(0.02)
        err = process.communicate(timeout=60)[1]
    return process.returncode, err


def until_blocked(pid: int) -> None:
    """Wait until the main thread of a process sleeps, and has not run between several looks at it."""
    status, looks, before = Path(f"/proc/{pid}/task/{pid}/status"), 0, ""
    while looks < 10:
        now = status.read_text()
        looks = looks + 1 if now == before and "State:\tS" in now else 0
        before = now
        time.sleep(0.01)


class TestAProcessThatIsInsideC:
    def test_a_process_inside_c_ends_by_sigterm_with_its_run_closed(self, tmp_path: Path) -> None:
        assert ended(f"{BEGINNING}{BLOCKED}\n    hook = begin()\n    block()\n", tmp_path) == (-signal.SIGTERM, "")
        trial = create_trial(tmp_path / "run")
        assert [float(trial.tensor("x").value(step)) for step in range(3)] == [0.0, 1.0, 2.0]
        assert trial.tensor("x").steps() == [0, 1, 2]
        assert trial.loaded_all_steps

    def test_a_process_that_holds_the_hooks_lock_ends_by_sigterm(self, tmp_path: Path) -> None:
        program = f"""{BEGINNING}{BLOCKED}
    import tensortrial.hooks.core.process.shutdown as shutdown
    shutdown.GRACE_SECONDS = 2.0
    hook = begin()
    with hook.locked():
        block()
    """
        assert ended(program, tmp_path)[0] == -signal.SIGTERM
        # It cannot be closed, but what was closed before is published.
        assert create_trial(tmp_path / "run").tensor("x").steps(show_incomplete_steps=True) == [0, 1, 2]

    @pytest.mark.distributed
    def test_a_process_inside_an_endless_collective_ends_by_sigterm(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        program = f"""{BEGINNING}
    import torch
    import torch.distributed as dist

    store = dist.FileStore("store", 2)
    rank = 0 if os.fork() else 1
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    if rank:
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(0)
    hook = begin()
    print("ready", flush=True)
    dist.all_reduce(torch.ones(1))
    """
        with start(program, tmp_path) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            until_blocked(process.pid)
            process.terminate()
            process.wait(60)
        assert process.returncode == -signal.SIGTERM
        assert create_trial(tmp_path / "run").tensor("x").steps() == [0, 1, 2]


class TestAHandlerOfTheUsers:
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_the_users_handler_decides_how_the_process_ends(self, tmp_path: Path, when: str) -> None:
        install = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
        before, after = (install, "") if when == "before" else ("", install)
        program = f"""{BEGINNING}
    {before}
    hook = begin()
    {after}
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
    """
        assert ended(program, tmp_path) == (7, "")
        assert create_trial(tmp_path / "run").loaded_all_steps

    def test_training_goes_on_after_the_users_handler_with_the_steps_published(self, tmp_path: Path) -> None:
        program = f"""{BEGINNING}
    signal.signal(signal.SIGTERM, lambda *_: None)
    hook = begin()
    print("ready", flush=True)
    deadline = time.monotonic() + 60
    while not glob.glob("run/index/**/*.parquet", recursive=True) and time.monotonic() < deadline:
        time.sleep(0.01)
    hook.save_scalar("y", 1.0)
    os._exit(5)
    """
        assert ended(program, tmp_path)[0] == 5
        trial = create_trial(tmp_path / "run")
        assert trial.tensor("x").steps(show_incomplete_steps=True) == [0, 1, 2]
        assert not trial.loaded_all_steps

    def test_the_users_handler_may_call_the_previous_one(self, tmp_path: Path) -> None:
        program = f"""{BEGINNING}
    hook = begin()
    before = signal.getsignal(signal.SIGTERM)

    def handler(number, frame):
        print("saved a checkpoint", file=sys.stderr, flush=True)
        before(number, frame)

    signal.signal(signal.SIGTERM, handler)
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
    """
        assert ended(program, tmp_path) == (-signal.SIGTERM, "saved a checkpoint\n")
        assert create_trial(tmp_path / "run").loaded_all_steps

    def test_the_users_handler_stays_when_the_hook_closes(self, out: str) -> None:
        def handler(number: int, frame: object) -> None:
            pass

        before = signal.signal(signal.SIGTERM, handler)
        try:
            hook = Hook(out)
            hook.save_scalar("x", 1)
            assert signal.getsignal(signal.SIGTERM) is handler
            hook.close()
            assert signal.getsignal(signal.SIGTERM) is handler
        finally:
            signal.signal(signal.SIGTERM, before)


def test_sigterm_in_the_last_statement_of_a_program_ends_it(tmp_path: Path) -> None:
    with start_cold(
        f"{BEGINNING}\n    hook = begin()\n    os.kill(os.getpid(), signal.SIGTERM)\n", tmp_path
    ) as process:
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == -signal.SIGTERM
    assert create_trial(tmp_path / "run").loaded_all_steps


def test_a_hook_is_made_without_descriptors_for_its_pipe(tmp_path: Path) -> None:
    program = """
    import contextlib, os, resource
    from support.plain_hook import Hook

    Hook("first").close()  # imports all
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    opened = []
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    os.close(opened.pop())
    hook = Hook("run")
    for each in opened:
        os.close(each)
    hook.save_scalar("x", 1)
    hook.close()
    """
    done = run(program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert create_trial(tmp_path / "run").tensor("x").steps() == [0]


def test_asyncio_keeps_its_wakeup_descriptor(tmp_path: Path) -> None:
    program = f"""{BEGINNING}
    async def main():
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stop.set)
        hook = begin()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(stop.wait(), 30)
        print("ready", flush=True)
        await asyncio.sleep(1000)

    asyncio.run(main())
    """
    assert ended(program, tmp_path) == (-signal.SIGTERM, "")
    assert create_trial(tmp_path / "run").loaded_all_steps


def test_a_hook_that_closes_leaves_asyncio_the_descriptor_that_it_has_set_since(tmp_path: Path) -> None:
    program = f"""{BEGINNING}
    hook = begin()

    async def main():
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stop.set)
        hook.close()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(stop.wait(), 30)

    asyncio.run(main())
    """
    done = run(program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_sigterm_does_not_lose_what_the_first_publishes(tmp_path: Path) -> None:
    program = f"""{BEGINNING}{BLOCKED}
    import numpy as np
    hook = Hook("run", flush_seconds=1000, codec="zstd")
    for step in range(20):
        hook.save_tensor("big", np.random.default_rng(step).random(1 << 20))
        hook.set_mode("TRAIN")
    block()
    """
    assert ended(program, tmp_path, times=5)[0] == -signal.SIGTERM
    trial = create_trial(tmp_path / "run")
    assert len(trial.tensor("big").steps()) == 20
    assert trial.loaded_all_steps


def test_what_a_process_saves_while_sigterm_ends_it_is_not_warned_of(tmp_path: Path) -> None:
    program = f"""{BEGINNING}
    from tensortrial import create_trial

    kill, saved = os.kill, threading.Event()

    def kill_later(pid, number):
        saved.wait(30)
        kill(pid, number)

    os.kill = kill_later
    hook = begin()
    trial = create_trial("run")
    print("ready", flush=True)
    while not trial.loaded_all_steps:
        time.sleep(0.01)
    hook.save_scalar("y", 1.0)
    saved.set()
    time.sleep(1000)
    """
    assert ended(program, tmp_path) == (-signal.SIGTERM, "")
    assert create_trial(tmp_path / "run").tensor_names() == ["x"]


def test_a_flush_while_sigterm_ends_the_process_does_not_return_unpublished(tmp_path: Path) -> None:
    program = f"""{BEGINNING}
    hook = begin()
    os.kill(os.getpid(), signal.SIGTERM)
    for step in range(3, 10_000_000):
        hook.save_scalar("x", step)
        hook.set_mode("TRAIN")
        hook.flush()
        print(step, flush=True)
    """
    with start(program, tmp_path) as process:
        printed = process.communicate(timeout=60)[0].split()
    assert process.returncode == -signal.SIGTERM
    assert set(map(int, printed)) <= set(create_trial(tmp_path / "run").steps())


def test_the_first_process_of_a_container_ignores_sigterm_as_without_a_hook(tmp_path: Path) -> None:
    program = f"""{BEGINNING}
    hook = begin()
    assert os.getpid() == 1
    os.kill(1, signal.SIGTERM)
    time.sleep(0.5)
    hook.save_scalar("x", 3)
    hook.close()
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(program))
    command = ["unshare", "--pid", "--fork", sys.executable, "script.py"]
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("a process namespace of its own is not permitted here")
    paths = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, timeout=60)
    assert done.returncode == 0
    assert create_trial(tmp_path / "run").tensor("x").steps() == [0, 1, 2, 3]


def test_a_closed_hook_leaves_no_handler_behind(tmp_path: Path) -> None:
    program = """
    import os, signal, threading, time
    from support.plain_hook import Hook

    threads, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for number in range(20):
        hook = Hook(f"run{number}")
        hook.save_scalar("x", 1)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        hook.close()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    while set(threading.enumerate()) - threads or len(os.listdir("/proc/self/fd")) > files:
        time.sleep(0.01)
    """
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr


# Forks.


def test_a_child_that_is_terminated_right_after_the_fork_ends(out: str) -> None:
    hook = Hook(out)
    hook.save_scalar("x", 1)
    for _ in range(30):
        child = os.fork()
        if not child:
            time.sleep(300)
            os._exit(1)
        os.kill(child, signal.SIGTERM)
        assert status_of(child) == -signal.SIGTERM
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    hook.save_scalar("x", 2)
    hook.close()
    assert create_trial(out).loaded_all_steps


def status_of(child: int) -> int:
    """Wait for a child's end; after a minute it is killed. Return its exit code, as subprocess does."""
    deadline = time.monotonic() + 60
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)


def test_pools_of_processes_end_with_a_hook(tmp_path: Path) -> None:
    signals.ends(tmp_path, signals.POOLS, COUNT="10")


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True], ids=["new workers", "persistent workers"])
def test_data_loaders_end_with_a_hook(tmp_path: Path, persistent: bool) -> None:
    pytest.importorskip("torch")
    signals.ends(tmp_path, signals.LOADERS, COUNT="5", PERSISTENT=str(int(persistent)))


def test_a_run_whose_closing_ctrl_c_interrupts_is_closed_at_exit(tmp_path: Path) -> None:
    script = """
        import os, signal, threading, time
        import numpy as np
        from support.plain_hook import Hook

        hook = Hook("run", codec="zstd", flush_seconds=1000, queue_bytes=1 << 30, environment=False)
        for step in range(4):
            hook.save_tensor("x", np.random.default_rng(step).normal(size=2_000_000), step=step)

        def interrupt():
            while not hook.recorder.closed:
                time.sleep(0.001)
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        try:
            hook.close()
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run(script, tmp_path).stdout == "interrupted\n"
    trial = create_trial(str(tmp_path / "run"))
    assert trial.tensor("x").steps() == [0, 1, 2, 3]
    assert trial.loaded_all_steps


def is_interrupted(call: Callable[[], object], moment: int, files: Container[str] = ()) -> bool:
    """Interrupt a call by Ctrl-C at one of its moments, or of those in some files. Return False if it has fewer."""
    left = moment

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        # Python handles signals as functions begin, and as those in C return.
        left -= event in ("call", "c_return") and (not files or frame.f_code.co_filename in files)
        if not left:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    try:
        sys.setprofile(interrupt)
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return left <= 0


@pytest.mark.timeout(300)  # a lock that Ctrl-C leaves locked
def test_ctrl_c_at_any_moment_of_a_step_leaves_a_whole_run_of_right_values(tmp_path: Path) -> None:
    hook = Hook(str(tmp_path / "run"), environment=False, flush_seconds=0)

    def save(step: int) -> None:
        hook.save_scalar("x", step, step=step)
        for name in "yz":
            hook.save_tensor(name, np.full(10 + step, float(step)), step=step)

    for moment in count(1):
        save(3 * moment)
        save(3 * moment + 1)
        if not is_interrupted(partial(save, 3 * moment + 2), moment):
            break
    hook.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.verify().is_whole
    assert trial.loaded_all_steps
    for name in "xyz":
        assert {step for step in range(3, 3 * moment + 3) if step % 3 < 2} <= {*trial.tensor(name).steps()}
        assert all((value == number).all() for number, value in trial.tensor(name).values().items())


@pytest.mark.timeout(300)
def test_ctrl_c_at_any_moment_of_the_end_leaves_a_run_that_another_call_closes(tmp_path: Path) -> None:
    waiting = {each.__file__ for each in (threading, interrupts, forking, writer)}
    for moment in count(1):
        out = str(tmp_path / str(moment))
        run = Run(out, environment=["command"], flush_seconds=1000)
        run.log({"x": 1.0}, step=0)
        run.log({"x": 2.0}, step=1)  # closes step 0
        if not (is_interrupted(run.flush, moment, waiting) or is_interrupted(run.close, moment, waiting)):
            break
        closing = threading.Thread(target=run.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
        assert create_trial(out).tensor("x").values() == {0: 1.0, 1: 2.0}
        assert create_trial(out).loaded_all_steps
    assert moment > 10


def test_a_step_opened_by_a_value_is_the_next_to_begin_at_whatever_moment_ctrl_c_comes(tmp_path: Path) -> None:
    hook = Hook(str(tmp_path / "run"), environment=False)
    hook.save_scalar("x", 0)
    for moment in count(1):
        hook.recorder.begin_step()  # as a framework does
        hook.save_scalar("y", moment - 1)
        hook.recorder.end_step()
        interrupted = is_interrupted(partial(hook.save_scalar, "x", moment), moment)
        hook.save_scalar("x", moment)
        if not interrupted:
            break
    hook.close()
    trial = create_trial(str(tmp_path / "run"))
    found = trial.tensor("x").values()
    assert found.pop(max(found)) == moment
    assert found == trial.tensor("y").values()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("on_exists", ["fail", "number"])
def test_a_hook_saves_to_its_run_at_whatever_moment_of_the_first_step_ctrl_c_comes(
    tmp_path: Path, on_exists: str
) -> None:
    claiming = {each.__file__ for each in (step_recorder, run_writer, claim, lease, writer)}
    for moment in count(1):
        out = str(tmp_path / str(moment))
        hook = Hook(out, environment=False, on_exists=on_exists)
        interrupted = is_interrupted(partial(hook.save_scalar, "x", 1), moment, claiming)
        hook.save_scalar("x", 2)
        hook.close()
        assert create_trial(out).tensor("x").values() == {0: 2.0}
        assert create_trial(out).loaded_all_steps
        if not interrupted:
            break
    assert moment > 10
