"""A job of no framework, which starts in a fraction of a second, and the checks of what it must have saved.

An index counts the steps of one session. Every value follows from (session, index), which each step holds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.plain_hook import Hook
from support.programs import start_cold
from tensortrial import create_trial

BEGINNING = f"""
    import datetime, errno, os, pathlib, resource, shutil, signal, subprocess, sys, time
    sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
    import numpy as np
    from plain_job import noise, published, save
    from support.plain_hook import Hook

    url = "disk/run"
"""
OFF = "is off from here on, training is not affected"
"""What the log says when a hook turns itself off."""
_SIZES = (1, 10, 300, 5_000, 20_000)
"""Elements of the noise, so that a step has bytes from few to many."""


def noise(session: int, index: int) -> np.ndarray:
    """Return numbers that no other step has, more or less many."""
    rng = np.random.default_rng((session, index))
    return rng.random(rng.choice(_SIZES), np.float32)


def save(hook: Hook, session: int, index: int) -> None:
    """Save a step."""
    hook.save_scalar("session", session)
    hook.save_scalar("index", index)
    hook.save_tensor("noise", noise(session, index))
    hook.set_mode("TRAIN")  # closes the step


def published(hook: Hook, session: int, index: int) -> bool:
    """Save a step, and return whether it and all before it are published."""
    save(hook, session, index)
    hook.flush()
    return hook.recorder.active


def problems(url: str, promised: dict[int, int]) -> list[str]:
    """Read a run, and return what is wrong in it.

    Args:
        url: The run.
        promised: The last index that was published, by session.
    """
    trial = create_trial(url)
    found = [f"{path} is damaged: {error}" for path, error in trial.damaged.items()]
    indexes: dict[int, list[int]] = {}
    steps = trial.steps(show_incomplete_steps=True)
    values = trial.values(["session", "index", "noise"], steps)
    for step in steps:
        session, index = int(values["session"][step]), int(values["index"][step])
        indexes.setdefault(session, []).append(index)
        if values["noise"][step].tobytes() != noise(session, index).tobytes():
            found.append(f"step {step}, index {index} of session {session}, is wrong")
    for session, present in indexes.items():
        if present != list(range(len(present))):
            found.append(f"session {session} has the indexes {present}")
    for session, last in promised.items():
        if missing := sorted(set(range(last + 1)).difference(indexes.get(session, []))):
            found.append(f"session {session} published {last + 1} steps; {missing} are missing")
    ((rows,),) = trial.sql("select count(*) from tensors where name in ('session', 'index', 'noise')").fetchall()
    if rows != 3 * len(steps):
        found.append(f"SQL counts {rows} rows of {len(steps)} steps")
    if damaged := trial.verify().damaged:
        found.append(f"verification finds {damaged}")
    return found


def resume(url: str, session: int) -> None:
    """Resume a run, and save and publish three steps."""
    hook = Hook(url, resume=True)
    assert all(published(hook, session, index) for index in range(3))
    hook.close()


def finished(script: str, folder: Path, **variables: str) -> tuple[int, list[str], str]:
    """Run a program to its end. Return its exit code, the lines it wrote, and what it wrote to stderr."""
    with start_cold(f"{BEGINNING}{script}", folder, TENSORTRIAL_STRICT="0", **variables) as process:
        try:
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
    return process.returncode, out.split(), err


def check(folder: Path, promised: dict[int, int]) -> None:
    """Check that a run has what was published, that every step is right, and that the run can be resumed."""
    url = str(folder / "disk" / "run")
    assert problems(url, promised) == []
    session = max(promised, default=0) + 1
    resume(url, session)
    assert problems(url, {**promised, session: 2}) == []
    assert create_trial(url).loaded_all_steps
