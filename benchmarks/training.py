"""What a hook costs a training step: a small residual network on one core, with and without.

Every case is a process of its own, in turns, so that a busy moment of the machine hits all alike.

    python benchmarks/training.py
"""

from __future__ import annotations

import argparse
import statistics
import time

from common import header, in_fresh_process, line, scratch

AIMS = {
    "registered": ("hook attached, nothing due", "1.03x"),
    "raw": ("weights, biases, gradients, outputs, raw, every step", "2.0x"),
    "statistics": ("nine statistics of the same, every step", "2.0x"),
    "raw10": ("the same raw, every 10 steps", ""),
    "all": ("everything, raw, every step", ""),
}
NINE = {"reductions": ["min", "max", "mean", "std", "variance", "sum", "prod"], "norms": ["l1", "l2"]}


def build():
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
            self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
            self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

        def forward(self, x):
            return self.relu2(x + self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x))))))

    class ResNet(nn.Module):
        def __init__(self, channels=16, blocks=4):
            super().__init__()
            self.stem = nn.Conv2d(3, channels, 3, padding=1)
            self.blocks = nn.Sequential(*[Block(channels) for _ in range(blocks)])
            self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, 10)

        def forward(self, x):
            return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))

    return ResNet()


def hook_for(case: str, out_dir: str):
    import tensortrial.hooks.pytorch as tt

    if case == "registered":
        return tt.Hook(out_dir)
    if case == "all":
        return tt.Hook(out_dir, save_config=tt.SaveConfig(save_interval=1), save_all=True)
    return tt.Hook(
        out_dir,
        save_config=tt.SaveConfig(save_interval=10 if case == "raw10" else 1),
        include_collections=["weights", "biases", "gradients"],
        include_regex=["_output_"],
        reduction_config=tt.ReductionConfig(**NINE) if case == "statistics" else None,
    )


def run_case(case: str, out_dir: str, steps: int, warmup: int = 10) -> None:
    """Train and print the median and the mean milliseconds of a step."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, criterion = build(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = None if case == "none" else hook_for(case, out_dir)
    if hook is not None:
        hook.register_module(model)
        hook.register_loss(criterion)
    x, y = torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))
    taken = []
    for _ in range(warmup + steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        taken.append(time.perf_counter() - begun)
    if hook is not None:
        hook.close()
    taken = taken[warmup:]
    print(1e3 * statistics.median(taken), 1e3 * statistics.mean(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case")
    parser.add_argument("--out")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case, arguments.out, arguments.steps)
        return
    header("Training: a residual network of 16 MB of tensors a step, times a step without a hook")
    medians: dict[str, list[float]] = {case: [] for case in AIMS}
    means: dict[str, list[float]] = {case: [] for case in AIMS}
    bare = []
    for _ in range(arguments.rounds):
        without = _measure("none", arguments.steps)
        bare.append(without[0])
        for case in AIMS:
            median, mean = _measure(case, arguments.steps)
            medians[case].append(median / without[0])
            means[case].append(mean / without[1])
    line("a step without a hook", f"{statistics.median(bare):.1f} ms")
    for case, (what, aim) in AIMS.items():
        line(what, f"{statistics.median(medians[case]):.2f}x (mean step {statistics.median(means[case]):.2f}x)", aim)


def _measure(case: str, steps: int) -> tuple[float, float]:
    with scratch() as folder:
        printed = in_fresh_process(__file__, "--case", case, "--out", folder / "run", "--steps", steps)
    median, mean = map(float, printed.split())
    return median, mean


if __name__ == "__main__":
    main()
