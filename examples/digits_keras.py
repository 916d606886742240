"""Train a convolutional network on scikit-learn's digits with Keras' own `fit`, and show the run.

python examples/digits_keras.py
"""

from __future__ import annotations

import os
import shutil
import sys

import tensortrial
from tensortrial import modes

OUT_DIR = "runs/digits_keras"
EPOCHS = 3


def train(out_dir: str) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras
    from keras import layers
    from sklearn.datasets import load_digits

    import tensortrial.hooks.tensorflow as tt

    keras.utils.set_random_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", name="conv1"),
            layers.ReLU(name="relu1"),
            layers.Conv2D(32, 3, padding="same", name="conv2"),
            layers.ReLU(name="relu2"),
            layers.MaxPooling2D(name="pool"),
            layers.Flatten(name="flatten"),
            layers.Dense(10, name="digits"),
        ]
    )
    hook = tt.KerasHook(
        out_dir,
        include_collections=["weights", "gradients", "labels", "predictions", "relu"],
        save_config=tt.SaveConfig(save_interval=10),
    )
    hook.get_collection("losses").save_config = tt.SaveConfig(save_interval=1)
    hook.get_collection("gradients").reduction_config = tt.ReductionConfig(reductions=["mean", "std"], norms=["l2"])
    for name in ("relu1", "relu2"):
        hook.get_collection("relu").add_keras_layer(model.get_layer(name))

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hook.wrap_optimizer(keras.optimizers.Adam(0.003)), loss=loss, metrics=["accuracy"])
    model.fit(images[:1500], labels[:1500], epochs=EPOCHS, verbose=0, callbacks=[hook])
    model.evaluate(images[1500:], labels[1500:], verbose=0, callbacks=[hook])
    hook.close()


def show(out_dir: str) -> None:
    trial = tensortrial.create_trial(out_dir)
    print(f"{len(trial.steps(modes.TRAIN))} steps of training, {len(trial.steps(modes.EVAL))} of evaluation\n")
    for collection in ("losses", "metrics", "weights", "gradients", "relu"):
        print(f"{collection:>10}: {', '.join(trial.tensor_names(collection=collection))}")

    step = trial.tensor("predictions_0").steps(modes.TRAIN)[-1]
    (labels,), (predictions,) = trial.labels(step, modes.TRAIN), trial.predictions(step, modes.TRAIN)
    right = int((predictions.argmax(axis=1) == labels.ravel()).sum())
    print(f"\nat step {step}, {right} of {len(predictions)} digits were recognized, before the update")

    print("\n-- the gradients' l2 norm by epoch, by SQL: trial.sql(...)\n")
    query = """
        select name, mode_step // 47 as epoch, round(avg(value), 3) as mean_norm
        from reductions where reduction = 'l2' and name like 'gradients/%kernelGrad'
        group by all order by all
    """
    print(trial.sql(query))
    accuracy = trial.tensor("accuracy")
    print(f"EVAL accuracy {float(accuracy.value(accuracy.steps(modes.EVAL)[-1], modes.EVAL).item()):.3f}")


def main() -> int:
    shutil.rmtree(OUT_DIR, ignore_errors=True)
    train(OUT_DIR)
    show(OUT_DIR)
    print(f"\nThe run is in {OUT_DIR}. To see it in the browser: tensortrial page {OUT_DIR}")
    print("It needs the extras page and ui: pip install 'tensortrial[page,ui]'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
