"""What a hook costs a training loop of one's own in a `tf.function`, at steps at which nothing is due.

Steps with and without the hook run in turns in one process, so that a busy moment of the machine hits both alike.

    make bench-keras
"""

from __future__ import annotations

import os
import statistics
import time

from common import header, line, scratch

ROUNDS = 15


def networks():
    """A small dense network and a small convolutional one, each with the shape of a batch and the steps of a round."""
    from keras import layers

    dense = [layers.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(10)]
    convolution = [layers.Input((16, 16, 3))]
    convolution += [layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(6)]
    convolution += [layers.GlobalAveragePooling2D(), layers.Dense(10)]
    yield "two dense layers", lambda: dense, (32, 64), 300
    yield "six convolutions", lambda: convolution, (32, 16, 16, 3), 20


def training(layers, wrap):
    """One step of a loop."""
    import keras
    import tensorflow as tf

    model, optimizer = keras.Sequential(layers()), keras.optimizers.SGD(0.01)
    compute = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        with wrap(tf.GradientTape()) as tape:
            loss = compute(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def round_of(step, x, y, steps: int) -> float:
    """Milliseconds a step."""
    begin = time.perf_counter()
    for _ in range(steps):
        step(x, y)
    return 1e3 * (time.perf_counter() - begin) / steps


def main() -> None:
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", OMP_NUM_THREADS="1")
    import tensorflow as tf

    import tensortrial.hooks.tensorflow as tt

    header("GradientTape: a step of a loop in a tf.function, of which nothing is due")
    for name, layers, shape, steps in networks():
        with scratch() as folder:
            hook = tt.KerasHook(
                folder / "run",
                include_collections=["weights", "gradients"],
                save_config=tt.SaveConfig(save_interval=10**9),
            )
            both = [training(layers, wrap) for wrap in (lambda tape: tape, hook.wrap_tape)]
            x, y = tf.random.normal(shape), tf.zeros(shape[:1], tf.int32)
            for step in both:
                round_of(step, x, y, 5)
            taken = [[round_of(step, x, y, steps) for step in both] for _ in range(ROUNDS)]
            hook.close()
        without, hooked = map(statistics.median, zip(*taken, strict=True))
        line(
            f"{name}, {without:.2f} ms without a hook", f"+{hooked - without:.2f} ms, {hooked / without:.2f}x", "1.03x"
        )


if __name__ == "__main__":
    main()
