"""Draw the pictures of the documentation from real runs: `make pictures`.

The runs are those of the tutorial, whose code is executed as the page prints it, and of `examples/digits.py`.
"""

from __future__ import annotations

import os
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

import tensortrial
from tensortrial import Trial, modes

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
# Readable on light and on dark pages.
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "font.size": 10,
    "grid.alpha": 0.3,
    "savefig.bbox": "tight",
    "svg.fonttype": "path",
    "svg.hashsalt": "tensortrial",  # the same picture is the same file
}


def main() -> None:
    """Make the runs in a temporary folder, and write the pictures."""
    torch.set_num_threads(1)
    mpl.use("svg")
    plt.rcParams.update(STYLE)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_tutorial()
        draw_layers(tensortrial.create_trial("runs/ten_digits"))
        draw_accuracy({name: tensortrial.create_trial(f"runs/{name}") for name in ("ten_digits", "ten_digits_fixed")})
        runpy.run_path(str(DOCS.parent / "examples" / "digits.py"))["train"]("runs/digits")
        draw_overview(tensortrial.create_trial("runs/digits"))


def run_tutorial() -> None:
    """Execute the training code of the tutorial."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "tutorial.md").read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)


def draw_layers(trial: Trial) -> None:
    """Draw the norm of each gradient, and how far each weight has moved from its first value."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
    for name in trial.tensor_names(collection="weights"):
        gradients = trial.tensor(f"gradient/{name}").values(modes.TRAIN)
        left.plot(list(gradients), [np.linalg.norm(value) for value in gradients.values()], label=_short(name))
        weights = trial.tensor(name).values(modes.TRAIN)
        first = weights[min(weights)]
        right.plot(list(weights), [np.linalg.norm(value - first) for value in weights.values()], label=_short(name))
    left.set(yscale="log", title="norm of the gradient", xlabel="step")
    right.set(title="distance of the weight from its first value", xlabel="step")
    left.legend()
    save(figure, "tutorial-layers")


def draw_accuracy(trials: dict[str, Trial]) -> None:
    """Draw the accuracy on held-out digits of each run."""
    figure, axes = plt.subplots(figsize=(5.5, 3))
    for name, trial in trials.items():
        values = trial.tensor("accuracy").values(modes.EVAL)
        axes.plot(
            [50 * (step + 1) for step in values], [float(value) for value in values.values()], marker="o", label=name
        )
    axes.set(ylim=(0, 1), xlabel="step", title="accuracy on held-out digits")
    axes.legend(loc="lower right")
    save(figure, "tutorial-accuracy")


def draw_overview(trial: Trial) -> None:
    """Draw the loss of the demo, and the norms of its gradients over its steps."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9, 4.4), sharex=True, height_ratios=[2, 1.4], layout="constrained"
    )
    losses = trial.tensor("CrossEntropyLoss_output_0").values(modes.TRAIN)
    top.plot(list(losses), [float(value) for value in losses.values()], linewidth=1)
    top.set(title="loss, every step", yscale="log")
    names = [name for name in trial.tensor_names(collection="gradients") if name.endswith("weight")]
    steps = trial.tensor(names[0]).steps(modes.TRAIN)
    norms = [[trial.tensor(name).reduction_value(step, "l2", mode=modes.TRAIN) for step in steps] for name in names]
    cells = bottom.pcolormesh(steps, range(len(names)), np.log10(norms), cmap="viridis", shading="nearest")
    bottom.set(title="log10 of the norm of each gradient, every fifth step", xlabel="step")
    bottom.set_yticks(range(len(names)), [_short(name) for name in names])
    bottom.grid(visible=False)
    figure.colorbar(cells, ax=bottom)
    save(figure, "digits")


def save(figure: Any, name: str) -> None:
    """Write a figure into docs/images."""
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def _short(name: str) -> str:
    return name.removeprefix("gradient/").removeprefix("Net_")


if __name__ == "__main__":
    main()
