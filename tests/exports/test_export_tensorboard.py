"""Exports into event files, as TensorBoard's own reader sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support import warm
from support.event_folders import read_by_tensorboard, steps_of_tags
from support.export_conformance import SLOWLY, train, write_run, write_step
from support.file_access import before_opening
from support.runs import Job
from tensortrial import create_trial, modes
from tensortrial.errors import ConfigurationError, ExportError
from tensortrial.storage.open import open_storage

NORM = {"statistics": ("l2",)}


def export(runs: Any, target: Any, **options: Any) -> tensortrial.Export:
    return tensortrial.export(runs, f"tensorboard:{target}", progress=False, **options)


def check(run: Path, folder: Path) -> None:
    """The folder shows each number, statistic and histogram of the run, in the order of steps."""
    trial = tensortrial.create_trial(run)
    for mode in ("TRAIN", "EVAL"):
        numbers = f"select name as tag, mode_step from scalars where mode = '{mode}'"
        statistics = f"select name || '/' || reduction, mode_step from reductions where mode = '{mode}'"
        drawn = f"select name, mode_step from tensors where mode = '{mode}' and histogram is not null"
        rows = trial.sql(f"{numbers} union all {statistics} union all {drawn} order by all").fetchall()
        expected: dict[str, list[int]] = {}
        for tag, step in rows:
            expected.setdefault(tag, []).append(step)
        assert steps_of_tags(folder / mode.lower()) == expected, mode


def test_shows_what_the_run_holds(tmp_path: Path, run: Path) -> None:
    done = export(run, tmp_path / "shown")
    assert done.rows == {"tensors": 30}
    check(run, tmp_path / "shown" / "a")
    found, trial = read_by_tensorboard(tmp_path / "shown" / "a" / "train"), tensortrial.create_trial(run)
    tensor = trial.tensor("net.w")
    for scalar in found.Scalars("net.w/l2"):
        assert scalar.value == pytest.approx(tensor.reduction_value(scalar.step, "l2", modes.TRAIN))
    for histogram in found.Histograms("net.w"):
        edges, counts = tensor.histogram(histogram.step, modes.TRAIN)
        np.testing.assert_array_equal(histogram.histogram_value.bucket, counts)
        np.testing.assert_array_equal(histogram.histogram_value.bucket_limit, edges[1:])
    ((saved_at,),) = trial.sql(
        "select epoch_us(saved_at) from scalars where name = 'loss' and mode = 'TRAIN' and mode_step = 1"
    ).fetchall()
    assert found.Scalars("loss")[1].wall_time == saved_at / 1e6


def test_again_adds_only_what_is_new(tmp_path: Path) -> None:
    with Job(tmp_path / "a", flush_seconds=0) as job:
        for _ in range(4):
            write_step(job)
        job.writer.flush()
        assert export(tmp_path / "a", tmp_path / "shown").rows["tensors"] == 20
        before = {path: path.read_bytes() for path in (tmp_path / "shown").rglob("*tfevents*")}
        assert export(tmp_path / "a", tmp_path / "shown").rows["tensors"] == 0
        write_step(job)
        job.writer.flush()
        assert export(tmp_path / "a", tmp_path / "shown").rows["tensors"] == 5
    assert all(path.read_bytes() == data for path, data in before.items())
    tensortrial.compact(tmp_path / "a", delete_older_than=0)
    assert export(tmp_path / "a", tmp_path / "shown").rows["tensors"] == 0
    check(tmp_path / "a", tmp_path / "shown" / "a")


def test_a_run_that_went_back_is_shown_as_it_counts_now(tmp_path: Path) -> None:
    train(tmp_path / "a", 0, 3)
    train(tmp_path / "a", 3, 6, resume=True)
    for first, last in ((4, 5), (2, 3)):
        export(tmp_path / "a", tmp_path / "shown")
        train(tmp_path / "a", first, last, resume=True)
        export(tmp_path / "a", tmp_path / "shown")
        values = {step: float(loss) for step, loss in create_trial(tmp_path / "a").tensor("loss").values().items()}
        found = read_by_tensorboard(tmp_path / "shown" / "a" / "global").Scalars("loss")
        assert {each.step: each.value for each in found} == pytest.approx(values, nan_ok=True)
    assert not tensortrial.export(tmp_path / "a", f"tensorboard:{tmp_path}/shown", prune=True).pruned
    assert export([write_run(tmp_path / "b")], tmp_path / "shown", prune=True).pruned == ("a",)
    assert not list((tmp_path / "shown" / "a").rglob("*tfevents*"))


def test_a_scalar_with_the_name_of_a_statistic_keeps_it(tmp_path: Path) -> None:
    with Job(tmp_path / "a") as job:
        job.step({"w": (NORM, np.full(4, 3.0)), "w/l2": 1.0})
    export(tmp_path / "a", tmp_path / "shown")
    found = read_by_tensorboard(tmp_path / "shown" / "a" / "global")
    shown = {tag: [each.value for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert shown == {"w/l2": [1.0], "w/statistics/l2": [6.0]}


def test_tensors_with_long_names_are_exported(tmp_path: Path) -> None:
    name = "w" * 1_000_000
    with Job(tmp_path / "a") as job:
        for step in range(20):
            job.step({name: float(step)})
    export(tmp_path / "a", tmp_path / "shown")
    found = read_by_tensorboard(tmp_path / "shown" / "a" / "global").Scalars(name)
    assert [each.value for each in found] == list(range(20))


def test_a_run_keeps_its_name(tmp_path: Path) -> None:
    target = tmp_path / "shown"
    run = write_run(tmp_path / "one/a")
    export(tmp_path / "one", target)
    write_run(tmp_path / "two/a")
    with Job(run, resume=True) as job:
        write_step(job)
    for rows in (5 + 30, 0):
        # By now it is called one/a.
        assert export([tmp_path / "one", tmp_path / "two"], target).rows["tensors"] == rows
    check(run, target / "a")
    assert not (target / "one").exists()
    check(tmp_path / "two/a", target / "two" / "a")


def test_a_killed_export_is_finished_by_the_next(tmp_path: Path) -> None:
    job = Job(tmp_path / "a", flush_seconds=0)
    for _ in range(20):
        write_step(job)
        job.writer.flush()
    program = SLOWLY.format(runs=str(tmp_path / "a"), target=f"tensorboard:{tmp_path}/shown", options={})
    with warm.start(["-c", program]) as process:
        assert process.stdout is not None
        for _ in range(7):
            assert process.stdout.readline() == "part\n"
        process.kill()
    assert 0 < export(tmp_path / "a", tmp_path / "shown").rows["tensors"] < 100
    check(tmp_path / "a", tmp_path / "shown" / "a")
    job.close()


def test_files_of_an_interrupted_export_are_replaced(tmp_path: Path) -> None:
    with Job(tmp_path / "a", flush_seconds=0) as job:
        write_step(job)
        job.writer.flush()
        export(tmp_path / "a", tmp_path / "shown")
        (tmp_path / "shown" / "a" / "exported.json").unlink()
        foreign = tmp_path / "shown" / "a" / "train" / "events.out.tfevents.1700000000.host"
        foreign.write_bytes(b"")
        write_step(job)
    export(tmp_path / "a", tmp_path / "shown")
    assert foreign.exists()
    check(tmp_path / "a", tmp_path / "shown" / "a")


def test_runs_and_workers_have_folders(tmp_path: Path) -> None:
    with Job(tmp_path / "runs" / "a", "worker_0", 2) as one, Job(tmp_path / "runs" / "a", "worker_1", 2) as two:
        for job in (one, one, one, two):
            write_step(job)
    write_run(tmp_path / "runs" / "b", 2)
    export(tmp_path / "runs", tmp_path / "shown")
    shown = {str(path.parent.relative_to(tmp_path / "shown")) for path in (tmp_path / "shown").rglob("*tfevents*")}
    assert shown == {"a/train", "a/eval", "a/worker_1/train", "b/train"}


def test_to_an_object_store(tmp_path: Path, run: Path) -> None:
    for _ in range(2):
        export(run, "memory://shown")
    storage = open_storage("memory://shown")
    for mode in ("train", "eval"):
        for name in storage.list(f"a/{mode}"):
            (tmp_path / "shown" / mode).mkdir(parents=True)
            (tmp_path / "shown" / mode / name).write_bytes(storage.read(f"a/{mode}/{name}"))
    check(run, tmp_path / "shown")


def test_since_leaves_earlier_steps_out(tmp_path: Path, run: Path) -> None:
    export(run, tmp_path / "shown", since=np.int64(4))
    assert steps_of_tags(tmp_path / "shown" / "a" / "train")["loss"] == [3]


def test_an_interrupted_part_leaves_nothing(tmp_path: Path, run: Path) -> None:
    begun = list[Path]()

    def interrupt() -> None:
        begun.extend((tmp_path / "shown" / "a" / "train").iterdir())
        raise KeyboardInterrupt

    # The file of the first mode has been begun by then.
    with before_opening(tmp_path / "shown" / "a" / "eval", interrupt), pytest.raises(KeyboardInterrupt):
        export(run, tmp_path / "shown")
    assert begun
    assert not [path for path in (tmp_path / "shown").rglob("*") if not path.is_dir()]


@pytest.mark.parametrize(
    "noted",
    ["{", "[]", '{"identity": "x", "digests": {"worker_0": {"seven": "x"}}}', " " * (33 << 20)],
    ids=lambda text: text[:9],
)
def test_a_damaged_ledger_is_named(tmp_path: Path, run: Path, noted: str) -> None:
    (tmp_path / "shown" / "a").mkdir(parents=True)
    (tmp_path / "shown" / "a" / "exported.json").write_text(noted)
    with pytest.raises(ExportError, match="is damaged"):
        export(run, tmp_path / "shown")


def test_raw_values_and_an_empty_url_are_refused(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ExportError, match="no raw values"):
        export(run, tmp_path / "shown", tables=["tensor_values"])
    with pytest.raises(ConfigurationError, match="names no folder"):
        export(run, "")
    export(run, tmp_path / "shown")
    path = tmp_path / "shown" / "a" / "exported.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"identity": "another"}))
    with pytest.raises(ExportError, match="another run of this name"):
        export(run, tmp_path / "shown")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot"):
        export(run, tmp_path / "file")
