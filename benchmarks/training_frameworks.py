"""The cost of a hook in a step of Keras, of TensorFlow sessions, of MXNet, of Lightning and of the Trainer.

Every case is a process of its own on one core, in turns with training without a hook, so that a busy moment of the
machine hits all alike. Prints how many times the step without a hook a step takes, by the clock.

With --cpu, one process trains two equal models in two threads that take turns, step by step, one of them with a hook.
It takes the CPU time of the whole process but that of the writer's thread, because some frameworks compute on threads
of their own. From the medians of the differences of neighboring steps follows what a run of 2,000 steps costs.

    python benchmarks/training_frameworks.py --loop keras --case raw --case statistics
    python benchmarks/training_frameworks.py --loop keras --loop lightning --loop transformers --case default --cpu
    .venv-mxnet/bin/python benchmarks/training_frameworks.py --loop mxnet --loop mxnet_hybridized
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import header, in_fresh_process, line, scratch
from training import NINE, build_resnet

CASES = {
    "default": ("what a hook saves by default", "1.02x of 2,000 steps"),
    "nothing": ("hook attached, nothing due", "1.03x"),
    "losses": ("losses and metrics, every step", ""),
    "raw": ("weights, biases, gradients, outputs, raw, every step", "2.0x"),
    "statistics": ("nine statistics of the same, every step", "2.0x"),
    "raw10": ("the same raw, every 10 steps", "1.15x"),
    "all": ("everything, raw, every step", ""),
}
IMAGES = 32
WARMUP = 10
Clock = Callable[[], None]
Made = Callable[[type], Any]
"""Makes a hook of a class, or None."""


def hook_for(case: str, out_dir: str, kind: type) -> Any:
    """Return a hook of any framework for a case."""
    from tensortrial.config.reduction_config import ReductionConfig
    from tensortrial.config.save_config import SaveConfig

    if case == "none":
        return None
    if case == "default":
        return kind(out_dir)
    every = SaveConfig(save_interval={"nothing": 10**9, "raw10": 10}.get(case, 1))
    if case in ("nothing", "losses"):
        return kind(out_dir, save_config=every)
    if case == "all":
        return kind(out_dir, save_config=every, save_all=True)
    return kind(
        out_dir,
        save_config=every,
        include_collections=["weights", "biases", "gradients"],
        include_regex=["/outputs", "_output_"],
        reduction_config=ReductionConfig(**NINE) if case == "statistics" else None,
    )


def _keras_layers():
    from keras import layers

    convolutions = (layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(6))
    return [layers.Input((16, 16, 3)), *convolutions, layers.GlobalAveragePooling2D(), layers.Dense(10)]


def _set_up_keras():
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    return keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def keras(make: Made, steps: int, clock: Clock, compiled: bool = False) -> None:
    """Train a convolutional network by `fit`, as a graph."""
    import keras
    import numpy as np

    from tensortrial.hooks.keras import KerasHook

    class Ticks(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            clock()

    optimizer, loss = _set_up_keras()
    model, hook = keras.Sequential(_keras_layers()), make(KerasHook)
    model.compile(optimizer, loss=loss, metrics=["accuracy"], jit_compile=compiled)
    images = np.random.default_rng(0).normal(size=(IMAGES * steps, 16, 16, 3)).astype("float32")
    callbacks = [Ticks(), *([] if hook is None else [hook])]
    model.fit(images, np.arange(len(images)) % 10, batch_size=IMAGES, verbose=0, callbacks=callbacks)
    if hook is not None:
        hook.close()


def tape(make: Made, steps: int, clock: Clock) -> None:
    """Train the same network by a loop with a `GradientTape` in a `tf.function`."""
    import keras
    import tensorflow as tf

    from tensortrial.hooks.keras import KerasHook

    optimizer, compute = _set_up_keras()
    model, hook = keras.Sequential(_keras_layers()), make(KerasHook)

    @tf.function
    def step(x, y):
        with tf.GradientTape() if hook is None else hook.wrap_tape(tf.GradientTape()) as tape:
            loss = compute(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    x, y = tf.random.normal((IMAGES, 16, 16, 3)), tf.range(IMAGES) % 10
    for _ in range(steps):
        clock()
        step(x, y)
    if hook is not None:
        hook.close()


def session(make: Made, steps: int, clock: Clock) -> None:
    """Train a convolutional network with 4.4 MB of weights by `session.run`."""
    import tensorflow as tf

    from tensortrial.hooks.tensorflow import SessionHook

    v1, hook = tf.compat.v1, make(SessionHook)
    with tf.Graph().as_default():
        v1.set_random_seed(0)
        channels, hidden = 3, tf.random.stateless_normal([IMAGES, 16, 16, 3], seed=[1, 2])
        for number in range(6):
            kernel = v1.get_variable(f"conv{number}/kernel", [3, 3, channels, 32])
            bias = v1.get_variable(f"conv{number}/bias", [32], initializer=v1.zeros_initializer())
            hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(hidden, kernel, 1, "SAME"), bias))
            channels = 32
        kernel = v1.get_variable("dense/kernel", [16 * 16 * 32, 128])
        out = v1.get_variable("out/kernel", [128, 10])
        logits = tf.nn.relu(tf.reshape(hidden, [IMAGES, -1]) @ kernel) @ out
        loss = v1.losses.sparse_softmax_cross_entropy(tf.range(IMAGES) % 10, logits)
        optimizer = v1.train.GradientDescentOptimizer(0.01)
        train = (optimizer if hook is None else hook.wrap_optimizer(optimizer)).minimize(loss)
        config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        creator = v1.train.ChiefSessionCreator(config=config)
        with v1.train.MonitoredSession(creator, hooks=[] if hook is None else [hook]) as running:
            for _ in range(steps):
                clock()
                running.run(train)
    if hook is not None:
        hook.close()


def mxnet(make: Made, steps: int, clock: Clock, hybridized: bool = False) -> None:
    """Train a residual network, of whose tensors a step has 16 MB."""
    import mxnet as mx
    from mxnet import autograd, gluon
    from mxnet.gluon import nn

    from tensortrial.hooks.mxnet import Hook

    class Block(gluon.HybridBlock):
        def __init__(self, channels):
            super().__init__()
            with self.name_scope():
                self.conv1, self.norm1 = nn.Conv2D(channels, 3, padding=1), nn.BatchNorm()
                self.conv2, self.norm2 = nn.Conv2D(channels, 3, padding=1), nn.BatchNorm()
                self.relu1, self.relu2 = nn.Activation("relu"), nn.Activation("relu")

        def hybrid_forward(self, F, x):  # noqa: N803
            return self.relu2(x + self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x))))))

    mx.random.seed(0)
    net, loss, hook = nn.HybridSequential(), gluon.loss.SoftmaxCrossEntropyLoss(), make(Hook)
    with net.name_scope():
        net.add(nn.Conv2D(16, 3, padding=1), *[Block(16) for _ in range(4)], nn.GlobalAvgPool2D(), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    for block in (net, loss):
        if hybridized:
            block.hybridize()
        if hook is not None:
            hook.register_block(block)
    x, y = mx.nd.random.normal(shape=(IMAGES, 3, 16, 16)), mx.nd.array([i % 10 for i in range(IMAGES)])
    for _ in range(steps):
        clock()
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(IMAGES)
        # MXNet computes in the background: without waiting, only the time to enqueue a step would be measured.
        mx.nd.waitall()
    if hook is not None:
        hook.close()


def lightning(make: Made, steps: int, clock: Clock) -> None:
    """Train the residual network of `training.py` by Lightning's Trainer."""
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

    callback = make(Callback)
    callbacks = [Ticks(), *([] if callback is None else [callback])]
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet = {"enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_steps=steps, callbacks=callbacks, **options, **quiet)
    trainer.fit(Module(), torch.utils.data.DataLoader([(x, y)] * steps, batch_size=None))
    if callback is not None:
        callback.close()


def transformers(make: Made, steps: int, clock: Clock) -> None:
    """Train the residual network of `training.py` by the Trainer of transformers."""
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

    callback = make(TensorTrialCallback)
    with scratch() as folder:
        options = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
        arguments = TrainingArguments(
            str(folder), max_steps=steps, per_device_train_batch_size=IMAGES, logging_steps=10_000, **options
        )
        data = [{"x": x[i % IMAGES], "labels": y[i % IMAGES]} for i in range(IMAGES * steps)]
        callbacks = [Ticks(), *([] if callback is None else [callback])]
        Trainer(Model(), arguments, train_dataset=data, callbacks=callbacks).train()
    if callback is not None:
        callback.close()


LOOPS: dict[str, Callable[[Made, int, Clock], None]] = {
    "keras": keras,
    "keras_xla": partial(keras, compiled=True),
    "tape": tape,
    "session": session,
    "mxnet": mxnet,
    "mxnet_hybridized": partial(mxnet, hybridized=True),
    "lightning": lightning,
    "transformers": transformers,
}


class Turns:
    """Two trainings that take turns, step by step, so that a busy moment of the machine hits both alike."""

    def __init__(self, loop: Callable[[Made, int, Clock], None], makes: tuple[Made, Made], steps: int) -> None:
        self.seconds: list[list[float]] = [[], []]
        self._turn, self._is_alive, self._begun = 0, [True, True], [0.0, 0.0]
        self._changed = threading.Condition()
        threads = [threading.Thread(target=self._train, args=(me, loop, makes[me], steps)) for me in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _train(self, me: int, loop: Callable[[Made, int, Clock], None], make: Made, steps: int) -> None:
        self._wait(me)
        try:
            loop(make, steps, lambda: self._tick(me))
        finally:
            with self._changed:
                self._is_alive[me] = False
                self._turn = 1 - me
                self._changed.notify_all()

    def _tick(self, me: int) -> None:
        self.seconds[me].append(_cpu_seconds() - self._begun[me])
        with self._changed:
            self._turn = 1 - me
            self._changed.notify_all()
        self._wait(me)
        self._begun[me] = _cpu_seconds()

    def _wait(self, me: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == me or not self._is_alive[1 - me])


def _cpu_seconds() -> float:
    """Return the CPU time of all threads but writers."""
    writers = [each for each in threading.enumerate() if each.name.startswith("tensortrial-")]
    return time.process_time() - sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident)) for each in writers)


def compare_in_turns(loop: str, case: str, steps: int, rounds: int) -> None:
    """Print what a case costs in CPU time, at steps at which tensors are due by default and at all others."""
    from tensortrial.config.save_config import GROWING, SaveConfigMode

    is_due = SaveConfigMode(GROWING).should_save_step
    share = sum(map(is_due, range(2000))) / 2000
    bare, quiet, due = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        with scratch() as folder:
            makes = lambda kind: None, partial(hook_for, case, str(folder / "run"))
            without, hooked = Turns(LOOPS[loop], makes, steps + 1).seconds
        # The first tick is before step 0, which warms up.
        bare += without[5:]
        for step, (base, taken) in enumerate(zip(without[1:], hooked[1:], strict=False)):
            if step > 3:
                (due if is_due(step) else quiet).append(taken - base)
    base, at_quiet, at_due = map(statistics.median, (bare, quiet, due))
    ratio = 1 + (at_quiet + share * (at_due - at_quiet)) / base
    text = f"{ratio:.3f}x; a step {1e3 * base:.1f} ms, not due {1e3 * at_quiet:+.2f} ms, due {1e3 * at_due:+.2f} ms"
    line(f"{loop}: {CASES[case][0]}", text, CASES[case][1])


def compare(loop: str, cases: list[str], steps: int, rounds: int) -> None:
    """Print a line for each case: times a step without a hook, by the clock."""
    taken: dict[str, list[tuple[float, float]]] = {case: [] for case in ("none", *cases)}
    for _ in range(rounds):
        for case, found in taken.items():
            with scratch() as folder:
                options = ("--loop", loop, "--case", case, "--out", folder / "run", "--steps", steps)
                median, mean = map(float, in_fresh_process(__file__, *options).split()[-2:])
            found.append((median, mean))
    bare = taken.pop("none")
    line(f"{loop}: a step without a hook", f"{statistics.median(median for median, _ in bare):.1f} ms")
    for case, found in taken.items():
        ratios = [(each[0] / base[0], each[1] / base[1]) for each, base in zip(found, bare, strict=True)]
        median, mean = map(statistics.median, zip(*ratios, strict=True))
        line(f"  {CASES[case][0]}", f"{median:.2f}x (mean step {mean:.2f}x)", CASES[case][1])


def run_case(loop: str, case: str, out_dir: str, steps: int) -> None:
    """Train and print the median and the mean milliseconds of a step."""
    begun: list[float] = []
    LOOPS[loop](partial(hook_for, case, out_dir), WARMUP + steps + 1, lambda: begun.append(time.perf_counter()))
    taken = [1e3 * (end - begin) for begin, end in zip(begun[WARMUP:], begun[WARMUP + 1 :], strict=False)]
    print(statistics.median(taken), statistics.mean(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", action="append", choices=list(LOOPS), required=True)
    parser.add_argument("--case", action="append", choices=["none", *CASES])
    parser.add_argument("--cpu", action="store_true", help="CPU times only, of two trainings in turns in one process")
    parser.add_argument("--out", help="train one case, once, into this folder")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", OMP_NUM_THREADS="1")
    cases = arguments.case or list(CASES)
    if arguments.out:
        run_case(arguments.loop[0], cases[0], arguments.out, arguments.steps)
        return
    header("Hooks of frameworks: times a step without a hook, medians of the rounds")
    for loop in arguments.loop:
        if arguments.cpu:
            for case in cases:
                compare_in_turns(loop, case, arguments.steps, arguments.rounds)
        else:
            compare(loop, cases, arguments.steps, arguments.rounds)


if __name__ == "__main__":
    main()
