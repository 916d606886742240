"""Writes, reads and compacts runs with the release that is first on PYTHONPATH, as lines of JSON on stdin ask for.

It uses what every release has: `Hook`, `create_trial`, `compact` and the errors. Each writer is a forked process, which
may end without closing its hook.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

STATISTICS = ("mean", "l2", "abs_max")
KINDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "weight": ("float32", (3, 4)),
    "large": ("float32", (30_000,)),
    "half": ("float16", (300,)),
    "integer": ("int64", (2, 0, 5)),
    "flags": ("bool", (7,)),
    "reduced": ("float32", (50,)),
}
"""The dtype and the shape of each tensor. Of `reduced` only statistics are kept."""

Row = list[Any]
"""Of a value: its dtype, its shape and a hash of its bytes; of statistics: their names and values."""


def value_of(name: str, step: int, rank: int) -> np.ndarray:
    """Return what a worker saves at a global step."""
    dtype, shape = KINDS[name]
    rng = np.random.default_rng((step, rank, [*KINDS].index(name)))
    value = (100 * rng.standard_normal(shape)).astype(dtype)
    if name == "large":
        value[step % 7 :: 1000] = np.nan
    return value


def digest(value: np.ndarray) -> str:
    """Return a hash of the bytes of an array."""
    return hashlib.blake2b(value.tobytes(), digest_size=12).hexdigest()


def write(run: str, rank: int, options: dict[str, Any], all_begin: Callable[[], object]) -> None:
    """Save some steps as one worker, and close the hook or end without.

    A worker of a new run is refused if another has ended before it begins, so none ends before `all_begin` returns.
    """
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(options["workers"]),
        "TENSORTRIAL_STRICT": "1",
    }
    import tensortrial
    import tensortrial.hooks.pytorch as tt

    hook = tt.Hook(
        run,
        include_workers="all",
        include_collections=["weights", "reduced"],
        save_config=tensortrial.SaveConfig(save_interval=1),
        flush_seconds=3600,
        resume=options["resume"],
        codec=options["codec"],
    )
    hook.get_collection("reduced").include("^reduced$")
    hook.get_collection("reduced").reduction_config = tensortrial.ReductionConfig.from_names(STATISTICS)
    hook.get_collection("weights").reduction_config = tensortrial.ReductionConfig.from_names(
        STATISTICS, save_raw_tensor=True
    )
    if options.get("goes_back"):
        hook.resume_at(sum(step % 3 != 2 for step in range(options["first"])), tensortrial.modes.TRAIN)
    for step in range(options["first"], options["first"] + options["steps"]):
        hook.set_mode(tensortrial.modes.EVAL if step % 3 == 2 else tensortrial.modes.TRAIN)
        with hook.step():
            hook.save_scalar("loss", float(step + 0.25 * rank))
            for name in KINDS:
                collection = {"weight": "weights", "reduced": "reduced"}.get(name, "default")
                hook.save_tensor(name, value_of(name, step, rank), collection)
        if step == options["first"]:
            all_begin()
        if step % options["flush_every"] == 0:
            hook.flush()
    if options["closes"]:
        hook.close()
    else:
        hook.flush()


def write_in_children(request: dict[str, Any]) -> None:
    """Fork a writer for each worker, and wait for them all."""
    barrier = multiprocessing.get_context("fork").Barrier(request["workers"])
    children = [
        _forked(lambda rank=rank: write(request["run"], rank, request, lambda: barrier.wait(60)))
        for rank in range(request["workers"])
    ]
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(ended):
        raise RuntimeError(f"the writers ended with {ended}")


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - the process ends
        traceback.print_exc()
    os._exit(status)


class Reader:
    """Reads runs, each by a trial that stays open and by a new one."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}

    def read(self, run: str) -> dict[str, Any]:
        """Return all that a run holds; of two trials that must answer the same."""
        import tensortrial

        fresh = tensortrial.create_trial(run)
        found = rows(fresh)
        fresh.close()
        if run not in self._open:
            self._open[run] = tensortrial.create_trial(run)
        kept = rows(self._open[run])
        if kept != found:
            raise AssertionError(f"a trial that is open differs from a new one: {kept} and {found}")
        return found


def rows(trial: Any) -> dict[str, Any]:
    """Return every row of a run by step, worker and name, and the count of SQL."""
    trial.refresh()  # an ended run is rescanned once a second only
    found: dict[str, Row] = {}
    for step in trial.steps(show_incomplete_steps=True):
        for name in trial.tensor_names(step=step):
            tensor = trial.tensor(name)
            for worker in tensor.workers(step):
                found[f"{step}/{worker}/{name}"] = _row(tensor, step, worker)
    ((counted,),) = trial.sql("select count(*) from tensors").fetchall()
    ((read,),) = trial.sql("select count(value) from tensor_values").fetchall()
    return {"rows": found, "counted": counted, "values": read, "damaged": {k: str(v) for k, v in trial.damaged.items()}}


def _row(tensor: Any, step: int, worker: str) -> Row:
    saved = {
        f"abs_{name}" if absolute else name: float(value)
        for (name, absolute), value in tensor.reduction_values(step, worker=worker).items()
    }
    kept = {name: saved.get(name) for name in STATISTICS} if tensor.name in ("weight", "reduced") else {}
    if tensor.name == "reduced":
        return [None, None, None, kept]
    value = tensor.value(step, worker=worker)
    return [value.dtype.name, list(value.shape), digest(value), kept]


def compact(request: dict[str, Any]) -> dict[str, Any]:
    import tensortrial

    done = tensortrial.compact(request["run"], grace=0)
    return {"damaged": {path: str(error) for path, error in done.damaged.items()}}


def answer(request: dict[str, Any], reader: Reader) -> Any:
    match request["do"]:
        case "write":
            return write_in_children(request)
        case "read":
            return reader.read(request["run"])
        case "compact":
            return compact(request)
        case "version":
            import tensortrial

            return [tensortrial.__version__, tensortrial.__file__]


def main() -> None:
    import tensortrial.hooks.pytorch  # once, for all writers that are forked

    del tensortrial
    reader = Reader()
    for line in sys.stdin:
        try:
            reply = {"reply": answer(json.loads(line), reader)}
        except Exception as exc:  # noqa: BLE001 - the other process judges it
            kinds = [kind.__name__ for kind in type(exc).__mro__]
            reply = {"error": traceback.format_exc(), "kinds": kinds}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
