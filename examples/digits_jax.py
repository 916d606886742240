"""Train a network on scikit-learn's digits with Flax and Optax, and show the run.

python examples/digits_jax.py
"""

from __future__ import annotations

import shutil

import tensortrial

OUT_DIR = "runs/digits_jax"
EPOCHS, BATCH = 5, 64


def train(out_dir: str) -> None:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx
    from sklearn.datasets import load_digits

    import tensortrial.hooks.jax as tt

    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16, jnp.float32), jnp.asarray(labels)

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.hidden = nnx.Linear(64, 64, rngs=rngs)
            self.digits = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.digits(nnx.relu(self.hidden(x)))

    def loss_of(model: Net, x: jax.Array, y: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    @nnx.jit
    def train_step(
        model: Net, optimizer: nnx.Optimizer[Net], x: jax.Array, y: jax.Array
    ) -> tuple[jax.Array, nnx.State]:
        loss, gradients = nnx.value_and_grad(loss_of)(model, x, y)
        optimizer.update(model, gradients)
        return loss, gradients

    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    hook = tt.Hook(out_dir, save_config=tt.SaveConfig(save_interval=10))
    hook.get_collection("gradients").reduction_config = tt.ReductionConfig(reductions=["mean", "std"], norms=["l2"])
    for step in range(EPOCHS * (1500 // BATCH)):
        rows = slice(step * BATCH % 1472, step * BATCH % 1472 + BATCH)
        hook.save_tree("weights", nnx.state(model, nnx.Param), step, mode="TRAIN")
        loss, gradients = train_step(model, optimizer, images[rows], labels[rows])
        hook.save_tree("gradients", gradients, step, mode="TRAIN")
        hook.log({"loss": loss}, step=step, mode="TRAIN")
    accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).mean()
    hook.log({"accuracy": accuracy}, step=0, mode="EVAL")
    hook.close()


def show(out_dir: str) -> None:
    trial = tensortrial.create_trial(out_dir)
    print(trial.sql("select mode_step, value from scalars where name = 'loss' and mode_step % 20 = 0 order by 1"))
    print("accuracy:", trial.tensor("accuracy").value(0, "EVAL").round(3))
    print("gradients:", ", ".join(trial.tensor_names(collection="gradients")))


def main() -> None:
    shutil.rmtree(OUT_DIR, ignore_errors=True)
    train(OUT_DIR)
    show(OUT_DIR)
    print(f"\nSee it in the browser: tensortrial page {OUT_DIR}")


if __name__ == "__main__":
    main()
