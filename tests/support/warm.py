"""Run Python programs in forked children of a process that has imported this project once.

`run(["-c", program])` replaces `subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)`, and
`start` replaces `subprocess.Popen`, where a test needs a process but not its start. A child has its own arguments,
environment, folder, standard streams, `__main__`, session, threads and exit. Its imports cost nothing.

Start a real process where the test is about one of these:

- the imports: which modules a program imports, in which order, and what they print or warn of;
- options of the interpreter (`-W`, `-X`), and variables that it or a library reads at its start (`PYTHON…`, `OMP_…`);
- the start itself: /proc/self/cmdline, a terminal, the parent, signals before the first line;
- what happens after the functions of `atexit`, where Python destroys its modules: here the process ends at once.

Three more differences: OpenMP has one thread, all children have the same hash seed, and `tests` is on `sys.path`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from importlib.util import find_spec
from types import CodeType
from typing import Any, Self

# The imports of each helper process. `preload` adds to them. An environment need not have all of them.
MODULES = (
    "duckdb",
    "pyarrow.parquet",
    "pandas",
    "click",
    "rich.console",
    "rich.table",
    "tensortrial.hooks.plain",
    "tensortrial.read.opening",
    "tensortrial.read.runs",
    "tensortrial.storage.duckdb_filesystem",
)
TORCH = ("torch", "tensortrial.hooks.pytorch", *(["sklearn.datasets"] if find_spec("sklearn") else []))

# As it was before any test changed it.
_ENVIRONMENT = dict(os.environ)
_SERVE = "__import__('importlib').import_module('support.warm').serve()"
# A process with threads cannot fork: BLAS and the allocator of Arrow start some when they are imported.
_NO_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_NUMBER = struct.Struct("i")


def run(
    arguments: Sequence[object],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    timeout: float = 60,
    check: bool = False,
    preload: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end.

    Args:
        arguments: What follows the interpreter on the command line: `-c` and a text, `-m` and a module, or a file; then
            the arguments of the program.
        cwd: The folder to run in; this process's folder by default.
        env: All variables; those of this process by default.
        input: The text that the program reads from standard input.
        timeout: The seconds after which the program and its children are killed.
        check: Raise CalledProcessError, with standard error as a note, for a status that is not 0.
        preload: More modules that the helper process has imported, such as `TORCH`.

    Returns:
        The exit status, as of `subprocess`, and the texts of both streams.

    Raises:
        subprocess.TimeoutExpired: The program did not end in time.
    """
    stdin = None if input is None else subprocess.PIPE
    with start(arguments, cwd=cwd, env=env, stdin=stdin, preload=preload) as process:
        stdout, stderr = process.communicate(input, timeout)
    if check and process.returncode:
        error = subprocess.CalledProcessError(process.returncode, process.args, stdout, stderr)
        error.add_note(stderr)
        raise error
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def start(
    arguments: Sequence[object],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    preload: Sequence[str] = (),
) -> Process:
    """Start a program. The arguments are those of `run`; `stdin` is `subprocess.PIPE`, or nothing can be read."""
    texts = list(map(str, arguments))
    if not texts or (texts[0].startswith("-") and texts[0] not in ("-c", "-m")):
        raise ValueError(f"arguments must begin with -c, -m or a file, got {texts[:1]}: start a real process")
    environment = dict(os.environ if env is None else env)
    changed = [name for name in environment.keys() | _ENVIRONMENT.keys() if not _is_as_at_the_start(name, environment)]
    if changed:
        raise ValueError(f"{sorted(changed)} matter when Python starts: start a real process")
    case = {"arguments": texts, "cwd": os.path.abspath(cwd or os.curdir), "environment": environment}
    return _server(tuple(preload)).start(case, stdin)


def _is_as_at_the_start(name: str, environment: Mapping[str, str]) -> bool:
    if not name.startswith(("PYTHON", "OMP_", "MALLOC_")) or name in ("PYTHONPATH", "PYTHONSAFEPATH"):
        return True
    value = environment.get(name)
    return value == _ENVIRONMENT.get(name) or (name, value) == ("OMP_NUM_THREADS", "1")


class Process:
    """A program that runs in a child of a helper process. It has the methods of `subprocess.Popen[str]`."""

    def __init__(self, case: dict[str, Any], connection: socket.socket, streams: Sequence[Any]) -> None:
        self.args = [sys.executable, *case["arguments"]]
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None
        self._connection = connection
        self._output: tuple[str, str] | None = None
        try:
            with contextlib.suppress(ConnectionError):
                connection.sendall(json.dumps(case).encode() + b"\n")
            self.pid = self._next_number()
        except BaseException:
            self._close()
            raise

    def _next_number(self) -> int:
        read = b""
        with contextlib.suppress(ConnectionError):
            read = self._connection.recv(_NUMBER.size, socket.MSG_WAITALL)
        if len(read) < _NUMBER.size:
            raise RuntimeError("the helper process has ended; its error is on standard error")
        number: int = _NUMBER.unpack(read)[0]
        return number

    def poll(self) -> int | None:
        """Return the exit status, or None while the program runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once the program has ended."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = self._next_number()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
        return self.returncode

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Write to standard input, and read both streams until the program ends. After the timeout it is killed."""
        if self._output is not None:
            return self._output
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                if self.stdin is not None:
                    with contextlib.suppress(BrokenPipeError), self.stdin:
                        self.stdin.write(input or "")
                late = wait(reading, timeout).not_done
            except BaseException:
                self._kill_all()
                raise
            if late:
                self._kill_all()
        stdout, stderr = (each.result() for each in reading)
        if late:
            raise subprocess.TimeoutExpired(self.args, timeout or 0, stdout, stderr)
        self.wait(timeout)
        self._close()
        self._output = stdout, stderr
        return self._output

    def send_signal(self, number: int) -> None:
        """Send a signal to the program, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _kill_all(self) -> None:
        """Kill the program and the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._kill_all()
        try:
            self.wait()
        finally:
            self._close()

    def _close(self) -> None:
        for stream in filter(None, (self.stdin, self.stdout, self.stderr)):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._connection.close()


class _Server:
    """The helper process, as its client sees it. It ends when this process does."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._connection, theirs = socket.socketpair()
        path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        present = [name for name in MODULES if find_spec(name.partition(".")[0])]
        command = [sys.executable, "-c", _SERVE, str(theirs.fileno()), *present, *modules]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**_ENVIRONMENT, "PYTHONPATH": path, **_NO_THREADS},
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def start(self, case: dict[str, Any], stdin: int | None) -> Process:
        """Start a program, with pipes for its streams."""
        read_end, write_end = os.pipe() if stdin == subprocess.PIPE else (os.open(os.devnull, os.O_RDONLY), None)
        (out, theirs_out), (err, theirs_err) = os.pipe(), os.pipe()
        connection, their_connection = socket.socketpair()
        with their_connection:
            given = [their_connection.fileno(), read_end, theirs_out, theirs_err]
            with contextlib.suppress(ConnectionError):
                socket.send_fds(self._connection, [b"x"], given)
            _close(*given[1:])
        streams = [
            None if write_end is None else os.fdopen(write_end, "w", encoding="utf-8"),
            os.fdopen(out, encoding="utf-8"),
            os.fdopen(err, encoding="utf-8"),
        ]
        return Process(case, connection, streams)

    def close(self) -> None:
        """End the process, and the programs that still run."""
        self._connection.close()
        self._process.wait(60)


@cache
def _server(modules: tuple[str, ...]) -> _Server:
    return _Server(modules)


# The helper process.


def serve() -> None:
    """Run each program in a child."""
    code = _next_program()
    status = 0
    try:
        exec(code, vars(sys.modules["__main__"]))
    except KeyboardInterrupt:
        raise
    except SystemExit as exc:
        status = 0 if exc.code is None else 1
        if isinstance(exc.code, int):
            status = exc.code
        elif status:
            print(exc.code, file=sys.stderr)
    except BaseException as exc:  # noqa: BLE001  any may end a program
        status = 1
        sys.excepthook(type(exc), exc, exc.__traceback__.tb_next if exc.__traceback__ else None)
    _end(status)


def _end(status: int) -> None:
    """End this process as Python does, but do not destroy its modules: that takes longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError) as exc:
            status = 120
            print(f"Exception ignored in: {stream}\n{type(exc).__name__}: {exc}", file=sys.__stderr__)
    os._exit(status & 0xFF)


def _next_program() -> CodeType:
    """Start a child for each program. Return in the child, with the code of the program."""
    atexit.register(gc.unfreeze)  # the last function at exit: DuckDB reports its objects that no collection frees
    for name in sys.argv[2:]:
        importlib.import_module(name)
    sys.modules["duckdb"].default_connection().close()  # DuckDB 1.5 opens it when it is imported, with a thread
    for each in weakref.finalize._registry:  # type: ignore[attr-defined]
        each.atexit = False  # torch would take back its operators, one by one, at the exit of each child
    gc.collect()
    gc.freeze()  # a collection in a child would copy the memory that it shares with this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = socket.socket(fileno=int(sys.argv[1]))
    children: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that is ready when the child has ended
    poll = select.poll()
    poll.register(server, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in children:
                poll.unregister(ready)
                _answer(ready, *children.pop(ready))
                continue
            received, descriptors, *_ = socket.recv_fds(server, 1, 4)
            if not received:
                for pid, _ in children.values():
                    os.killpg(pid, signal.SIGKILL)
                sys.exit()
            client = socket.socket(fileno=descriptors[0])
            pid, case = _fork(client)
            if case is not None:
                clients = (other for _, other in children.values())
                _close(*children, *(each.detach() for each in (server, client, *clients)))
                return _prepare(descriptors[1:], **case)
            _close(*descriptors[1:])
            ended = os.pidfd_open(pid)
            poll.register(ended, select.POLLIN)
            children[ended] = pid, client
            with contextlib.suppress(ConnectionError):
                client.sendall(_NUMBER.pack(pid))


def _fork(client: socket.socket) -> tuple[int, dict[str, Any] | None]:
    """Fork. Return the child's process id, and in the child what it runs."""
    with client.makefile(encoding="utf-8") as lines:
        case = json.loads(lines.readline())
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError(f"importing {sys.argv[2:]} starts threads")
    pid = os.fork()
    return pid, None if pid else case


def _close(*descriptors: int) -> None:
    for each in descriptors:
        os.close(each)


def _answer(ended: int, pid: int, client: socket.socket) -> None:
    """Send the exit status of a child."""
    os.close(ended)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with client, contextlib.suppress(ConnectionError):
        client.sendall(_NUMBER.pack(status))


def _prepare(streams: list[int], arguments: list[str], cwd: str, environment: dict[str, str]) -> CodeType:
    """Make this process one that Python has just started with these arguments. Return the code to execute."""
    os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(cwd)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.orig_argv = [sys.executable, *arguments]
    kind, *rest = arguments
    sys.argv = [kind, *(rest if kind not in ("-c", "-m") else rest[1:])]
    sys.path[:] = filter(None, [*environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path])
    folder = {"-c": "", "-m": cwd}.get(kind, os.path.dirname(os.path.realpath(kind)))
    if not environment.get("PYTHONSAFEPATH"):
        sys.path.insert(0, folder)
    if kind == "-c":
        return compile(rest[0], "<string>", "exec", dont_inherit=True)
    if kind == "-m":
        module = f"__import__('runpy')._run_module_as_main({rest[0]!r})"
        return compile(module, "<string>", "exec", dont_inherit=True)
    path = os.path.abspath(kind)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(sys.modules["__main__"]).update(__file__=path, __cached__=None, __loader__=loader)
    return compile(loader.get_data(path), path, "exec", dont_inherit=True)
