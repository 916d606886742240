"""How fast a run is read: 2000 steps x 500 scalars, and 1000 steps x 200 tensors of 4 kB, each in a fresh process.

The limit that a value is held against is one pread of the same bytes from a plain file.

    python benchmarks/reading.py
"""

from __future__ import annotations

import argparse
import json
import os
import time

import numpy as np
from common import header, in_fresh_process, line, median_seconds, peak_megabytes, scratch, seconds

KINDS = {"scalars": (2000, 500), "tensors": (1000, 200)}


def write(kind: str, out: str, close: bool = True) -> None:
    from tensortrial.hooks.rank import Rank
    from tensortrial.hooks.recorder import Recorder
    from tensortrial.mode import ModeKeys

    steps, per_step = KINDS[kind]
    recorder = Recorder(out, framework="none", versions={}, rank=Rank(), builtin=[], always_saved=[])
    recorder.set_mode(ModeKeys.TRAIN)
    pool = [np.random.default_rng(i).standard_normal(1000, dtype=np.float32) for i in range(16)]
    for step in range(steps):
        recorder.begin_step()
        for i in range(per_step):
            if kind == "scalars":
                recorder.save_scalar(f"t{i:04}", float(step * i % 97))
            else:
                recorder.save_tensor(f"t{i:04}", pool[(step + i) % 16])
    if not close:
        recorder.begin_step()
        recorder.flush()
        os._exit(0)
    recorder.close()


def read(kind: str, out: str) -> None:
    """Print the measured seconds and megabytes as JSON."""
    import tensortrial

    before = peak_megabytes()
    begun = time.perf_counter()
    trial = tensortrial.create_trial(out)
    steps = trial.steps()
    found = {"open": time.perf_counter() - begun, "megabytes": peak_megabytes() - before}
    found["first tensor_names"] = seconds(trial.tensor_names)
    found["tensor_names"] = median_seconds(trial.tensor_names, 50)
    found["steps"] = median_seconds(trial.steps, 50)
    found["has_passed_step"] = median_seconds(lambda: trial.has_passed_step(steps[-1] // 2), 50)
    tensor = trial.tensor("t0100")
    found["first value"] = seconds(lambda: tensor.value(steps[7]))
    found["first values"] = seconds(tensor.values)
    found["values"] = median_seconds(tensor.values, 5)
    each = iter(steps[::2])
    found["value"] = median_seconds(lambda: tensor.value(next(each)), 100)
    names = trial.tensor_names(step=steps[9])
    found["one step"] = seconds(lambda: [trial.tensor(name).value(steps[9]) for name in names])
    found["many"] = seconds(lambda: trial.values(names, [steps[11]]))
    found["means"] = seconds(lambda: [tensor.reduction_value(step, "mean") for step in tensor.steps()])
    print(json.dumps(found))


def pread_seconds() -> float:
    """One pread of 4 kB from a file that is open, and an array of it."""
    with scratch() as folder:
        path = folder / "plain"
        path.write_bytes(bytes(4000 * 1000))
        number = os.open(path, os.O_RDONLY)
        position = iter(range(0, 4000 * 1000, 4000))
        taken = median_seconds(lambda: np.frombuffer(os.pread(number, 4000, next(position)), np.float32), 500)
        os.close(number)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", choices=[*KINDS])
    parser.add_argument("--read", choices=[*KINDS])
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.out, close=not arguments.live)
    elif arguments.read:
        read(arguments.read, arguments.out)
    else:
        header("Reading, in a fresh process, page cache warm")
        for live in (False, True):
            _measure(live)


def _measure(live: bool) -> None:
    state = "of a live run" if live else "of an ended run"
    flag = ["--live"] if live else []
    with scratch() as folder:
        for kind in KINDS:
            in_fresh_process(__file__, "--write", kind, "--out", folder / kind, *flag)
        scalars = json.loads(in_fresh_process(__file__, "--read", "scalars", "--out", folder / "scalars"))
        tensors = json.loads(in_fresh_process(__file__, "--read", "tensors", "--out", folder / "tensors"))
    line(f"1 million scalars {state}: open and first answer", f"{scalars['open']:.3f} s", "0.5 s")
    line("  memory for that, beyond the imports", f"{scalars['megabytes']:.0f} MB", "250 MB")
    for what in ("tensor_names", "steps", "has_passed_step"):
        line(f"  {what}, nothing new", f"{scalars[what] * 1e3:.3f} ms", "1 ms")
    line("  means of one of them, at each of 2000 steps", f"{scalars['means'] * 1e3:.1f} ms")
    line(f"200,000 tensors of 4 kB {state}: open, first answer", f"{tensors['open']:.3f} s")
    line("  first value of all", f"{tensors['first value'] * 1e3:.1f} ms")
    limit = pread_seconds()
    line("  a further value", f"{tensors['value'] * 1e6:.0f} us = {tensors['value'] / limit:.1f}x one pread", "200 us")
    line("  values() of 1000 steps, first and again", _milliseconds(tensors, "first values", "values"), "40 ms")
    line("  one step: 200 tensors by value(), by trial.values()", _milliseconds(tensors, "one step", "many"))


def _milliseconds(found: dict[str, float], *what: str) -> str:
    return ", ".join(f"{found[each] * 1e3:.1f} ms" for each in what)


if __name__ == "__main__":
    main()
