"""A training job whose every saved value can be computed again, bit by bit, from (session, rank, index).

An index counts the steps of one session of one worker. A reader of a step finds its session and index in it, and
compares all that is saved there with what the same training gives once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

import tensortrial.hooks.pytorch as tt
from support.training import BATCH, Net, digits, seeded
from tensortrial import modes

LOSS, NOISE, SESSION, INDEX = "CrossEntropyLoss_output_0", "noise", "session", "index"
EVAL_EVERY = 7
"""One of so many steps is an evaluation."""
_SIZES = (1, 10, 300, 5_000, 60_000)
"""Elements of the noise, so that a step has bytes from few to many."""

Values = dict[str, np.ndarray]


class Training:
    """A small network that learns digits, the same way each time."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.net, self.loss = seeded(Net), nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, index: int) -> Values:
        """Train, or evaluate, on a batch. Return what a hook saves of it, as copies."""
        x, y = digits()
        start = index % (len(x) // BATCH) * BATCH
        images, labels = x[start : start + BATCH], y[start : start + BATCH]
        saved = {f"Net_{name}": array(p) for name, p in self.net.named_parameters() if name.endswith("weight")}
        if mode_of(index) is modes.EVAL:
            with torch.no_grad():
                self.net(images)
            return saved
        self._optimizer.zero_grad()
        value = self.loss(self.net(images), labels)
        value.backward()
        saved[LOSS] = array(value)
        saved |= {f"gradient/Net_{name}": array(p.grad) for name, p in self.net.named_parameters()}
        self._optimizer.step()
        return saved


def mode_of(index: int) -> Any:
    return modes.EVAL if index % EVAL_EVERY == EVAL_EVERY - 1 else modes.TRAIN


def array(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy().copy()


def noise(session: int, rank: int, index: int) -> np.ndarray:
    """Return numbers that no other step has, more or less many."""
    rng = np.random.default_rng((session, rank, index))
    return rng.random(rng.choice(_SIZES), np.float32)


class Truth:
    """What each step must hold."""

    def __init__(self) -> None:
        self._training = Training()
        self._steps: list[Values] = []

    def values(self, session: int, rank: int, index: int) -> Values:
        """Return all that a worker saves at a step, by name."""
        while len(self._steps) <= index:
            self._steps.append(self._training.step(len(self._steps)))
        own = {SESSION: np.array(float(session)), INDEX: np.array(float(index)), NOISE: noise(session, rank, index)}
        return {**self._steps[index], **own}


@dataclass(frozen=True)
class JobOptions:
    """How a worker trains and saves."""

    url: str
    rank: int = 0
    num_workers: int = 1
    session: int = 0
    resume: bool = False
    steps: int = 1_000_000
    pause_seconds: float = 0.003
    """Between two steps: a real one takes longer than one of this small network."""
    flush_every: int = 5
    """Call `hook.flush()` after so many steps, and report that they are published."""
    hook: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the hook."""


def train(
    options: JobOptions,
    published: Callable[[int], object] = lambda index: None,
    asked_to_end: Callable[[], bool] = lambda: False,
) -> None:
    """Train and save to the end. Call `published` with an index when it, and all before, must be readable."""
    os.environ |= {"RANK": str(options.rank), "WORLD_SIZE": str(options.num_workers)}
    hook = tt.Hook(
        options.url,
        include_collections=["weights", "gradients", "losses"],
        include_workers="all",
        save_config=tt.SaveConfig(save_interval=1),
        resume=options.resume,
        **options.hook,
    )
    training = Training()
    hook.register_module(training.net)
    hook.register_loss(training.loss)
    for index in range(options.steps):
        hook.set_mode(mode_of(index))
        with hook.step():
            training.step(index)
            hook.save_scalar(SESSION, options.session)
            hook.save_scalar(INDEX, index)
            hook.save_tensor(NOISE, torch.from_numpy(noise(options.session, options.rank, index)))
        if index % options.flush_every == options.flush_every - 1:
            hook.flush()
            published(index)
        if asked_to_end():
            break
        time.sleep(options.pause_seconds)
    hook.close()
    published(index)
