"""The JAX hook does what every hook must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import tensortrial.hooks.jax as tt  # noqa: E402
from support.hook_conformance import HookConformance, Job  # noqa: E402
from tensortrial.mode import ModeKeys, modes  # noqa: E402

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32)


@jax.jit
@jax.value_and_grad
def loss_of(params: Any) -> Any:
    return ((X @ params["dense"]["kernel"] + params["dense"]["bias"] - Y) ** 2).mean()


class JAXJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.params = {"dense": {"kernel": jax.numpy.ones((3, 1)), "bias": jax.numpy.zeros(1)}}

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        if mode is not None:
            self.hook.set_mode(mode)
        seen = []
        for _ in range(steps):
            loss, gradients = loss_of(self.params)
            if self.hook is not None:
                with self.hook.step():
                    self.hook.save_tree("losses", {"loss": loss})
                    self.hook.save_tree("weights", self.params)
                    self.hook.save_tree("gradients", gradients)
            seen.append(
                {
                    "loss": np.asarray(loss),
                    "dense/kernel": np.asarray(self.params["dense"]["kernel"]),
                    "gradient/dense/kernel": np.asarray(gradients["dense"]["kernel"]),
                }
            )
            if mode is not modes.EVAL:
                self.params = jax.tree.map(lambda each, slope: each - 0.1 * slope, self.params, gradients)
        return seen


class TestJAX(HookConformance):
    module, framework = tt, "jax"
    number, tensor, collection, gradient = "loss", "dense/kernel", "weights", "gradient/dense/kernel"
    step_stays_open = False

    def make_job(self, hook: Any) -> JAXJob:
        return JAXJob(hook)

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        # Without a choice, each tree that the job passes is saved.
        options.setdefault("include_collections", [])
        return super().make_hook(out_dir, **options)
