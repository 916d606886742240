"""What a hook costs Keras' `fit`: a small convolutional network on one core, with and without.

Every case is a process of its own, in turns, so that a busy moment of the machine hits all alike.

    make bench-keras
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from common import header, in_fresh_process, line, scratch

AIMS = {
    "nothing": ("hook passed, nothing due", "1.03x"),
    "losses": ("losses and metrics, every step", ""),
    "raw10": ("weights, gradients, all layers' outputs, raw, every 10 steps", "1.15x"),
    "statistics": ("nine statistics of the same, every step", "1.5x"),
    "raw": ("the same raw, every step", ""),
}
NINE = {"reductions": ["min", "max", "mean", "std", "variance", "sum", "prod"], "norms": ["l1", "l2"]}


def hook_for(case: str, out_dir: str):
    import tensortrial.hooks.keras as tt

    chosen = case not in ("nothing", "losses")
    return tt.KerasHook(
        out_dir,
        save_config=tt.SaveConfig(save_interval={"nothing": 10**9, "raw10": 10}.get(case, 1)),
        include_collections=["weights", "biases", "gradients"] if chosen else None,
        include_regex=["/outputs"] if chosen else None,
        reduction_config=tt.ReductionConfig(**NINE) if case == "statistics" else None,
    )


def build(compiled: bool):
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            *(layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(6)),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss=loss, metrics=["accuracy"], jit_compile=compiled)
    return model


def run_case(case: str, out_dir: str | None, steps: int, compiled: bool, warmup: int = 20) -> None:
    """Train and print the median and the mean milliseconds of a step."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", OMP_NUM_THREADS="1")
    import keras
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    model = build(compiled)
    hook = None if out_dir is None else hook_for(case, out_dir)
    begun: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            begun.append(time.perf_counter())

    images = np.random.default_rng(0).normal(size=(32 * (warmup + steps + 1), 16, 16, 3)).astype("float32")
    callbacks = [Clock(), *([] if hook is None else [hook])]
    model.fit(images, np.arange(len(images)) % 10, batch_size=32, verbose=0, callbacks=callbacks)
    if hook is not None:
        hook.close()
    taken = np.diff(begun)[warmup:]
    print(1e3 * np.median(taken), 1e3 * np.mean(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case")
    parser.add_argument("--out")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case, arguments.out, arguments.steps, arguments.compiled)
        return
    header("Keras: a convolutional network, times a step of `fit` without a hook")
    for compiled in (False, True):
        _compare(arguments.steps, arguments.rounds, compiled)


def _compare(steps: int, rounds: int, compiled: bool) -> None:
    ratios: dict[str, list[tuple[float, float]]] = {case: [] for case in AIMS}
    bare = []
    for _ in range(rounds):
        without = _measure("none", steps, compiled, hooked=False)
        bare.append(without[0])
        for case in AIMS:
            median, mean = _measure(case, steps, compiled)
            ratios[case].append((median / without[0], mean / without[1]))
    how = "compiled by XLA" if compiled else "as a graph"
    line(f"a step without a hook, {how}", f"{statistics.median(bare):.1f} ms")
    for case, (what, aim) in AIMS.items():
        median, mean = map(statistics.median, zip(*ratios[case], strict=True))
        line(what, f"{median:.2f}x (mean step {mean:.2f}x)", aim)


def _measure(case: str, steps: int, compiled: bool, hooked: bool = True) -> tuple[float, float]:
    with scratch() as folder:
        where = ["--out", folder / "run"] if hooked else []
        flags = ["--compiled"] if compiled else []
        printed = in_fresh_process(__file__, "--case", case, *where, *flags, "--steps", steps)
    median, mean = map(float, printed.split()[-2:])
    return median, mean


if __name__ == "__main__":
    main()
