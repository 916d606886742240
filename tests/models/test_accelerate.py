"""The tracker for Accelerate, in training loops of Accelerate."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, register_tracker_class  # noqa: E402
from accelerate.utils import find_executable_batch_size  # noqa: E402

from support.programs import TORCHRUN, run_training  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.hooks.accelerate import Tracker  # noqa: E402
from tensortrial.hooks.pytorch import Hook, SaveConfig, modes  # noqa: E402

torch.set_num_threads(1)
EACH: dict[str, Any] = {"save_config": SaveConfig(save_interval=1)}


@pytest.fixture(autouse=True)
def fresh_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TENSORTRIAL_OUT_DIR", raising=False)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def batches(count: int) -> Any:
    data = torch.arange(count * 8.0).reshape(count * 2, 4) / 100
    return torch.utils.data.DataLoader(data, batch_size=2)


def train(tracker: Tracker, accelerator: Any, count: int = 7) -> list[Any]:
    """Train on batches. Return the gradients that the optimizer used."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, batches(count))
    tracker.hook.register_module(model)
    used = []
    for batch in loader:
        with accelerator.accumulate(model), tracker.step():
            loss = model(batch).pow(2).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                used.append(next(model.parameters()).grad.clone().numpy())
            optimizer.step()
            optimizer.zero_grad()
    for batch in loader:
        with torch.no_grad(), tracker.step(mode=modes.EVAL):
            model(batch)
            model(batch)
    return used


def test_a_step_goes_on_until_gradients_are_synchronized(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "run", include_collections=["gradients"], include_regex="_output_0", **EACH)
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=3)
    accelerator.init_trackers("anything", config={"rate": 0.1})
    used = train(tracker, accelerator)
    accelerator.end_training()
    trial = create_trial(tmp_path / "run")
    # Three batches, three, and the one that is left.
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2]
    assert trial.steps(mode=modes.EVAL) == list(range(7))
    gradient = trial.tensor("gradient/Sequential_0.weight")
    for step, expected in zip([0, 1, 2], used, strict=True):
        assert (gradient.value(step, mode=modes.TRAIN) == expected).all()
    assert trial.loaded_all_steps
    assert json.loads((tmp_path / "run" / "run.json").read_text())["metadata"]["rate"] == 0.1


def test_what_the_accelerator_logs_is_saved_at_its_step(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "run")
    accelerator = accelerate.Accelerator(cpu=True, log_with=[tracker])
    accelerator.init_trackers("anything")
    for step in range(3):
        accelerator.log({"loss": step / 2, "tensor": torch.tensor(2.0), "note": "no number"}, step=10 * step)
    accelerator.end_training()
    trial = create_trial(tmp_path / "run")
    assert {step: float(trial.tensor("loss").value(step, mode=modes.TRAIN)) for step in (0, 10, 20)} == {
        0: 0.0,
        10: 0.5,
        20: 1.0,
    }
    assert set(trial.tensor_names()) == {"loss", "tensor"}


def test_a_registered_class_saves_to_the_folder_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerate.tracking, "LOGGER_TYPE_TO_CLASS", LOGGER_TYPE_TO_CLASS)
    register_tracker_class(Tracker)
    try:
        accelerator = accelerate.Accelerator(cpu=True, log_with="tensortrial")
        accelerator.init_trackers(str(tmp_path / "run"), init_kwargs={"tensortrial": {"include_workers": "all"}})
        accelerator.log({"loss": 1.0}, step=0)
        assert isinstance(accelerator.get_tracker("tensortrial", unwrap=True), Hook)
        accelerator.end_training()
    finally:
        del LOGGER_TYPE_TO_CLASS["tensortrial"]
    assert create_trial(tmp_path / "run").tensor_names() == ["loss"]


def test_an_error_ends_the_step_that_it_is_raised_in(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "run", **EACH)
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=2)
    model = accelerator.prepare(torch.nn.Linear(4, 1))
    with pytest.raises(RuntimeError, match="shapes"), accelerator.accumulate(model), tracker.step():
        tracker.hook.save_scalar("x", 1) or model(torch.ones(3))
    with tracker.step(mode="EVAL"):
        tracker.hook.save_scalar("y", 1)
    tracker.finish()
    trial = create_trial(tmp_path / "run")
    assert (trial.steps(mode=modes.TRAIN), trial.steps(mode=modes.EVAL)) == ([0], [0])


@pytest.mark.parametrize("first", [None, 0, 3])
def test_a_training_that_starts_again_with_a_smaller_batch_takes_the_place_of_the_first_attempt(
    tmp_path: Path, first: int | None
) -> None:
    """It runs out of memory at its third batch, unless a batch has two rows."""
    tracker = Tracker(tmp_path / "run", include_collections=["gradients"], **EACH)
    used: list[Any] = []

    @find_executable_batch_size(starting_batch_size=8, reduce_batch_size_fn=iter([4, 2]).__next__)  # type: ignore[untyped-decorator]
    def train_with(batch_size: int) -> None:
        used.clear()
        model = torch.nn.Sequential(torch.nn.Linear(4, 1))
        tracker.hook.register_module(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            with tracker.step(number if first is None else first + number):
                optimizer.zero_grad()
                model(torch.ones(batch_size, 4)).mean().backward()
                used.append(next(model.parameters()).grad.clone().numpy())
                tracker.log({"batch_size": batch_size})
                if number == 2 and batch_size > 2:
                    raise RuntimeError("CUDA out of memory.")
                optimizer.step()
            with tracker.step(mode="EVAL"), torch.no_grad():
                model(torch.ones(1, 4))

    train_with()
    tracker.finish()
    trial = create_trial(tmp_path / "run")
    steps = [(first or 0) + number for number in range(4)]
    assert trial.steps(mode=modes.TRAIN) == steps
    gradient, size = trial.tensor("gradient/Sequential_0.weight"), trial.tensor("batch_size")
    for step, expected in zip(steps, used, strict=True):
        assert (gradient.value(step, mode=modes.TRAIN) == expected).all()
        assert size.value(step, mode=modes.TRAIN) == 2
    assert "Sequential_1" not in str(trial.tensor_names())


def test_a_batch_that_the_loop_itself_skips_is_a_step(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "run", **EACH)
    for number in range(3):
        with suppress(RuntimeError), tracker.step():
            tracker.log({"loss": number})
            if number == 1:
                raise RuntimeError("CUDA out of memory.")
    tracker.finish()
    assert create_trial(tmp_path / "run").steps(mode=modes.TRAIN) == [0, 1, 2]


def test_what_is_logged_after_the_end_is_named_as_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracker = Tracker(tmp_path / "run")
    tracker.log({"loss": 1.0}, step=0)
    tracker.finish()
    tracker.log({"loss": 2.0}, step=1)
    assert f"the hook of {tmp_path / 'run'} is closed" in caplog.text


def test_a_tracker_without_a_folder_saves_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        tracker = Tracker()
        tracker.log({"loss": 1.0}, step=0)
        tracker.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tensortrial", "tensortrial-2"]


def test_a_hook_and_arguments_of_one_are_refused_together(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "run", dry_run=True)
    with pytest.raises(ConfigurationError, match="not both"):
        Tracker(tmp_path / "other", hook=hook)


PROGRAM = """
import accelerate, torch
from tensortrial.hooks.accelerate import Tracker
from tensortrial.hooks.pytorch import SaveConfig

tracker = Tracker("run", include_collections=["gradients"], include_workers="all", gradients="optimizer",
    save_config=SaveConfig(save_interval=1))
accelerator = accelerate.Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=2)
accelerator.init_trackers("anything")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(torch.rand(16, 4), batch_size=2))
tracker.hook.register_module(model)
tracker.hook.register_optimizer(optimizer)
for batch in loader:
    with accelerator.accumulate(model), tracker.step():
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
accelerator.end_training()
"""


@pytest.mark.slow
@pytest.mark.distributed
def test_each_process_of_a_launch_is_a_worker(tmp_path: Path) -> None:
    run_training(PROGRAM, tmp_path, by=TORCHRUN, PYTHONPATH=os.pathsep.join(sys.path))
    trial = create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.steps(mode=modes.TRAIN) == [0, 1]
    gradient = trial.tensor("optimizer_gradient/Linear_weight")
    first, second = (gradient.value(1, mode=modes.TRAIN, worker=worker) for worker in trial.workers())
    assert np.array_equal(first, second)
