"""How many functions and files of this project a call runs: what a reader of the code has to follow.

What is made once in a process, in a run or in a step belongs to no call. A comprehension belongs to its function.

python benchmarks/calls.py
python benchmarks/calls.py --list
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from common import header, line, scratch

AIMS = {
    "create_trial": "20 files",
    "a first value": "14 files",
    "sql": "16 files",
    "tt.Hook": "35 files",
    "a new output": "30 functions, 9 files",
    "a known output": "18 functions, 6 files",
}
"""At most."""


def called(call: Callable[[], object], package: Path) -> set[CodeType]:
    """Return the functions of the package that a call runs, in this thread."""
    found = set[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(package)) and not code.co_name.startswith("<"):
            found.add(code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def write(folder: Path) -> None:
    """Write a run of 20 steps with a loss and 5 tensors."""
    import tensortrial

    with tensortrial.Run(folder) as run:
        for step in range(20):
            run.log({"loss": 1.0 / (step + 1)})
            for number in range(5):
                run.save_tensor(f"layer{number}", np.full(100, float(step)))
            run.step()


def captured(folder: Path, package: Path) -> dict[str, set[CodeType]]:
    """Return the functions that make a hook, and that save the output of a module for the first time and again."""
    import torch

    import tensortrial.hooks.pytorch as tt

    tt.Hook(folder / "first").close()
    found = {"tt.Hook": called(lambda: tt.Hook(folder / "second"), package)}
    tt.del_hook()
    hook = tt.Hook(folder / "third", include_regex="_output", save_interval=1)
    hook.register_loss(torch.nn.MSELoss())
    value = torch.ones(1000)
    for what in ("a new output", "a next output", "a known output"):
        with hook.step():
            hook.capture.capture_values("other", "output", value)  # makes the buffers of the step
            found[what] = called(lambda: hook.capture.capture_values("module", "output", value), package)
        hook.flush()
    hook.close()
    del found["a next output"]
    return found


def main() -> None:
    import tensortrial

    package = Path(tensortrial.__file__).parent
    header("Functions and files of a call: of a reader on a run that was just opened, of a hook in a step")
    with scratch() as scratched:
        for what, functions in captured(scratched / "hooks", package).items():
            _print(what, functions)
        folder = scratched / "run"
        write(folder)
        # What is imported and made once in a process belongs to no call.
        trial = tensortrial.create_trial(folder)
        trial.tensor("layer0").values()
        trial.sql("from tensors").fetchall()
        calls: dict[str, Callable[[Any], object]] = {
            "steps": lambda trial: trial.steps(),
            "tensor_names": lambda trial: trial.tensor_names(),
            "a first value": lambda trial: trial.tensor("layer0").value(trial.steps()[3]),
            "values": lambda trial: trial.tensor("layer0").values(),
            "sql": lambda trial: trial.sql("select count(*) from tensors").fetchall(),
        }
        _print("create_trial", called(lambda: tensortrial.create_trial(folder), package))
        for what, call in calls.items():
            with tensortrial.create_trial(folder) as trial:
                _print(what, called(lambda call=call, trial=trial: call(trial), package))


def _print(what: str, functions: set[CodeType]) -> None:
    files = {function.co_filename for function in functions}
    line(what, f"{len(functions)} functions, {len(files)} files", AIMS.get(what, ""))
    if "--list" in sys.argv:
        for file in sorted(files):
            names = sorted(function.co_qualname for function in functions if function.co_filename == file)
            print(f"      {'/'.join(Path(file).parts[-3:])}: {', '.join(names)}")


if __name__ == "__main__":
    main()
