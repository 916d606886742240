"""What a hook costs a `session.run` of TensorFlow: a convolutional network on one core, with and without.

Every case is a process of its own, in turns, so that a busy moment of the machine hits all alike.

    make bench-session
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from common import header, in_fresh_process, line, scratch

AIMS = {
    "nothing": ("hook passed, nothing due", "1.03x"),
    "losses": ("losses, every step", ""),
    "raw": ("weights, biases, gradients, raw, every step", "2.0x"),
    "statistics": ("nine statistics of the same, every step", "2.0x"),
    "raw10": ("the same raw, every 10 steps", ""),
    "all": ("everything that the run computes, raw, every step", ""),
}
NINE = {"reductions": ["min", "max", "mean", "std", "variance", "sum", "prod"], "norms": ["l1", "l2"]}


def hook_for(case: str, out_dir: str):
    import tensortrial.hooks.tensorflow as tt

    every = tt.SaveConfig(save_interval={"nothing": 10**9, "raw10": 10}.get(case, 1))
    return tt.SessionHook(
        out_dir,
        save_config=every,
        include_collections=None if case in ("nothing", "losses") else ["weights", "biases", "gradients"],
        reduction_config=tt.ReductionConfig(**NINE) if case == "statistics" else None,
        save_all=case == "all",
    )


def build(wrap):
    import tensorflow as tf

    v1 = tf.compat.v1
    images = tf.random.stateless_normal([32, 16, 16, 3], seed=[1, 2])
    channels, hidden = 3, images
    for number in range(6):
        kernel = v1.get_variable(f"conv{number}/kernel", [3, 3, channels, 32])
        bias = v1.get_variable(f"conv{number}/bias", [32], initializer=v1.zeros_initializer())
        hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(hidden, kernel, 1, "SAME"), bias))
        channels = 32
    kernel = v1.get_variable("dense/kernel", [16 * 16 * 32, 128])
    out = v1.get_variable("out/kernel", [128, 10])
    logits = tf.nn.relu(tf.reshape(hidden, [32, -1]) @ kernel) @ out
    loss = v1.losses.sparse_softmax_cross_entropy(tf.range(32) % 10, logits)
    return wrap(v1.train.GradientDescentOptimizer(0.01)).minimize(loss)


def run_case(case: str, out_dir: str | None, steps: int, warmup: int = 10) -> None:
    """Train and print the median and the mean milliseconds of a step."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", OMP_NUM_THREADS="1")
    import tensorflow as tf

    hook = None if out_dir is None else hook_for(case, out_dir)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    taken = []
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(0)
        train = build((lambda optimizer: optimizer) if hook is None else hook.wrap_optimizer)
        creator = tf.compat.v1.train.ChiefSessionCreator(config=config)
        with tf.compat.v1.train.MonitoredSession(creator, hooks=[] if hook is None else [hook]) as session:
            for _ in range(warmup + steps):
                begun = time.perf_counter()
                session.run(train)
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
    header("Sessions: a convolutional network of 4.4 MB of weights, times a step without a hook")
    ratios: dict[str, list[tuple[float, float]]] = {case: [] for case in AIMS}
    bare = []
    for _ in range(arguments.rounds):
        without = _measure("none", arguments.steps, hooked=False)
        bare.append(without[0])
        for case in AIMS:
            median, mean = _measure(case, arguments.steps)
            ratios[case].append((median / without[0], mean / without[1]))
    line("a step without a hook", f"{statistics.median(bare):.1f} ms")
    for case, (what, aim) in AIMS.items():
        median, mean = map(statistics.median, zip(*ratios[case], strict=True))
        line(what, f"{median:.2f}x (mean step {mean:.2f}x)", aim)


def _measure(case: str, steps: int, hooked: bool = True) -> tuple[float, float]:
    with scratch() as folder:
        where = ["--out", folder / "run"] if hooked else []
        printed = in_fresh_process(__file__, "--case", case, *where, "--steps", steps)
    median, mean = map(float, printed.split()[-2:])
    return median, mean


if __name__ == "__main__":
    main()
