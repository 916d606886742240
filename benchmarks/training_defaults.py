"""The cost of the hooks' defaults in trainings by Keras, Lightning, the Trainer and MXNet: CPU without the writer's.

One process trains two equal models in two threads that take turns, step by step, one of them with a hook. It takes the
CPU time of the whole process but that of the writer's thread, because some frameworks compute on threads of their own,
and tells steps at which `health` is due from all others. From the medians of the differences of neighboring steps
follows what a run of 2,000 steps costs.

    python benchmarks/training_defaults.py --loop keras --loop lightning --loop transformers
    .venv-mxnet/bin/python benchmarks/training_defaults.py --loop mxnet
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable

from common import header, line, scratch
from training import build_resnet

IMAGES = 32
Clock = Callable[[], None]


def cpu_seconds() -> float:
    """Return the CPU time of all threads but writers."""
    writers = [each for each in threading.enumerate() if each.name.startswith("tensortrial-")]
    return time.process_time() - sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident)) for each in writers)


def keras(out_dir: str | None, steps: int, clock: Clock) -> None:
    import keras
    import numpy as np
    from training_keras import build

    from tensortrial.hooks.keras import KerasHook

    class Ticks(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            clock()

    hooks = [] if out_dir is None else [KerasHook(out_dir)]
    images = np.random.default_rng(0).normal(size=(IMAGES * (steps + 1), 16, 16, 3)).astype("float32")
    labels = np.arange(len(images)) % 10
    build(False).fit(images, labels, batch_size=IMAGES, verbose=0, callbacks=[Ticks(), *hooks])
    for hook in hooks:
        hook.close()


def lightning(out_dir: str | None, steps: int, clock: Clock) -> None:
    import logging

    import lightning
    import torch

    from tensortrial.hooks.lightning import Callback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    model, x, y = build_resnet()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.criterion = model, torch.nn.CrossEntropyLoss()

        def training_step(self, batch, index):
            loss = self.criterion(self.model(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Ticks(lightning.Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            clock()

    hooks = [] if out_dir is None else [Callback(out_dir)]
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet = {"enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_steps=steps + 1, callbacks=[Ticks(), *hooks], **options, **quiet)
    trainer.fit(Module(), torch.utils.data.DataLoader([(x, y)] * (steps + 1), batch_size=None))
    for hook in hooks:
        hook.close()


def transformers(out_dir: str | None, steps: int, clock: Clock) -> None:
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from tensortrial.hooks.transformers import TensorTrialCallback

    torch.set_num_threads(1)
    network, x, y = build_resnet()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network, self.criterion = network, torch.nn.CrossEntropyLoss()

        def forward(self, x, labels):
            logits = self.network(x)
            return {"loss": self.criterion(logits, labels), "logits": logits}

    class Ticks(TrainerCallback):
        def on_step_begin(self, arguments, state, control, **more):
            clock()

    with scratch() as folder:
        options = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
        arguments = TrainingArguments(
            str(folder), max_steps=steps + 1, per_device_train_batch_size=IMAGES, logging_steps=10_000, **options
        )
        data = [{"x": x[i % IMAGES], "labels": y[i % IMAGES]} for i in range(IMAGES * (steps + 1))]
        hooks = [] if out_dir is None else [TensorTrialCallback(out_dir)]
        Trainer(Model(), arguments, train_dataset=data, callbacks=[Ticks(), *hooks]).train()
        for hook in hooks:
            hook.close()


def mxnet(out_dir: str | None, steps: int, clock: Clock) -> None:
    import mxnet as mx
    from mxnet import autograd, gluon
    from training_mxnet import build

    from tensortrial.hooks.mxnet import Hook

    net, loss = build(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    hook = None if out_dir is None else Hook(out_dir)
    if hook is not None:
        hook.register_block(net)
        hook.register_block(loss)
    x, y = mx.nd.random.normal(shape=(IMAGES, 3, 16, 16)), mx.nd.array([i % 10 for i in range(IMAGES)])
    for _ in range(steps + 1):
        clock()
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(IMAGES)
        mx.nd.waitall()
    if hook is not None:
        hook.close()


LOOPS = {loop.__name__: loop for loop in (keras, lightning, transformers, mxnet)}


class Turns:
    """Two trainings that take turns, step by step, so that a busy moment of the machine hits both alike."""

    def __init__(self, loop: Callable[..., None], out_dir: str, steps: int) -> None:
        self.seconds: list[list[float]] = [[], []]
        self._turn, self._is_alive, self._begun = 0, [True, True], [0.0, 0.0]
        self._changed = threading.Condition()
        given = enumerate((None, out_dir))
        threads = [threading.Thread(target=self._train, args=(me, loop, where, steps)) for me, where in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _train(self, me: int, loop: Callable[..., None], out_dir: str | None, steps: int) -> None:
        self._wait(me)
        try:
            loop(out_dir, steps, lambda: self._tick(me))
        finally:
            with self._changed:
                self._is_alive[me] = False
                self._turn = 1 - me
                self._changed.notify_all()

    def _tick(self, me: int) -> None:
        self.seconds[me].append(cpu_seconds() - self._begun[me])
        with self._changed:
            self._turn = 1 - me
            self._changed.notify_all()
        self._wait(me)
        self._begun[me] = cpu_seconds()

    def _wait(self, me: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == me or not self._is_alive[1 - me])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", action="append", choices=list(LOOPS))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", OMP_NUM_THREADS="1")
    from tensortrial.config.save_config import GROWING, SaveConfigMode

    is_due = SaveConfigMode(GROWING).should_save_step
    share = sum(map(is_due, range(2000))) / 2000
    header("The defaults of hooks: CPU time of a step of a run of 2,000 steps, times that without a hook")
    for name in arguments.loop or LOOPS:
        bare, quiet, due = list[float](), list[float](), list[float]()
        for _ in range(arguments.rounds):
            with scratch() as folder:
                without, hooked = Turns(LOOPS[name], str(folder / "run"), arguments.steps).seconds
            # The first tick is before step 0, which warms up.
            bare += without[5:]
            for step, (base, taken) in enumerate(zip(without[1:], hooked[1:], strict=False)):
                if step > 3:
                    (due if is_due(step) else quiet).append(taken - base)
        base, at_quiet, at_due = map(statistics.median, (bare, quiet, due))
        more = [1e3 * each for each in (at_quiet, at_due)]
        ratio = 1 + (at_quiet + share * (at_due - at_quiet)) / base
        text = f"{ratio:.3f}x; a step {1e3 * base:.1f} ms, nothing due {more[0]:+.2f} ms, due {more[1]:+.2f} ms"
        line(name, text, "1.02x")


if __name__ == "__main__":
    main()
