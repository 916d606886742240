"""Single bits that are flipped in one of two equal runs, each of which a comparison must name."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tensortrial
from support.runs import EVAL, TRAIN, Job

STEPS, WORKERS = 5, ("worker_0", "worker_1")
NAMES = ("net.weight", "net_input_0", "net_output_0", "half", "flags", "loss")


def values_of(step: int, worker: int) -> dict[str, Any]:
    """Return the values of a step in the order of execution; they hold NaN, infinity and zeros of both signs."""
    random = np.random.default_rng([step, worker])
    output = random.standard_normal((3, 5)).astype(np.float32)
    output.flat[:4] = [np.nan, np.inf, 0.0, -0.0]
    return {
        "net.weight": random.standard_normal((4, 3)),
        "net_input_0": random.integers(-9, 9, (2, 6)).astype(np.int16),
        "net_output_0": output,
        "half": random.standard_normal(7).astype(ml_dtypes.bfloat16),
        "flags": random.integers(0, 2, (3, 3)).astype(np.uint8),
        "loss": np.array(random.standard_normal()),
    }


def write(folder: Path, flip: tuple[int, int, str, int] | None = None) -> Path:
    """Write a run of two workers, with one bit flipped: (step, worker, name, bit)."""
    with ExitStack() as stack:
        options = {"is_ordered": True, "flush_seconds": 3600}
        jobs = [stack.enter_context(Job(folder, worker, len(WORKERS), **options)) for worker in WORKERS]
        for number, job in enumerate(jobs):
            for step in range(STEPS):
                values = values_of(step, number)
                if flip is not None and flip[:2] == (step, number):
                    data = values[flip[2]].reshape(-1).view(np.uint8)
                    data[flip[3] // 8] ^= 1 << flip[3] % 8
                job.step(values, EVAL if step == 3 else TRAIN)
    return folder


def check(flip: tuple[int, int, str, int], equal: tensortrial.Trial, folder: Path) -> None:
    """Raise AssertionError unless a comparison names the step, the tensor and the worker of a flip, and no other."""
    found = tensortrial.compare(equal, write(folder, flip))
    step, worker, name, _ = flip
    assert found.first is not None, flip
    (difference,) = found.differences
    named = difference.global_step, difference.worker, difference.name
    assert named == (step, WORKERS[worker], name), (flip, found.sentence)
    assert found.first.place == NAMES.index(name) + 1, (flip, found.sentence)


def flips(count: int, seed: int) -> list[tuple[int, int, str, int]]:
    """Return random flips."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        name = NAMES[random.integers(len(NAMES))]
        bits = values_of(0, 0)[name].nbytes * 8
        found.append((int(random.integers(STEPS)), int(random.integers(2)), name, int(random.integers(bits))))
    return found
