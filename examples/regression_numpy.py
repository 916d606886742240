"""Fit a line by gradient descent in numpy, and read the run while it is written.

python examples/regression_numpy.py
"""

from __future__ import annotations

import shutil

import numpy as np

import tensortrial

OUT_DIR = "runs/regression"


def train(out_dir: str) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 4))
    y = x @ np.array([1.0, -2.0, 0.5, 3.0]) + 0.1 * random.normal(size=200)
    weights = np.zeros(4)
    with tensortrial.Run(out_dir, metadata={"learning_rate": 0.05}) as run:
        for step in range(200):
            error = x @ weights - y
            gradient = 2 * x.T @ error / len(x)
            weights -= 0.05 * gradient
            run.log({"loss": (error**2).mean(), "gradient_norm": np.linalg.norm(gradient)}, step=step)
            run.save_tensor("weights", weights, step=step)


def main() -> None:
    shutil.rmtree(OUT_DIR, ignore_errors=True)
    train(OUT_DIR)
    trial = tensortrial.create_trial(OUT_DIR)
    print("weights:", trial.tensor("weights").value(199).round(2))
    print(trial.sql("select mode_step, value from scalars where name = 'loss' and mode_step % 50 = 0 order by 1"))
    print(f"See it in the browser: tensortrial page {OUT_DIR}")


if __name__ == "__main__":
    main()
