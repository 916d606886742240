"""Runs for the tests of rules: of known values, and of small real training jobs, each trained once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support.rule_runs import Write
from support.runs import GLOBAL, Job
from tensortrial.mode import ModeKeys

Open = Callable[[str], tensortrial.Trial]


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Return a function that opens the run of a job by its name. The job is trained at its first use."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("jobs")
    before = os.environ.get("TENSORTRIAL_STRICT")
    os.environ["TENSORTRIAL_STRICT"] = "1"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def open_job(name: str) -> tensortrial.Trial:
        if not (folder / name).exists():
            JOBS[name](folder / name)
        return tensortrial.create_trial(folder / name)

    yield open_job
    torch.set_num_threads(threads)
    os.environ.pop("TENSORTRIAL_STRICT")
    if before is not None:
        os.environ["TENSORTRIAL_STRICT"] = before


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a run and opens it. Each step is a dictionary, or None to save nothing."""

    def write(
        steps: Iterable[Mapping[str, Any] | None],
        modes: Iterable[ModeKeys] | None = None,
        name: str = "run",
        **plan: Any,
    ) -> tensortrial.Trial:
        with Job(tmp_path / name) as job:
            for values, mode in zip(steps, modes or iter(lambda: GLOBAL, None), strict=False):
                if values is None:
                    job.skip(mode)
                else:
                    job.step(values, mode, **plan)
        return tensortrial.create_trial(tmp_path / name)

    return write


@dataclass
class Plan:
    """A job on the digits. The defaults are those of a healthy one."""

    steps: int = 40
    rate: float = 0.3
    seed: int = 0
    evaluate_every: int = 10
    batch: int = 64
    examples: int = 1400
    """How many are trained on; as many others are held out."""
    layers: Callable[[Any], list[Any]] | None = None
    change: Callable[[Any], None] = lambda model: None
    inputs: Callable[[int, Any], Any] = lambda step, x: x
    labels: Callable[[Any], Any] = lambda y: y
    scale: Callable[[int], float] = lambda step: 1.0
    dtype: str = "float32"
    outputs: list[str] = field(default_factory=lambda: ["^Net_input", "relu", "tanh"])


def train(out: Path, plan: Plan) -> None:
    import torch

    import tensortrial.hooks.pytorch as tt

    torch.manual_seed(plan.seed)
    (x, y), (held_x, held_y) = _digits(plan)
    model = _model(plan).to(getattr(torch, plan.dtype))
    plan.change(model)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.rate)
    hook = tt.Hook(
        out,
        include_collections=["weights", "biases", "gradients"],
        include_regex=plan.outputs,
        save_config=tt.SaveConfig(save_interval=1),
    )
    hook.register_module(model)
    hook.register_loss(criterion)
    order = torch.randperm(len(x))
    for step in range(plan.steps):
        hook.set_mode(tt.modes.TRAIN)
        chosen = order[torch.arange(step * plan.batch, (step + 1) * plan.batch) % len(x)]
        optimizer.zero_grad()
        logits = model(plan.inputs(step, x[chosen]))
        (criterion(logits, y[chosen]) * plan.scale(step)).backward()
        _save(hook, y[chosen], logits)
        optimizer.step()
        if step % plan.evaluate_every == plan.evaluate_every - 1:
            hook.set_mode(tt.modes.EVAL)
            with torch.no_grad():
                logits = model(plan.inputs(step, held_x))
                criterion(logits, held_y)
            _save(hook, held_y, logits)
    hook.close()
    tt.del_hook()


def _save(hook: Any, labels: Any, logits: Any) -> None:
    hook.save_tensor("labels", labels, "labels")
    hook.save_tensor("predictions", logits.argmax(1), "predictions")


def _digits(plan: Plan) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Images of shape (n, 1, 8, 8) with mean 0 and deviation 1, in another order, with labels; those held out apart."""
    import torch
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    x = torch.tensor((images - images.mean()) / images.std()).reshape(-1, 1, 8, 8)[order]
    x, y = x.to(getattr(torch, plan.dtype)), torch.tensor(labels)[order]
    chosen = plan.labels(y[: plan.examples])
    return (x[: plan.examples], chosen), (x[1400:], y[1400:])


def _model(plan: Plan) -> Any:
    from collections import OrderedDict

    from torch import nn

    layers = plan.layers or (
        lambda nn: [
            ("fc1", nn.Linear(64, 32)),
            ("relu1", nn.ReLU()),
            ("fc2", nn.Linear(32, 32)),
            ("relu2", nn.ReLU()),
            ("fc3", nn.Linear(32, 32)),
            ("tanh", nn.Tanh()),
            ("fc4", nn.Linear(32, 10)),
        ]
    )

    class Net(nn.Sequential):
        def forward(self, input: Any) -> Any:
            return super().forward(input.flatten(1))

    return Net(OrderedDict(layers(nn)))


def _twenty_sigmoids(nn: Any) -> list[Any]:
    sizes = [64] + [32] * 20
    pairs = [(f"fc{i}", nn.Linear(sizes[i], 32)) for i in range(20)]
    layers = [each for i, pair in enumerate(pairs) for each in (pair, (f"sigmoid{i}", nn.Sigmoid()))]
    return [*layers, ("last", nn.Linear(32, 10))]


def _unbounded(nn: Any) -> list[Any]:
    return [("fc1", nn.Linear(64, 32)), ("relu1", nn.ReLU()), ("fc2", nn.Linear(32, 10))]


def _kill_units(model: Any) -> None:
    model.fc1.bias.data.fill_(-100.0)


def _saturate(model: Any) -> None:
    model.fc3.bias.data.fill_(50.0)


def _unbalance(model: Any) -> None:
    model.fc2.weight.data.mul_(40.0)


def _nothing(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.zero_()


def _shuffled(labels: Any) -> Any:
    import torch

    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))]


def _mostly_zero(labels: Any) -> Any:
    import torch

    return torch.where(torch.arange(len(labels)) % 20 == 0, labels, 0)


def _two_workers(seeds: tuple[int, int]) -> Callable[[Path], None]:
    """Replicas that see the same batches: without a process group, as ranks that a launcher numbered."""

    def run(out: Path) -> None:
        import torch

        import tensortrial.hooks.pytorch as tt

        plan, replicas = Plan(), []
        (x, y), _ = _digits(plan)
        criterion = torch.nn.CrossEntropyLoss()
        for rank, seed in enumerate(seeds):
            os.environ.update(RANK=str(rank), WORLD_SIZE="2")
            hook = tt.Hook(
                out,
                include_collections=["weights", "gradients"],
                reduction_config=tt.ReductionConfig(norms=["l2"], digest=True),
                save_config=tt.SaveConfig(save_interval=1),
                include_workers="all",
            )
            torch.manual_seed(seed)
            model = _model(plan)
            hook.register_module(model)
            replicas.append((hook, model, torch.optim.SGD(model.parameters(), lr=plan.rate)))
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
        for step in range(3):
            for _, model, optimizer in replicas:
                optimizer.zero_grad()
                criterion(model(x[step * 64 : step * 64 + 64]), y[step * 64 : step * 64 + 64]).backward()
                optimizer.step()
        for hook, *_ in replicas:
            hook.close()
        tt.del_hook()

    return run


def _tokens(padding: float) -> Callable[[Path], None]:
    """A classifier of sequences, padded to their greatest length."""

    def run(out: Path) -> None:
        import torch
        from torch import nn

        import tensortrial.hooks.pytorch as tt

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding, self.fc = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 2)

            def forward(self, tokens: Any) -> Any:
                return self.fc(self.embedding(tokens).mean(1))

        torch.manual_seed(0)
        model, criterion = Net(), nn.CrossEntropyLoss()
        hook = tt.Hook(out, include_regex=["embedding_input"], save_config=tt.SaveConfig(save_interval=1))
        hook.register_module(model)
        hook.register_loss(criterion)
        for _ in range(3):
            tokens = torch.randint(1, 20, (8, 50))
            tokens[:, round(50 * (1 - padding)) :] = 0
            criterion(model(tokens), tokens[:, 0] % 2).backward()
        hook.close()
        tt.del_hook()

    return run


def _trees(depth: int, features: int) -> Callable[[Path], None]:
    """A boosted model of breast cancer, saved as the collections of a tree model are."""

    def run(out: Path) -> None:
        import numpy as np
        from sklearn.datasets import load_breast_cancer
        from sklearn.ensemble import GradientBoostingClassifier

        from tensortrial.hooks.core.configuration.options import Framework, HookOptions
        from tensortrial.hooks.core.process.rank import Rank
        from tensortrial.hooks.core.recorder import Recorder

        x, y = load_breast_cancer(return_X_y=True)
        noisy = np.where(np.arange(len(y)) % 4 == 0, 1 - y, y)
        recorder = Recorder(HookOptions(out), Framework("sklearn"), Rank())
        for rounds in (1, 3):
            model = GradientBoostingClassifier(n_estimators=rounds, max_depth=depth, random_state=0)
            model.fit(x[:, :features], noisy)
            nodes = max(tree.tree_.node_count for tree in model.estimators_[:, 0])
            recorder.begin_step()
            recorder.save_tensor("trees/Node", np.arange(nodes), "trees")
            for feature, importance in enumerate(model.feature_importances_):
                name = f"feature_importance/weight/f{feature}"
                recorder.save_tensor(name, np.array([importance]), "feature_importance")
        recorder.close()

    return run


def _of(**plan: Any) -> Callable[[Path], None]:
    return lambda out: train(out, Plan(**plan))


JOBS: dict[str, Callable[[Path], None]] = {
    "healthy": _of(),
    "healthy long": _of(steps=100, batch=1400, rate=0.5, layers=_unbounded, outputs=[]),
    "same": _of(steps=3),
    "other seed": _of(steps=3, seed=5),
    "vanishing": _of(steps=3, layers=_twenty_sigmoids),
    "exploding": _of(steps=10, rate=1e20),
    "dead relu": _of(steps=12, change=_kill_units),
    "saturated": _of(steps=3, change=_saturate),
    "unbalanced": _of(steps=12, change=_unbalance),
    "frozen": _of(steps=30, rate=0.0),
    "zero": _of(steps=3, change=_nothing),
    "overfit": _of(steps=80, examples=40, batch=40, outputs=[]),
    "shuffled": _of(steps=60, labels=_shuffled, rate=0.05),
    "imbalanced": _of(steps=20, labels=_mostly_zero),
    "not normalized": _of(steps=10, inputs=lambda step, x: x * 6 + 5),
    "spike": _of(steps=30, layers=_unbounded, inputs=lambda step, x: x * 200 if step == 25 else x),
    "half": _of(steps=5, dtype="float16"),
    "half flushed": _of(steps=5, dtype="float16", scale=lambda step: 1e-7),
    "replicas": _two_workers((0, 0)),
    "strangers": _two_workers((0, 1)),
    "padded": _tokens(0.8),
    "full": _tokens(0.2),
    "deep trees": _trees(8, 30),
    "shallow trees": _trees(3, 30),
    "one feature": _trees(3, 3),
}
