"""How many functions and files of this project a call runs: what a reader of the code has to follow.

python benchmarks/calls.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from common import header, line, scratch

AIMS = {"create_trial": 20, "a first value": 14, "sql": 16}
"""Files, at most."""


def called(call: Callable[[], object], package: Path) -> set[CodeType]:
    """Return the functions of the package that a call runs, in this thread."""
    found = set[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(package)):
            found.add(frame.f_code)

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


def main() -> None:
    import tensortrial

    package = Path(tensortrial.__file__).parent
    header("Functions and files of a call, each on a run that was just opened")
    with scratch() as scratched:
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
    aim = f"{AIMS[what]} files" if what in AIMS else ""
    line(what, f"{len(functions)} functions, {len(files)} files", aim)


if __name__ == "__main__":
    main()
