"""The cost of a hook for a transformer in bfloat16 on a GPU: times, kernels, waits and memory of a step.

    make bench-cuda
    make bench-cuda BENCH_ARGS='--case statistics --layers 12 --compiled'

Each case is a process of its own, in turns. The batch is doubled until a step takes 50 ms. Times are by the clock, over
all steps, with what is left to be done at the end; kernels, copies and waits are those that torch's profiler sees in a
few further steps. "Waits" are calls in which the training's thread waits for the device, in addition to those of
training without a hook. `--capture operator` captures tensors of compiled code by an operator that CUDA graphs cannot
record. Without a GPU, this shows in two minutes that it works:

    make bench-cuda BENCH_ARGS='--device cpu --width 64 --layers 2 --vocabulary 500 --length 64 --steps 30 --rounds 1'
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

from common import header, in_fresh_process, line, scratch
from training import build_gpt

CASES = {
    "registered": ("hook attached, nothing due", "1.01x"),
    "statistics": ("five statistics of parameters, gradients, outputs of blocks", "1.02x"),
    "health": ("the collection health", ""),
    "raw100": ("raw values of the same, every 100 steps", "1.02x"),
}
FIVE = {"reductions": ["mean", "std", "min", "max"], "norms": ["l2"]}
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_MILLISECONDS = 50
_PROFILED = 3
# Statistics are compiled at the eleventh step that saves them.
_WARM_UP = 15


def hook_for(case: str, out_dir: str) -> Any:
    import tensortrial.hooks.pytorch as tt

    if case == "registered":
        return tt.Hook(out_dir, save_config=tt.SaveConfig(save_interval=1 << 30))
    if case == "health":
        return tt.Hook(out_dir, save_config=tt.SaveConfig(save_interval=1), include_collections=["health"])
    return tt.Hook(
        out_dir,
        save_config=tt.SaveConfig(save_interval=100 if case == "raw100" else 1),
        include_collections=["weights", "biases", "gradients"],
        include_regex=[r"blocks\.\d+_output_0$"],
        reduction_config=None if case == "raw100" else tt.ReductionConfig(**FIVE),
    )


class Training:
    """Steps of a model on a device."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch

        torch.manual_seed(0)
        self._torch, self._device = torch, torch.device(arguments.device)
        self.is_cuda = self._device.type == "cuda"
        self._length, self._vocabulary = arguments.length, arguments.vocabulary
        sizes = arguments.width, arguments.width // 64, arguments.layers, arguments.length, arguments.vocabulary
        model, *_ = build_gpt(*sizes)
        self.model = model.to(self._device, torch.bfloat16)
        self._criterion = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=self.is_cuda)
        self._run = self.model

    def compile(self) -> None:
        """Compile the model as one graph, recorded as a CUDA graph where there is one."""
        mode = "reduce-overhead" if self.is_cuda else None
        self._run = self._torch.compile(self.model, fullgraph=True, mode=mode)

    def set_batch(self, batch: int) -> None:
        """Set how many texts a step has."""
        text = self._torch.randint(0, self._vocabulary, (batch, self._length + 1), device=self._device)
        self._x, self._y = text[:, :-1], text[:, 1:].flatten()

    def step(self) -> None:
        """Train once."""
        self._optimizer.zero_grad()
        self._criterion(self._run(self._x), self._y).backward()
        self._optimizer.step()

    def wait(self) -> None:
        """Wait for the device."""
        if self.is_cuda:
            self._torch.cuda.synchronize()

    def seconds(self, steps: int) -> float:
        """Return the seconds of so many steps."""
        self.wait()
        begun = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return time.perf_counter() - begun

    def profile(self) -> dict[str, float]:
        """Return how many kernels, copies and waits a step has."""
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.is_cuda else [])]
        self.wait()
        with profile(activities=activities) as found:
            for _ in range(_PROFILED):
                self.step()
        counts = {"kernels": 0, "copies": 0, "waits": 0}
        for event in found.key_averages():
            counts["kernels"] += event.count * ("LaunchKernel" in event.key)
            counts["copies"] += event.count * event.key.startswith("cudaMemcpy")
            counts["waits"] += event.count * (event.key in _WAITS)
        return {name: count / _PROFILED for name, count in counts.items()}


def batch_for(arguments: argparse.Namespace) -> int:
    """Return a batch of which a step without a hook takes 50 ms."""
    training, batch = Training(arguments), 1
    while batch < 256:
        training.set_batch(batch)
        training.seconds(2)
        if training.seconds(3) / 3 * 1e3 >= _MILLISECONDS:
            break
        batch *= 2
    return batch


def run_case(arguments: argparse.Namespace) -> None:
    """Train, and print what a step costs."""
    import torch

    training = Training(arguments)
    training.set_batch(arguments.batch)
    hook = None if arguments.case == "none" else hook_for(arguments.case, arguments.out)
    if hook is not None:
        hook.register_module(training.model)
    if arguments.compiled:
        training.compile()
    training.seconds(_WARM_UP if training.is_cuda else 5)
    own = time.thread_time()
    seconds = training.seconds(arguments.steps)
    own = time.thread_time() - own
    counts = training.profile()
    if hook is not None:
        hook.close()
    memory = {}
    if training.is_cuda:
        pinned = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {}
        memory = {"device": torch.cuda.max_memory_allocated(), "pinned": pinned.get("allocated_bytes.peak", 0)}
    found = {"ms": seconds / arguments.steps * 1e3, "cpu_ms": own / arguments.steps * 1e3, **counts, **memory}
    print(json.dumps(found))


def compare(arguments: argparse.Namespace) -> None:
    """Print a line for each case."""
    options = ["--device", arguments.device, "--width", arguments.width, "--layers", arguments.layers]
    options += ["--vocabulary", arguments.vocabulary, "--length", arguments.length]
    options += ["--steps", arguments.steps, *(["--compiled"] if arguments.compiled else [])]
    if arguments.capture:
        os.environ["TENSORTRIAL_COMPILED_CAPTURE"] = arguments.capture
    batch = arguments.batch or json.loads(in_fresh_process(__file__, "--find-batch", *options).splitlines()[-1])
    cases = arguments.cases or list(CASES)
    found: dict[str, list[dict[str, float]]] = {case: [] for case in ("none", *cases)}
    for _ in range(arguments.rounds):
        for case, measured in found.items():
            with scratch() as folder:
                run = ["--run", case, "--out", folder / "run", "--batch", batch, *options]
                measured.append(json.loads(in_fresh_process(__file__, *run).splitlines()[-1]))
    middle = {
        case: {name: statistics.median(each[name] for each in measured) for name in measured[0]}
        for case, measured in found.items()
    }
    bare = middle["none"]
    line(f"{arguments.layers} layers of {arguments.width}, {batch} texts", f"{bare['ms']:.1f} ms without")
    for case in cases:
        ours, (what, aim) = middle[case], CASES[case]
        ratios = zip(found[case], found["none"], strict=True)
        ratio = statistics.median(with_hook["ms"] / alone["ms"] for with_hook, alone in ratios)
        text = f"{ratio:.3f}x, CPU +{ours['cpu_ms'] - bare['cpu_ms']:.1f} ms"
        if "device" in ours:
            more = {name: ours[name] - bare[name] for name in ("kernels", "copies", "waits", "device", "pinned")}
            text += f", +{more['kernels']:.0f} kernels, +{more['copies']:.0f} copies, +{more['waits']:.0f} waits"
            text += f", +{more['device'] / 1e6:.0f} MB, {more['pinned'] / 1e6:.0f} MB pinned"
        line(f"  {what}", text, aim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--length", type=int, default=512, help="tokens of a text")
    parser.add_argument("--batch", type=int, default=0, help="texts a step; 0 finds it")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compiled", action="store_true", help="by torch.compile, recorded as a CUDA graph")
    parser.add_argument("--capture", choices=["output", "operator"], help="how compiled code captures tensors")
    parser.add_argument("--case", dest="cases", action="append", choices=list(CASES))
    parser.add_argument("--find-batch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--run", dest="case", choices=["none", *CASES], help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.find_batch:
        print(batch_for(arguments))
    elif arguments.case:
        run_case(arguments)
    else:
        header("A hook on a GPU: times a step without a hook, medians of the rounds")
        compare(arguments)


if __name__ == "__main__":
    main()
