"""What a hook costs a training step of MXNet: a small residual network on one core, with and without.

Every case is a process of its own, in turns, so that a busy moment of the machine hits all alike.

    make bench-mxnet
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from common import header, in_fresh_process, line, scratch

AIMS = {
    "registered": ("hook attached, nothing due", "1.03x"),
    "raw": ("weights, biases, gradients, outputs, raw, every step", "2.0x"),
    "statistics": ("nine statistics of the same, every step", "2.0x"),
    "raw10": ("the same raw, every 10 steps", ""),
    "all": ("everything, raw, every step", ""),
    "hybridized": ("hybridized, all its tensors, raw, every step", ""),
}
NINE = {"reductions": ["min", "max", "mean", "std", "variance", "sum", "prod"], "norms": ["l1", "l2"]}


def build():
    from mxnet import gluon
    from mxnet.gluon import nn

    class Block(gluon.HybridBlock):
        def __init__(self, channels):
            super().__init__()
            with self.name_scope():
                self.conv1, self.norm1 = nn.Conv2D(channels, 3, padding=1), nn.BatchNorm()
                self.conv2, self.norm2 = nn.Conv2D(channels, 3, padding=1), nn.BatchNorm()
                self.relu1, self.relu2 = nn.Activation("relu"), nn.Activation("relu")

        def hybrid_forward(self, F, x):  # noqa: N803
            return self.relu2(x + self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x))))))

    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(16, 3, padding=1), *[Block(16) for _ in range(4)], nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


def hook_for(case: str, out_dir: str):
    import tensortrial.hooks.mxnet as tt

    if case == "registered":
        return tt.Hook(out_dir)
    if case in ("all", "hybridized"):
        return tt.Hook(out_dir, save_config=tt.SaveConfig(save_interval=1), save_all=True)
    return tt.Hook(
        out_dir,
        save_config=tt.SaveConfig(save_interval=10 if case == "raw10" else 1),
        include_collections=["weights", "biases", "gradients"],
        include_regex=["_output_"],
        reduction_config=tt.ReductionConfig(**NINE) if case == "statistics" else None,
    )


def run_case(case: str, out_dir: str | None, steps: int, hybridized: bool, warmup: int = 10) -> None:
    """Train and print the median and the mean milliseconds of a step."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import mxnet as mx
    from mxnet import autograd, gluon

    mx.random.seed(0)
    net, loss = build(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    if hybridized:
        net.hybridize()
        loss.hybridize()
    hook = None if out_dir is None else hook_for(case, out_dir)
    if hook is not None:
        hook.register_block(net)
        hook.register_block(loss)
    x, y = mx.nd.random.normal(shape=(32, 3, 16, 16)), mx.nd.array([i % 10 for i in range(32)])
    taken = []
    for _ in range(warmup + steps):
        begun = time.perf_counter()
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(32)
        # MXNet computes in the background: without waiting, only the time to enqueue a step would be measured.
        mx.nd.waitall()
        taken.append(time.perf_counter() - begun)
    if hook is not None:
        hook.close()
    taken = taken[warmup:]
    print(1e3 * statistics.median(taken), 1e3 * statistics.mean(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case")
    parser.add_argument("--out")
    parser.add_argument("--hybridized", action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case, arguments.out, arguments.steps, arguments.hybridized)
        return
    header("Training with MXNet: a residual network of 16 MB of tensors a step, times a step without a hook")
    ratios: dict[str, list[tuple[float, float]]] = {case: [] for case in AIMS}
    bare = []
    for _ in range(arguments.rounds):
        without = {flag: _measure("none", arguments.steps, flag, hooked=False) for flag in (False, True)}
        bare.append(without[False][0])
        for case in AIMS:
            hybridized = case == "hybridized"
            median, mean = _measure(case, arguments.steps, hybridized)
            ratios[case].append((median / without[hybridized][0], mean / without[hybridized][1]))
    line("a step without a hook", f"{statistics.median(bare):.1f} ms")
    for case, (what, aim) in AIMS.items():
        median, mean = map(statistics.median, zip(*ratios[case], strict=True))
        line(what, f"{median:.2f}x (mean step {mean:.2f}x)", aim)


def _measure(case: str, steps: int, hybridized: bool, hooked: bool = True) -> tuple[float, float]:
    with scratch() as folder:
        where = ["--out", folder / "run"] if hooked else []
        flags = ["--hybridized"] if hybridized else []
        printed = in_fresh_process(__file__, "--case", case, *where, *flags, "--steps", steps)
    median, mean = map(float, printed.split()[-2:])
    return median, mean


if __name__ == "__main__":
    main()
