"""The Keras hook does what every hook must."""

from __future__ import annotations

from typing import Any

import keras

import tensortrial.hooks.tensorflow as tt
from support.hook_conformance import HookConformance, Job
from support.keras_training import data, gradients, small
from tensortrial.mode import ModeKeys, modes

NUMBER, TENSOR, GRADIENT = "loss", "fc1/weights/fc1/kernel:0", "gradients/fc1/kernelGrad"


class Watch(keras.callbacks.Callback):
    """What Keras reports at each step, the weight before it, and the gradient, computed once more."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, Any]] = []

    def weight(self) -> Any:
        return self.model.get_layer("fc1").get_weights()[0]

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.seen.append({TENSOR: self.weight(), GRADIENT: gradients(self.model, *data(1, batch))["fc1/kernel"]})

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen[-1][NUMBER] = float(logs["loss"])

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.seen.append({TENSOR: self.weight()})

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen[-1][NUMBER] = float(logs["loss"])


class KerasJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook, self.model = hook, small(metrics=[])

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        watch = Watch()
        callbacks = [watch, *([self.hook] if self.hook is not None else [])]
        run = self.model.evaluate if mode is modes.EVAL else self.model.fit
        x, y = data(steps)
        options = {} if mode is modes.EVAL else {"shuffle": False}
        run(x, y, batch_size=32, verbose=0, callbacks=callbacks, **options)
        return watch.seen

    def parts(self) -> list[Any]:
        return [self.model, self.model.optimizer]


class TestKeras(HookConformance):
    module, framework, hook_class = tt, "keras", "KerasHook"
    number, tensor, gradient = NUMBER, TENSOR, GRADIENT
    defaults = ("losses", "metrics", "sm_metrics")
    growing = ("health",)
    mode = modes.TRAIN

    def make_job(self, hook: Any) -> KerasJob:
        return KerasJob(hook)
