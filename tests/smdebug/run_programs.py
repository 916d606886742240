"""Run programs, each in a forked child of a process that has imported the frameworks once.

    python run_programs.py torch xgboost           with the smdebug that is installed
    python run_programs.py torch xgboost --alias   with tensortrial's aliases, as by `python -m tensortrial.smdebug`

Reads a line of JSON for each program from standard input, `{"program": PATH, "folder": PATH, "seconds": 60}`, runs it
in that folder, and answers with a line `{"printed": …, "errors": …}`. An exception that ends the program is the last
line of `printed`: `ended by ValueError`. Without `--alias`, nothing of tensortrial is imported: smdebug's environment
has none.
"""

import atexit
import gc
import importlib
import json
import os
import re
import runpy
import signal
import sys
import time
import traceback
import weakref

JOBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs")
MODULES = {"torch": "smdebug.pytorch"}
# What smdebug logs on standard output.
_LOGGED = re.compile(r"\[\d{4}-\d\d-\d\d ")


def main(arguments):
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints gets between the answers
    os.environ["SMDEBUG_LOG_LEVEL"] = "off"
    if "--alias" in arguments:
        from tensortrial.smdebug import install

        install(shadow=True)
    frameworks = [MODULES.get(name, f"smdebug.{name}") for name in arguments if not name.startswith("-")]
    for name in (*frameworks, "smdebug.trials", "smdebug.rules", "smdebug.exceptions", "smdebug.analysis.utils"):
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):  # an alias imports what it stands for when it is used
            getattr(module, public)
    atexit.register(gc.unfreeze)  # DuckDB reports its objects that no collection frees
    for each in weakref.finalize._registry:
        each.atexit = False  # torch would take back its operators, one by one, at the exit of each child
    gc.collect()
    gc.freeze()  # a collection in a child would copy the memory that it shares with this process
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), file=answers, flush=True)


def run(program, folder, seconds=60.0):
    """Run a program in a child. Return what it printed, without empty lines and logs, and its errors."""
    printed, errors = os.path.join(folder, ".printed"), os.path.join(folder, ".errors")
    child = os.fork()
    if child == 0:
        try:
            run_here(program, folder, printed, errors)
        finally:
            os._exit(0)
    ended = wait(child, seconds)
    lines = [line for line in read(printed).splitlines() if line.strip() and not _LOGGED.match(line)]
    return {
        "printed": "".join(f"{line}\n" for line in [*lines, *([] if ended else ["did not end"])]),
        "errors": read(errors),
    }


def run_here(program, folder, printed, errors):
    """Run a program in this process, which is then over."""
    os.chdir(folder)
    for number, name in ((0, os.devnull), (1, printed), (2, errors)):
        opened = os.open(name, os.O_CREAT | os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = [program]
    sys.path[:0] = [os.path.dirname(program), JOBS]
    try:
        runpy.run_path(program, run_name="__main__")
    except Exception as error:  # noqa: BLE001  any may end a program
        print("ended by", type(error).__name__)
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def read(path):
    """Return a text, also if it is not quite UTF-8."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def wait(child, seconds):
    """Wait for a child, and end it when the time is over. Return whether it ended on its own."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


if __name__ == "__main__":
    main(sys.argv[1:])
