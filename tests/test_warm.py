"""Programs in forked children of a warm process behave as programs that Python has just started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import warm


def real(arguments: list[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, **options)


UNWRITTEN = """
import os, sys
sys.stdout = open(1, "w", closefd=False)
print("unwritten")
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
"""
SHOW = """
import atexit, os, sys, threading
def helper(): pass
atexit.register(print, "at exit", file=sys.stderr)
threading.Thread(target=lambda: (threading.main_thread().join(), print("a thread ends"))).start()
print(sys.argv, __name__, globals().get("__file__"), sys.path[0], sys.orig_argv == ORIGINAL, sorted(globals()))
print(sys.modules["__main__"].helper is helper, os.getcwd(), sys.stdin.read(), os.environ["SHOWN"], len(os.environ))
print(sorted(os.listdir("/proc/self/fd")), threading.active_count(), threading.current_thread().name)
"""


@pytest.mark.parametrize("safe", ["", "1"])
@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
def test_a_program_finds_what_it_finds_in_a_real_process(tmp_path: Path, kind: str, safe: str) -> None:
    (tmp_path / "show").mkdir()
    folder = tmp_path / "show"
    arguments = {"-c": ["-c", ""], "-m": ["-m", "show"], "file": ["show/show.py"]}[kind] + ["-x", "y z"]
    text = SHOW.replace("ORIGINAL", "[sys.executable, *os.environ['ORIGINAL'].splitlines()]")
    (folder / "show.py").write_text(text)
    (tmp_path / "show" / "__main__.py").write_text(text)
    if kind == "-c":
        arguments[1] = text
    variables = {**os.environ, "SHOWN": "ü", "PYTHONPATH": str(tmp_path), "ORIGINAL": "\n".join(arguments)}
    variables.pop("PYTHONSAFEPATH", None)
    variables |= {"PYTHONSAFEPATH": safe} if safe else {}
    if kind == "-c":
        variables["ORIGINAL"] = ""
    options = {"cwd": tmp_path, "env": variables, "input": "typed", "timeout": 60}
    done, expected = warm.run(arguments, **options), real(arguments, **options)
    assert (done.stdout, done.stderr, done.returncode) == (expected.stdout, expected.stderr, expected.returncode)
    assert "typed ü" in done.stdout
    assert done.stderr == "at exit\n"


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(-1)", 255, ""),
        (UNWRITTEN, 120, "OSError: [Errno 28] No space left on device"),
        ("import atexit; atexit.register(lambda: 1 / 0)", 0, "ZeroDivisionError: division by zero"),
        ("import sys; sys.excepthook = lambda *_: print('hook', file=sys.stderr); 1 / 0", 1, "hook"),
        ("import sys; sys.exit('a message')", 1, "a message\n"),
        ("import os; os._exit(7)", 7, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print); 1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("a b", 1, "SyntaxError: invalid syntax\n"),
    ],
)
def test_a_program_ends_as_in_a_real_process(program: str, status: int, text: str) -> None:
    done, expected = warm.run(["-c", program]), real(["-c", program])
    assert done.returncode == expected.returncode == status
    assert done.stdout == expected.stdout
    assert done.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:] == text.splitlines()
    assert ("Traceback" in done.stderr) == ("Traceback" in expected.stderr) or "SyntaxError" in text


def test_a_failed_check_shows_what_the_program_wrote() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        warm.run(["-c", "raise ValueError('this value')"], check=True)
    assert caught.value.returncode == 1
    assert "ValueError: this value" in "".join(caught.value.__notes__)


def test_a_program_that_hangs_is_killed_with_its_children_and_the_next_one_runs() -> None:
    printing = r"print(f'begins\n{os.getpid()}', flush=True)"
    program = f"import os, time; os.fork() or time.sleep(600); {printing}; time.sleep(600)"
    with warm.start(["-c", program]) as process:
        assert process.stdout.readline() == "begins\n"
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            process.communicate(timeout=0.1)
    grandchild = int(caught.value.output)
    assert not os.path.exists(f"/proc/{grandchild}") or "Z" in Path(f"/proc/{grandchild}/stat").read_text().split()[2]
    assert warm.run(["-c", "print('next')"]).stdout == "next\n"


def test_a_started_program_runs_beside_others_and_receives_signals() -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    with warm.start(["-c", program]) as first, warm.start(["-c", program]) as second:
        for process in (first, second):
            assert process.stdout.readline() == "ready\n"
            assert process.poll() is None
        first.terminate()
        second.send_signal(signal.SIGINT)
        assert (first.wait(60), second.wait(60)) == (5, -signal.SIGINT)
        assert "KeyboardInterrupt" in second.stderr.read()
        second.kill()  # it has ended: nothing is sent
        assert (first.poll(), second.returncode) == (5, -signal.SIGINT)


def test_programs_share_no_state() -> None:
    program = (
        "import os, random, sys, numpy, tensortrial\n"
        "assert not hasattr(tensortrial, 'mark') and 'MARK' not in os.environ\n"
        "tensortrial.mark = os.environ['MARK'] = 'x'\n"
        "print(random.random(), numpy.random.random())"
    )
    shown = {warm.run(["-c", program], check=True).stdout for _ in range(2)}
    numbers = [number for each in shown for number in each.split()]
    assert len(set(numbers)) == 4


@pytest.mark.parametrize(
    ("arguments", "variables", "text"),
    [
        (["-W", "error", "-c", ""], {}, "got \\['-W'\\]"),
        ([], {}, "start a real process"),
        (["-c", ""], {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "2"}, "\\['OMP_NUM_THREADS', 'PYTHONHASHSEED'\\]"),
    ],
)
def test_what_needs_a_real_process_is_refused(arguments: list[str], variables: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        warm.run(arguments, env={**os.environ, **variables})


def test_a_helper_process_that_cannot_start_is_named() -> None:
    with pytest.raises(RuntimeError, match="the helper process has ended"):
        warm.run(["-c", ""], preload=("no_such_module",))


def test_modules_that_start_threads_cannot_be_preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="the helper process has ended"):
        warm.run(["-c", ""], preload=("threaded",))
