"""The cost of a hook in a training step: a small residual network and a small GPT on one core, with and without.

Every case is a process of its own, in turns, so that a busy moment of the machine hits all alike. Besides the time of a
step, which is what counts, it prints who works for it: the CPU time that the training's own thread takes more than
without a hook, and that of the other threads, which is the writer's.

With --cpu each process trains two equal models in turns, step by step, one of them with a hook, and prints CPU times
only: on a busy machine they vary less than the time of a step. It tells steps at which the chosen collections are due
from those at which at most a loss is, and computes from both what a run of 2,000 steps costs. A second line has what a
tensor costs the training thread without its copy, the CPU of the writer's thread for a step, which bounds how long it
holds the GIL, and how often a second the training thread opens a file or lists a folder once the run is claimed.

    python benchmarks/training.py
    python benchmarks/training.py --model gpt --case statistics --case raw
    python benchmarks/training.py --cpu --case default --steps 500 --rounds 3
    python benchmarks/training.py --compiled
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

sys.path.append(str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

from common import header, in_fresh_process, line, scratch

AIMS = {
    "none": ("no hook, which shows what the others' figures are worth", "1x"),
    "default": ("what a hook saves by default", "1.02x of 2,000 steps"),
    "registered": ("hook attached, nothing due", "1.02x"),
    "raw10": ("weights, biases, gradients, outputs, raw, every 10 steps", "1.05x"),
    "statistics10": ("nine statistics of the same, every 10 steps", "1.05x"),
    "histograms10": ("histograms and nine statistics of the same, every 10 steps", ""),
    "tensorboard10": ("the same, and event files for TensorBoard", ""),
    "statistics": ("nine statistics of the same, every step", "1.3x"),
    "raw": ("the same, raw, every step", "1.4x"),
    "by_hand": ("the least that saves the same: callbacks that copy, a thread that writes", "the limit of raw"),
    "all": ("everything, raw, every step", ""),
}
MODELS = {"resnet": "a residual network, 32 images of 16 x 16", "gpt": "a GPT of 4 layers, 12 texts of 64 characters"}
# glibc returns freed memory to the system or keeps it, depending on where other memory lies. So of two processes that
# train alike, one took 150 page faults a step and the other 750.
MEMORY_IS_KEPT = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
NINE = {"reductions": ["min", "max", "mean", "std", "variance", "sum", "prod"], "norms": ["l1", "l2"]}


def build_resnet():
    """Return a model, and a batch for it."""
    import torch
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

    return ResNet(), torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))


def build_gpt(width=128, heads=4, layers=4, length=64, vocabulary=65, texts=12):
    """Return a model, and a batch for it."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            parts = self.qkv(x).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.projection(mixed.transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, x):
            x = self.token(x) + self.position(torch.arange(length, device=x.device))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    text = torch.randint(0, vocabulary, (texts, length + 1))
    return GPT(), text[:, :-1], text[:, 1:].flatten()


class ByHand:
    """The least that saves what the case `raw` saves: callbacks copy tensors, and a thread writes them to a file."""

    capture = SimpleNamespace(saving_tensors=False)

    def __init__(self, path: str) -> None:
        self._path, self._queue = path, SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def register_module(self, model) -> None:
        model.register_forward_pre_hook(self._save_parameters)
        for module in model.modules():
            module.register_forward_hook(lambda _module, _inputs, output: self._save(output))
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda parameter: self._save(parameter.grad))

    def register_loss(self, criterion) -> None:
        criterion.register_forward_hook(lambda _module, _inputs, output: self._save(output))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _save_parameters(self, model, _inputs) -> None:
        for parameter in model.parameters():
            self._save(parameter)

    def _save(self, tensor) -> None:
        import torch

        self._queue.put(tensor.detach().clone(memory_format=torch.contiguous_format))

    def _write(self) -> None:
        with open(self._path, "wb", buffering=0) as file:
            while (tensor := self._queue.get()) is not None:
                file.write(tensor.numpy())


def hook_for(case: str, out_dir: str):
    import tensortrial.hooks.pytorch as tt

    if case == "by_hand":
        return ByHand(out_dir)
    if case == "default":
        return tt.Hook(out_dir)
    if case == "registered":
        return tt.Hook(out_dir, end_step=0)
    if case == "all":
        return tt.Hook(out_dir, save_config=tt.SaveConfig(save_interval=1), save_all=True)
    reduces = case.startswith(("statistics", "histograms", "tensorboard"))
    hook = tt.Hook(
        out_dir,
        export_tensorboard=case.startswith("tensorboard"),
        save_config=tt.SaveConfig(save_interval=10 if case.endswith("10") else 1),
        include_collections=["weights", "biases", "gradients"],
        include_regex=["_output_"],
        reduction_config=tt.ReductionConfig(**NINE) if reduces else None,
    )
    if case.startswith("histograms"):
        for name in ("weights", "biases", "gradients", "default"):
            hook.get_collection(name).save_histogram = True
    return hook


def training(name: str, hook, compiled: bool):
    """Return a function that makes a step of training, with a hook or None."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, x, y = build_gpt() if name == "gpt" else build_resnet()
    criterion, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01)
    if compiled:
        model = torch.compile(model, fullgraph=True)
    if hook is not None:
        hook.register_module(model)
        hook.register_loss(criterion)

    def train() -> None:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    return train


def run_in_turns(name: str, case: str, out_dir: str, steps: int, compiled: bool) -> None:
    """Train with and without a hook in turns, and print the CPU times of a step in milliseconds.

    These are: the training thread's without a hook; what it takes more, as the median of the differences of neighboring
    steps, where at most a loss is due and where more is due; what it takes more on average; and what all other threads
    take on average, with what is left to write at the end.
    """
    hook = None if case == "none" else hook_for(case, out_dir)
    bare, hooked = training(name, None, compiled), training(name, hook, compiled)
    for _ in range(5):
        bare()
    hooked()  # claims the run
    without, quiet, due = [], [], []
    opened = count_opened()
    whole, begun = time.process_time(), time.perf_counter()
    for _ in range(steps):
        without.append(_thread_seconds(bare))
        more = _thread_seconds(hooked) - without[-1]
        (due if hook is not None and hook.capture.saving_tensors else quiet).append(more)
    opened_each_second = len(opened) / (time.perf_counter() - begun)
    if hook is not None:
        hook.close()
    own = sum(quiet) + sum(due)
    others = time.process_time() - whole - own - 2 * sum(without)
    medians = [statistics.median(each) if each else 0.0 for each in (without, quiet, due)]
    milliseconds = [1e3 * each for each in (*medians, own / steps, others / steps)]
    print(json.dumps([*milliseconds, without_copies(case, out_dir) if due else 0.0, opened_each_second]))


def count_opened() -> list[str]:
    """Return a list that grows with each file that this thread opens, and each folder that it lists."""
    opened, thread = [], threading.get_ident()

    def note(event: str, arguments: tuple) -> None:
        # `open` with an opener, which calls `os.open`, is two events.
        is_opener = event == "open" and arguments[1] is None and opened[-1:] == [arguments[0]]
        if event in ("open", "os.listdir", "os.scandir") and threading.get_ident() == thread and not is_opener:
            opened.append(arguments[0])

    sys.addaudithook(note)
    return opened


def without_copies(case: str, out_dir: str) -> float:
    """Return the microseconds that a hook's calls take for a tensor, without its copy, outside of a training."""
    import torch

    import tensortrial

    query = "select shape from tensors where global_step = (select max(global_step) from tensors) and len(shape) > 0"
    shapes = [row[0] for row in tensortrial.create_trial(out_dir).sql(query).fetchall()]
    pairs = [(torch.ones(shape), torch.empty(shape)) for shape in shapes]
    hook = hook_for(case, f"{out_dir}-calls")
    hook.register_loss(torch.nn.MSELoss())  # without one, outputs are searched for losses

    def capture() -> None:
        for number, (source, _) in enumerate(pairs):
            hook.capture.capture_values(f"module{number}", "output", source)

    def copy() -> None:
        for source, target in pairs:
            target.copy_(source)

    calls, copies = [], []
    for _ in range(100):
        with hook.step():
            if hook.capture.saving_tensors:
                calls.append(_thread_seconds(capture))
                copies.append(_thread_seconds(copy))
    hook.close()
    return 1e6 * (statistics.median(calls) - statistics.median(copies)) / len(pairs)


def _thread_seconds(call) -> float:
    begun = time.thread_time()
    call()
    return time.thread_time() - begun


def compare_in_turns(model: str, cases: list[str], rounds: int, how: list[str]) -> None:
    """Print a line for each case: the median of the rounds, and the least and the largest."""
    from tensortrial.config.save_config import GROWING, SaveConfigMode

    line(MODELS[model], "CPU time of the training thread")
    growing = SaveConfigMode(GROWING)
    share = sum(map(growing.should_save_step, range(2000))) / 2000
    for case in cases:
        found = [_measure(model, case, [*how, "--cpu"]) for _ in range(rounds)]
        base, quiet, due, _, others, calls_us, opened = map(statistics.median, zip(*found, strict=True))
        text = f"{_span(1 + each[3] / each[0] for each in found)}"
        if case == "default":
            long = (1 + (each[1] + share * (each[2] - each[1])) / each[0] for each in found)
            text = f"{_span(long)} of 2,000 steps; these steps {text}"
        text += f"; a step {base:.1f} ms, nothing due +{quiet:.2f} ms, due +{due:.2f} ms; others {others:.2f} ms"
        line(f"  {AIMS[case][0]}", text, AIMS[case][1])
        if due:
            text = f"{calls_us:.0f} us a tensor without its copy; writer {others:.1f} ms; {opened:.2f} files a second"
            line("", text, "25 us, 1 ms, 1 a second")


def _span(values) -> str:
    found = sorted(values)
    return f"{statistics.median(found):.3f}x ({found[0]:.3f} to {found[-1]:.3f})"


def run_case(name: str, case: str, out_dir: str, steps: int, compiled: bool, warmup: int = 10) -> None:
    """Train and print the milliseconds of a step: median, mean, the training thread's CPU, the other threads' CPU."""
    hook = None if case == "none" else hook_for(case, out_dir)
    train = training(name, hook, compiled)
    taken = []
    for step in range(warmup + steps):
        if step == warmup:
            own, whole = time.thread_time(), time.process_time()
        begun = time.perf_counter()
        train()
        taken.append(time.perf_counter() - begun)
    own = time.thread_time() - own
    if hook is not None:
        hook.close()  # what the writer has not done yet is its work, too
    others = time.process_time() - whole - own
    taken = taken[warmup:]
    print(
        json.dumps(
            [1e3 * each for each in (statistics.median(taken), statistics.mean(taken), own / steps, others / steps)]
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(AIMS))
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--compiled", action="store_true", help="by torch.compile, in one graph")
    parser.add_argument("--cpu", action="store_true", help="CPU times only, of two trainings in turns in one process")
    parser.add_argument("--out", help="train one case, once, into this folder")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.out:
        run = run_in_turns if arguments.cpu else run_case
        run(arguments.model[0], arguments.case[0], arguments.out, arguments.steps, arguments.compiled)
        return
    os.environ.update(MEMORY_IS_KEPT)
    header("Training: times a step without a hook, medians of the rounds")
    for model in arguments.model or MODELS:
        how = ["--steps", str(arguments.steps), *(["--compiled"] if arguments.compiled else [])]
        cases = arguments.case or [case for case in AIMS if case != ("by_hand" if arguments.cpu else "none")]
        (compare_in_turns if arguments.cpu else compare)(model, cases, arguments.rounds, how)


def compare(model: str, cases: list[str], rounds: int, how: list[str]) -> None:
    """Print a line for each case."""
    ratios: dict[str, list[list[float]]] = {case: [] for case in cases}
    bare = []
    for _ in range(rounds):
        without = _measure(model, "none", how)
        bare.append(without[0])
        for case in cases:
            median, mean, own, others = _measure(model, case, how)
            cpu = own / without[2]
            ratios[case].append([median / without[0], mean / without[1], cpu, own - without[2], others - without[3]])
    line(MODELS[model], f"{statistics.median(bare):.1f} ms without")
    for case, found in ratios.items():
        median, mean, cpu, own, others = map(statistics.median, zip(*found, strict=True))
        text = f"{median:.2f}x (mean {mean:.2f}x) CPU {cpu:.3f}x, +{own:.1f} ms, writer {others:.1f} ms"
        line(f"  {AIMS[case][0]}", text, AIMS[case][1])


def _measure(model: str, case: str, how: list[str]) -> list[float]:
    with scratch() as folder:
        options = "--model", model, "--case", case, "--out", folder / "run", *how
        printed: list[float] = json.loads(in_fresh_process(__file__, *options))
    return printed


if __name__ == "__main__":
    main()
