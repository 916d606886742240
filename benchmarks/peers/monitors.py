"""What it costs to watch a model in training: tensortrial and other tools, on the same models at the same cadence.

    python -m peers.monitors [--model gpt] [--every 10] [--rounds 5]

Each case is a process of its own, in turns. For each group of tools that keep about the same of the same tensors it
prints the time of a step, compared with training alone; the CPU time of a step that the tool takes in all its threads
and processes, with what it does at the end; and the bytes that it keeps of one step that is due.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common import header, in_fresh_process, line, scratch
from training import MODELS, build_gpt, build_resnet

THREE = {"reductions": ["abs_max", "mean", "variance"]}
FIVE = {"reductions": ["mean", "std", "min", "max"], "norms": ["l2"]}


class Nothing:
    """Training alone."""

    asked = ""

    def __init__(self, model: Any, folder: Path, every: int) -> None:
        self.model, self.folder, self.every = model, folder, every

    def after_backward(self, step: int) -> None:
        """Take what is there after the backward pass."""

    def after_step(self, step: int) -> None:
        """Take what is there after the optimizer's step."""

    def close(self) -> None:
        """Keep what is left."""


class Tensortrial(Nothing):
    """A hook that keeps statistics of weights, biases and gradients."""

    asked = "SQL and arrays of each statistic over all steps, rules, comparison of runs"
    collections = ("weights", "biases", "gradients")
    regex: tuple[str, ...] = ()
    reductions = FIVE
    histograms = False

    def __init__(self, model: Any, folder: Path, every: int) -> None:
        import tensortrial.hooks.pytorch as tt

        self._hook = tt.Hook(
            folder,
            save_config=tt.SaveConfig(save_interval=every),
            include_collections=self.collections,
            include_regex=self.regex,
            reduction_config=tt.ReductionConfig(**self.reductions),
        )
        if self.histograms:
            for name in self.collections:
                self._hook.get_collection(name).save_histogram = True
        self._hook.register_module(model)

    def close(self) -> None:
        self._hook.close()


class TensortrialHistograms(Tensortrial):
    """The same with histograms."""

    asked = "the same, and each histogram"
    histograms = True


class TensortrialOutputs(Tensortrial):
    """A hook that keeps three statistics, of the outputs of all modules as well."""

    regex = ("_output_",)
    reductions = THREE


class TensorBoard(Nothing):
    """torch's SummaryWriter."""

    asked = "pictures of histograms in its page; counts of 500 bins by EventAccumulator"

    def __init__(self, model: Any, folder: Path, every: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        super().__init__(model, folder, every)
        self._writer = SummaryWriter(str(folder))

    def after_backward(self, step: int) -> None:
        if step % self.every == 0:
            for name, parameter in self.model.named_parameters():
                self._writer.add_histogram(name, parameter.detach(), step)
                self._writer.add_histogram(f"gradients/{name}", parameter.grad, step)

    def close(self) -> None:
        self._writer.close()


class WandB(Nothing):
    """wandb.watch, offline."""

    asked = "after a synchronisation with a server: pictures of histograms of 64 bins"

    def __init__(self, model: Any, folder: Path, every: int) -> None:
        import wandb

        os.environ["WANDB_SILENT"] = "true"
        super().__init__(model, folder, every)
        folder.mkdir()
        settings = wandb.Settings(x_disable_stats=True, console="off", disable_git=True, save_code=False)
        self._run = wandb.init(mode="offline", dir=str(folder), settings=settings)
        self._run.watch(model, log="all", log_freq=every)

    def after_step(self, step: int) -> None:
        self._run.log({"step": step})

    def close(self) -> None:
        self._run.finish()


class Inspect(Nothing):
    """LogTensorStats of NVIDIA's DLFW-Inspect, with its own log."""

    asked = "lines of a log with four decimals"

    def __init__(self, model: Any, folder: Path, every: int) -> None:
        from nvdlfw_inspect import api

        super().__init__(model, folder, every)
        folder.mkdir()
        stats = {"enabled": True, "tensors": ["weight", "gradient"], "stats": ["mean", "std", "min", "max", "l2_norm"]}
        section = {
            "enabled": True,
            "layers": {"layer_name_regex_pattern": ".*"},
            "base": {"LogTensorStats": {**stats, "freq": every}},
        }
        (folder / "config.yaml").write_text(json.dumps({"all": section}))  # JSON is YAML, too
        self._api = api
        api.initialize(str(folder / "config.yaml"), log_dir=str(folder))

    def after_backward(self, step: int) -> None:
        for name, parameter in self.model.named_parameters():
            for kind, tensor in (("weight", parameter.detach()), ("gradient", parameter.grad)):
                self._api.log_tensor_stats(name, tensor_name=kind, tensor=tensor, iteration=step, skip_reduction=True)
        self._api.step()

    def close(self) -> None:
        self._api.end_debug()


class Olmo(Nothing):
    """OLMo-core's GAPMonitorCallback. In place of its Trainer, what it records is written as a line of JSON a step."""

    asked = "the line of each step, or what its Trainer logs to"

    def __init__(self, model: Any, folder: Path, every: int) -> None:
        from olmo_core.train.callbacks.gap_monitor import GAPMonitorCallback
        from olmo_core.train.train_module import TransformerTrainModule

        super().__init__(model, folder, every)
        folder.mkdir()
        self._file = (folder / "metrics.jsonl").open("w")
        module = TransformerTrainModule.__new__(TransformerTrainModule)  # whose constructor takes OLMo's models alone
        module.model = model
        self._metrics: dict[str, Any] = {}
        self._trainer = SimpleNamespace(train_module=module, global_step=0, record_metric=self._record)
        self._callback = GAPMonitorCallback(interval=every)
        self._callback.trainer = self._trainer
        self._callback.post_attach()
        self._callback.pre_train()
        self._begin()

    def _begin(self) -> None:
        self._callback.pre_step({"input_ids": SimpleNamespace(shape=(12,))})

    def _record(self, name: str, value: Any, **how: Any) -> None:
        self._metrics[name] = value

    def after_backward(self, step: int) -> None:
        self._callback.pre_optim_step()
        if self._metrics:
            print(json.dumps({name: float(value) for name, value in self._metrics.items()}), file=self._file)
        self._metrics.clear()
        self._trainer.global_step = step + 1
        self._begin()

    def close(self) -> None:
        self._file.close()


CASES: dict[str, type[Nothing]] = {
    "none": Nothing,
    "tensortrial": Tensortrial,
    "DLFW-Inspect": Inspect,
    "tensortrial, histograms": TensortrialHistograms,
    "TensorBoard": TensorBoard,
    "wandb.watch": WandB,
    "tensortrial, outputs": TensortrialOutputs,
    "OLMo-core": Olmo,
}
GROUPS = {
    "mean, std, min, max, l2 of each parameter and its gradient": ("tensortrial", "DLFW-Inspect"),
    "a histogram of each (tensortrial: with the five)": ("tensortrial, histograms", "TensorBoard", "wandb.watch"),
    "max, mean, variance of each, and of the outputs of modules (OLMo-core: with their gradients)": (
        "tensortrial, outputs",
        "OLMo-core",
    ),
}


def cpu_seconds() -> float:
    """Return the CPU time of this process, and of its children that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run_case(name: str, case: str, folder: Path, steps: int, every: int, warmup: int = 10) -> None:
    """Train, and print: milliseconds of a step, median and mean; of CPU in all; bytes of a step that is due."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, x, y = build_gpt() if name == "gpt" else build_resnet()
    criterion, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = CASES[case](model, folder, every)
    taken = []
    for step in range(warmup + steps):
        if step == warmup:
            used = cpu_seconds()
        begun = time.perf_counter()
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        monitor.after_backward(step)
        optimizer.step()
        monitor.after_step(step)
        taken.append(time.perf_counter() - begun)
    monitor.close()
    used = cpu_seconds() - used
    nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    due = -(-(warmup + steps) // every)
    taken = taken[warmup:]
    times = [1e3 * each for each in (statistics.median(taken), statistics.mean(taken), used / steps)]
    print(json.dumps([*times, nbytes / due]))


def compare(model: str, every: int, rounds: int, steps: int) -> None:
    """Print a line for each case."""
    found: dict[str, list[list[float]]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case, measured in found.items():
            with scratch() as folder:
                options = ["--model", model, "--case", case, "--out", folder / "run"]
                options += ["--steps", steps, "--every", every]
                measured.append(json.loads(in_fresh_process(__file__, *options).splitlines()[-1]))
    bare = found["none"]
    line(f"{MODELS[model]}, every {every} steps", f"{statistics.median(each[0] for each in bare):.1f} ms without")
    for group, cases in GROUPS.items():
        print(f"  {group}")
        for case in cases:
            pairs = list(zip(found[case], bare, strict=True))
            median, mean = (statistics.median(ours[n] / alone[n] for ours, alone in pairs) for n in (0, 1))
            cpu = statistics.median(ours[2] - alone[2] for ours, alone in pairs)
            text = f"{median:.2f}x (mean {mean:.2f}x), CPU +{cpu:.1f} ms, {found[case][0][3] / 1e3:.0f} kB"
            line(f"    {case}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--every", action="append", type=int, help="steps from one that is due to the next")
    parser.add_argument("--case", choices=list(CASES))
    parser.add_argument("--out", type=Path, help="train one case, once, into this folder")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    every = arguments.every or [1, 10]
    if arguments.out:
        run_case(arguments.model[0], arguments.case, arguments.out, arguments.steps, every[0])
        return
    header("Watching a model in training: times a step without a tool, medians of the rounds")
    for model in arguments.model or MODELS:
        for each in every:
            compare(model, each, arguments.rounds, arguments.steps)
    print("What can be asked afterwards")
    for case, monitor in CASES.items():
        if monitor.asked:
            line(f"  {case}", monitor.asked)


if __name__ == "__main__":
    main()
