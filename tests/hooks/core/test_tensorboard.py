"""Event files of a hook, as TensorBoard's own reader sees them.

The conformance tests check what the hook of every framework writes.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.file_access import before

torch = pytest.importorskip("torch")
pytest.importorskip("tensorboard")
import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.event_folders import read_by_tensorboard, steps_of_tags  # noqa: E402
from support.training import seeded, train  # noqa: E402
from tensortrial import create_trial, modes  # noqa: E402
from tensortrial.errors import StorageError  # noqa: E402
from tensortrial.importers.tensorboard import import_runs  # noqa: E402
from tensortrial.storage.open import open_storage  # noqa: E402
from tensortrial.tfevents.event_file import EventFile  # noqa: E402
from tensortrial.tfevents.tfrecord import records  # noqa: E402

LOSS = "CrossEntropyLoss_output_0"


def run(hook: Any, steps: int = 3, mode: Any = modes.TRAIN) -> list[float]:
    model, loss = seeded(), torch.nn.CrossEntropyLoss()
    hook.register_module(model)
    hook.register_loss(loss)
    hook.set_mode(mode)
    return train(model, steps, loss)


def test_tensorboard_reads_scalars_histograms_and_distributions(make_hook: Callable[..., Any], out: str) -> None:
    hook = make_hook(export_tensorboard=True, include_collections=["weights"])
    losses = run(hook)
    hook.save_scalar("accuracy", 0.5, timestamp=1_700_000_000.25)
    hook.close()
    found = read_by_tensorboard(Path(out) / "tensorboard" / "train")
    tags = found.Tags()
    assert sorted(tags["scalars"]) == [LOSS, "accuracy"]
    assert sorted(tags["histograms"]) == sorted(tags["distributions"]) == ["Net_fc1.weight", "Net_fc2.weight"]
    assert [(each.step, each.value) for each in found.Scalars(LOSS)] == list(enumerate(map(pytest.approx, losses)))
    (accuracy,) = found.Scalars("accuracy")
    assert (accuracy.wall_time, accuracy.step, accuracy.value) == (1_700_000_000.25, 2, 0.5)
    trial = create_trial(out)
    for histogram in found.Histograms("Net_fc1.weight"):
        weight = trial.tensor("Net_fc1.weight").value(histogram.step, modes.TRAIN)
        seen = histogram.histogram_value
        assert (seen.min, seen.max, seen.num) == (weight.min(), weight.max(), weight.size)
        assert seen.bucket == np.histogram(weight, bins=len(seen.bucket))[0].tolist()
        assert seen.sum_squares == pytest.approx((weight**2).sum(), rel=0.01)
    distribution = found.CompressedHistograms("Net_fc1.weight")[0].compressed_histogram_values
    assert [basis_point for basis_point, _ in distribution] == [0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000]


def test_statistics_are_scalars_named_after_their_tensor(make_hook: Callable[..., Any], out: str) -> None:
    hook = make_hook(export_tensorboard=True, include_collections=["gradients"])
    hook.get_collection("gradients").reduction_config = tt.ReductionConfig(norms=["l2"], reductions=["sum"])
    hook.get_collection("losses").save_histogram = False
    run(hook)
    hook.close()
    found = read_by_tensorboard(Path(out) / "tensorboard" / "train")
    gradient = create_trial(out).tensor("gradient/Net_fc1.weight")
    for each in found.Scalars("gradient/Net_fc1.weight/l2"):
        assert each.value == pytest.approx(gradient.reduction_value(each.step, "l2", modes.TRAIN), rel=1e-6)
    histogram = found.Histograms("gradient/Net_fc1.weight")[1].histogram_value
    assert histogram.sum == gradient.reduction_value(1, "sum", modes.TRAIN)
    assert histogram.sum_squares == pytest.approx(gradient.reduction_value(1, "l2", modes.TRAIN) ** 2)


def test_a_scalar_with_the_name_of_a_statistic_keeps_it(make_hook: Callable[..., Any], out: str) -> None:
    hook = make_hook(export_tensorboard=True, include_collections=["gradients"])
    hook.get_collection("gradients").reduction_config = tt.ReductionConfig(norms=["l2"])
    run(hook)
    hook.save_scalar("gradient/Net_fc1.weight/l2", 7.0)
    hook.close()
    found = read_by_tensorboard(Path(out) / "tensorboard" / "train")
    assert [each.value for each in found.Scalars("gradient/Net_fc1.weight/l2")] == [7.0]
    assert [each.step for each in found.Scalars("gradient/Net_fc1.weight/statistics/l2")] == [0, 1, 2]


def test_each_of_several_workers_has_its_own_folder(
    make_hook: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    hooks = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        hooks.append(
            make_hook(export_tensorboard=True, include_workers="all", tensorboard_dir=str(tmp_path / "events"))
        )
    for hook in hooks:
        run(hook)
    for hook in hooks:
        hook.close()
    for worker in ("worker_0", "worker_1"):
        found = read_by_tensorboard(tmp_path / "events" / worker / "train")
        assert [each.step for each in found.Scalars(LOSS)] == [0, 1, 2]


def test_a_resumed_run_continues_in_the_same_folder(make_hook: Callable[..., Any], out: str) -> None:
    for _ in range(2):
        hook = make_hook(export_tensorboard=True, resume=True)
        run(hook, 2)
        hook.close()
    folder = Path(out) / "tensorboard" / "train"
    assert len(list(folder.iterdir())) == 2
    assert [each.step for each in read_by_tensorboard(folder).Scalars(LOSS)] == [0, 1, 2, 3]


@pytest.mark.parametrize("same_process", [False, True])
def test_a_run_that_goes_back_hides_the_steps_after_the_checkpoint(
    make_hook: Callable[..., Any], out: str, same_process: bool
) -> None:
    hook = make_hook(export_tensorboard=True)
    run(hook, 6)
    run(hook, 2, modes.EVAL)
    if not same_process:
        hook.close()
        hook = make_hook(export_tensorboard=True, resume=True)
    hook.resume_at(3, modes.TRAIN)
    losses = run(hook, 2)
    hook.close()
    tensorboard = Path(out) / "tensorboard"
    shown = read_by_tensorboard(tensorboard / "train").Scalars(LOSS)
    assert [each.step for each in shown] == [0, 1, 2, 3, 4]
    assert [each.value for each in shown[3:]] == pytest.approx(losses)
    evaluated = read_by_tensorboard(tensorboard / "eval")
    assert [evaluated.Scalars(tag) for tag in evaluated.Tags()["scalars"]] == [[]]
    # Our own import hides the same.
    (imported,) = import_runs(tensorboard, Path(out) / "again", progress=False)
    assert create_trial(imported).tensor(LOSS).steps(modes.TRAIN) == [0, 1, 2, 3, 4]
    assert create_trial(imported).steps(modes.EVAL) == []


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("same_process", [False, True])
def test_a_run_that_goes_back_with_other_workers_hides_what_the_earlier_ones_left(
    make_hook: Callable[..., Any],
    out: str,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    after: int,
    same_process: bool,
) -> None:
    for workers, steps, resume in ((before, range(6), False), (after, range(3, 5), True)):
        monkeypatch.setenv("WORLD_SIZE", str(workers))
        hooks = []
        for rank in range(workers):
            monkeypatch.setenv("RANK", str(rank))
            hooks.append(make_hook(export_tensorboard=True, include_workers="all", resume=resume))
        for number, hook in enumerate(hooks):
            if resume and same_process and not number:
                hook.save_scalar("x", 9.0)
            if resume:
                hook.resume_at(3)
            for step in steps:
                hook.save_scalar("x", float(workers), step=step)
        for hook in hooks:
            hook.close()
    shown = {}
    for folder in (Path(out) / "tensorboard").rglob("global"):
        found = read_by_tensorboard(folder).Scalars("x")
        shown[str(folder.relative_to(Path(out) / "tensorboard").parent)] = [each.step for each in found]
    own = ["."] if after == 1 else [f"worker_{rank}" for rank in range(after)]
    left = ["."] if before == 1 else [f"worker_{rank}" for rank in range(before)]
    assert shown == {name: [*range(3 * (name in left)), *([3, 4] if name in own else [])] for name in {*own, *left}}


@pytest.mark.parametrize("stays", [False, True])
def test_the_folder_of_a_worker_with_a_name_of_its_own_is_hidden_too(
    make_hook: Callable[..., Any], out: str, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    """On the second machine of a job whose launcher numbers only the processes of a machine."""

    def begin(machine: int, resume: bool, numbered: bool) -> Any:
        for name, value in (("WORLD_SIZE", 2), ("LOCAL_RANK", 0), ("NODE_RANK", machine)):
            monkeypatch.setenv(name, str(value))
        if numbered:
            monkeypatch.setenv("RANK", str(machine))
        return make_hook(export_tensorboard=True, include_workers="all", resume=resume)

    for resume, steps in ((False, range(6)), (True, range(3, 5))):
        hooks = [begin(machine, resume, numbered=resume and not stays) for machine in range(2)]
        for hook in hooks:
            if resume:
                hook.resume_at(3)
            for step in steps:
                hook.save_scalar("x", 1.0, step=step)
        for hook in hooks:
            hook.close()
    shown = {
        folder.parent.name: [each.step for each in read_by_tensorboard(folder).Scalars("x")]
        for folder in (Path(out) / "tensorboard").rglob("global")
    }
    if stays:
        assert shown == {"worker_0": [0, 1, 2, 3, 4], "worker_1.0": [0, 1, 2, 3, 4]}
    else:
        assert shown == {"worker_0": [0, 1, 2, 3, 4], "worker_1": [3, 4], "worker_1.0": [0, 1, 2]}


def test_flushed_steps_can_be_read_during_training(make_hook: Callable[..., Any], out: str) -> None:
    hook = make_hook(export_tensorboard=True, flush_seconds=0)
    run(hook)
    hook.flush()
    assert steps_of_tags(Path(out) / "tensorboard" / "train")[LOSS] == [0, 1]


def test_a_disk_that_breaks_ends_the_event_files_and_nothing_else(
    make_hook: Callable[..., Any], out: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    hook = make_hook(export_tensorboard=True, flush_seconds=0)
    with before(["create"], Path(out, "tensorboard"), fail), caplog.at_level(logging.ERROR):
        run(hook, 5)
        hook.close()
    assert create_trial(out).tensor(LOSS).steps(modes.TRAIN) == [0, 1, 2, 3, 4]
    (record,) = caplog.records
    assert "no more is written to the event files" in record.message
    assert "the disk is full" in record.message


def test_event_files_in_an_object_store_are_rewritten_and_then_followed_by_new_ones() -> None:
    storage = open_storage("memory://events-of-a-test")
    file = EventFile(storage, "train")
    for number in range(24):
        file.append([bytes([number]) * 150_000])  # a file is full at 1 MB
    file.close()
    files = [storage.read(f"train/{name}") for name in storage.list("train")]
    assert len(files) > 2
    found = []
    for data in files:
        (_, version), *rest = records(lambda start, length, data=data: data[start : start + length])
        assert b"brain.Event:2" in bytes(version)
        found += [bytes(record) for _, record in rest]
    assert found == [bytes([number]) * 150_000 for number in range(24)]


def test_event_files_are_written_to_an_object_store(make_hook: Callable[..., Any], tmp_path: Path) -> None:
    hook = make_hook("memory://run-with-events", export_tensorboard=True, flush_seconds=0)
    run(hook)
    hook.close()
    storage = open_storage("memory://run-with-events/tensorboard")
    for name in storage.list("train"):
        (tmp_path / name).write_bytes(storage.read(f"train/{name}"))
    assert [each.step for each in read_by_tensorboard(tmp_path).Scalars(LOSS)] == [0, 1, 2]


def test_a_json_file_configures_event_files(tmp_path: Path) -> None:
    parameters = {"export_tensorboard": "true", "tensorboard_dir": str(tmp_path / "events"), "save_interval": "1"}
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(tmp_path / "run"), "HookParameters": parameters}))
    hook = tt.Hook.create_from_json_file(str(path))
    run(hook)
    hook.close()
    assert list(steps_of_tags(tmp_path / "events" / "train")) == [LOSS]


def test_tensorboard_dir_alone_is_a_warning(
    make_hook: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_hook(tensorboard_dir=str(tmp_path / "events"))
    assert "export_tensorboard=True" in caplog.text
    assert not (tmp_path / "events").exists()


def test_an_event_file_of_another_process_is_not_changed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    first, second = EventFile(storage, "train"), EventFile(storage, "train")
    for each in (first, second, first):
        each.append([b""])
    assert len(storage.list("train")) == 2
    first.close()
    second.close()


def test_a_tensorboard_dir_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot write"):
        EventFile(open_storage(tmp_path), "train").append([b""])
