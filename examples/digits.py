"""Train a convolutional network on scikit-learn's digits in one process, and watch it from another while it trains.

python examples/digits.py            both
python examples/digits.py train OUT  the training alone
python examples/digits.py watch OUT  the watching alone
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import tensortrial
from tensortrial import modes

STEPS = 400
EVALUATE_EVERY = 50


def train(out_dir: str) -> None:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    import tensortrial.hooks.pytorch as tt

    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(labels)
    held_out = torch.arange(len(x)) % 5 == 0

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.relu1 = nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()
            self.conv2, self.relu2 = nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()
            self.pool, self.fc = nn.MaxPool2d(2), nn.Linear(64 * 4 * 4, 10)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            features = self.pool(self.relu2(self.conv2(self.relu1(self.conv1(batch)))))
            return self.fc(features.flatten(1))

    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    hook = tt.Hook(
        out_dir,
        save_config=tt.SaveConfig(save_interval=5),
        include_collections=["weights", "gradients"],
        include_regex=["relu._output"],
    )
    hook.get_collection("losses").save_config = tt.SaveConfig(save_interval=1)
    hook.get_collection("gradients").reduction_config = tt.ReductionConfig(
        reductions=["mean", "std"], norms=["l2"], save_raw_tensor=True
    )
    hook.register_module(model)
    hook.register_loss(criterion)

    for step in range(STEPS):
        hook.set_mode(modes.TRAIN)
        batch = torch.randint(len(x), (64,))
        batch = batch[~held_out[batch]]
        optimizer.zero_grad()
        criterion(model(x[batch]), y[batch]).backward()
        optimizer.step()
        if step % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            hook.set_mode(modes.EVAL)
            with torch.no_grad():
                logits = model(x[held_out])
                criterion(logits, y[held_out])
            hook.save_scalar("accuracy", (logits.argmax(1) == y[held_out]).float().mean().item())
    hook.close()


def watch(out_dir: str) -> None:
    trial = tensortrial.create_trial(out_dir, timeout=120)

    trial.wait_for_steps([50], modes.TRAIN)
    running = "is still training" if not trial.loaded_all_steps else "has ended"
    print(f"-- step 50 is here, the job {running}\n")
    print("modes       ", [mode.name for mode in trial.modes()])
    print("TRAIN steps ", _brief(trial.steps(modes.TRAIN)))
    print("gradients   ", _brief(trial.tensor_names(collection="gradients")))
    print("outputs     ", _brief(trial.tensor_names(regex="_output_")))

    trial.wait_for_steps([STEPS - 5], modes.TRAIN)
    print("\n-- gradient norms by SQL: trial.sql(...)\n")
    print(trial.sql(GRADIENT_NORMS))

    print("-- loss, each column the mean of ten TRAIN steps\n")
    losses = trial.tensor("CrossEntropyLoss_output_0").values(modes.TRAIN)
    print(_curve([float(loss) for loss in losses.values()]))

    while not trial.loaded_all_steps:
        trial.wait_for_steps(trial.steps()[-1:])
    accuracy = trial.tensor("accuracy").values(modes.EVAL)
    print("\n-- EVAL accuracy", "  ".join(f"{float(value):.3f}" for value in accuracy.values()))


GRADIENT_NORMS = """
    select
        name,
        avg(value) filter (mode_step < 100) as first_100_steps,
        avg(value) filter (mode_step >= 300) as last_100_steps
    from reductions
    where reduction = 'l2' and name like 'gradient/%'
    group by name
    order by name
"""


def _brief(items: list) -> str:
    shown = ", ".join(map(str, items[:4]))
    return f"{shown}, … ({len(items)})" if len(items) > 4 else shown


def _curve(values: list[float], width: int = 10, height: int = 8) -> str:
    means = [sum(values[i : i + width]) / len(values[i : i + width]) for i in range(0, len(values), width)]
    top = max(means)
    rows = []
    for row in range(height, 0, -1):
        bars = "".join("█" if mean >= top * (row - 0.5) / height else " " for mean in means)
        rows.append(f"{top * row / height:6.2f} |{bars}")
    return "\n".join([*rows, "       +" + "-" * len(means)])


def main(arguments: list[str]) -> int:
    if arguments:
        command, out_dir = arguments
        {"train": train, "watch": watch}[command](out_dir)
        return 0
    out_dir = "runs/digits"
    shutil.rmtree(out_dir, ignore_errors=True)
    training = subprocess.Popen([sys.executable, __file__, "train", out_dir])
    try:
        watch(out_dir)
    finally:
        code = training.wait()
    print(f"\nThe run is in {out_dir}. To see it in the browser: tensortrial page {out_dir}")
    print("It needs the extras page and ui: pip install 'tensortrial[page,ui]'")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
