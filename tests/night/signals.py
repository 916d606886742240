"""SIGTERM at a random moment of a job, and pools and data loaders that it forks: processes end, and runs are closed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from random import Random

from night.finder import always

from support.programs import start
from tensortrial import create_trial

BEGINNING = """
    import multiprocessing, os
    from support.plain_hook import Hook

    def begin():
        hook = Hook("run", flush_seconds=float(os.environ.get("FLUSH", "1000")))
        for step in range(3):
            hook.save_scalar("x", step)
            hook.set_mode("TRAIN")  # closes the step
        return hook
"""
ENDLESS = f"""{BEGINNING}
    hook = begin()
    print("ready", flush=True)
    for i in range(10**9):
        hook.save_scalar("x" + str(i % 10), i)
        if i % 10 == 0:
            hook.set_mode("TRAIN")
"""
POOLS = f"""{BEGINNING}
    def square(number):
        return number * number

    hook = begin()
    for _ in range(int(os.environ["COUNT"])):
        pool = multiprocessing.get_context("fork").Pool(4)
        assert pool.map(square, range(8)) == [n * n for n in range(8)]
        pool.terminate()
        pool.join()
    hook.close()
"""
LOADERS = f"""{BEGINNING}
    from torch.utils.data import DataLoader, TensorDataset
    import torch

    torch.set_num_threads(1)
    data = TensorDataset(torch.arange(16.0))
    persistent = os.environ["PERSISTENT"] == "1"
    hook = begin()
    for _ in range(int(os.environ["COUNT"])):
        loader = DataLoader(
            data, batch_size=2, num_workers=4, multiprocessing_context="fork", persistent_workers=persistent
        )
        for _ in range(1 + persistent):
            assert sum(batch.sum().item() for (batch,) in loader) == 120
        # Left in the middle, as a training does that stops early.
        next(iter(loader))
        del loader
    hook.close()
"""


def ends(folder: Path, program: str, processes: int = 1, **variables: str) -> None:
    """Check that a program ends without an error, here that many processes of it at once."""
    folders = [folder / str(number) for number in range(processes)]
    for each in folders:
        each.mkdir()
    started = [start(program, each, **variables) for each in folders]
    try:
        for process in started:
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
    finally:
        for process in started:
            process.kill()
            process.communicate()


def terminate(folder: Path, seconds: float, flush_seconds: float) -> None:
    """Send SIGTERM to a job that saves, some seconds after its first steps, and check that its run is closed."""
    with start(ENDLESS, folder, FLUSH=str(flush_seconds)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM, err
    assert err == ""
    assert create_trial(folder / "run").loaded_all_steps


def _case(random: Random, own: Path) -> Counter[str]:
    kind = random.choices(["SIGTERM", "pools", "loaders"], [6, 2, 1])[0]
    if kind == "SIGTERM":
        terminate(own, random.uniform(0, 0.3), random.choice([0.0, 0.0, 0.02, 1000.0]))
        return Counter({"jobs ended by SIGTERM": 1})
    if kind == "pools":
        # A pool mostly waits: its threads check every tenth of a second whether it ends.
        ends(own, POOLS, processes=4, COUNT="15")
        return Counter(pools=60)
    ends(own, LOADERS, COUNT="20", PERSISTENT=str(random.randrange(2)))
    return Counter({"data loaders": 20})


prepared = always(_case)
