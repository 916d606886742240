"""What named queries need: they say what is missing, take what follows from other statistics, or compute it from raw
values; and a gradient is linked to its parameter by a column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job, edit_document
from tensortrial.errors import StatisticsNotSaved
from tensortrial.format.record import Plan, Record

WEIGHT = "fc/weights/fc/kernel:0"
NEEDING = ["gradient_norms", "weight_changes", "update_ratios", "dead_layers", "worker_divergence"]


def write(path: Path, statistics: tuple[str, ...] = (), raw: bool = True) -> Path:
    """A run with Keras' names, of two workers, whose weights differ."""
    jobs = [Job(path, f"worker_{worker}", 2) for worker in range(2)]
    for worker, job in enumerate(jobs):
        for number in range(4):
            step = job.begin(TRAIN)
            for plan, value in (
                (Plan(WEIGHT, ("weights",), raw, statistics), np.full(4, 1.0 + number + worker)),
                (
                    Plan("gradients/fc/kernelGrad", ("gradients",), raw, statistics, False, WEIGHT),
                    np.full(4, 0.5 + number),
                ),
                (Plan("relu_output_0", ("outputs",), raw, statistics), np.zeros(3)),
            ):
                job.writer.put(step, [Record(plan, value, number)], closes=False)
            job.writer.put(step, [], closes=True)
    for job in jobs:
        job.close()
    return path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with raw values and no statistics."""
    return write(tmp_path_factory.mktemp("bare") / "run").parent


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with the statistics that queries need."""
    return write(tmp_path_factory.mktemp("full") / "run", ("l2", "abs_max")).parent


@pytest.fixture(scope="module")
def derivable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with other statistics, from which they follow."""
    return write(tmp_path_factory.mktemp("derivable") / "run", ("mean", "std", "min", "max"), raw=False).parent


@pytest.mark.parametrize("name", NEEDING)
def test_a_query_says_what_the_runs_lack(bare: Path, name: str) -> None:
    with pytest.raises(StatisticsNotSaved, match=r"needs (l2|abs_max) of tensors .* of \d+ rows .* from_raw=True"):
        tensortrial.query(bare, name)


@pytest.mark.parametrize("name", NEEDING)
def test_what_is_computed_from_raw_values_is_what_would_have_been_saved(bare: Path, full: Path, name: str) -> None:
    computed, saved = tensortrial.query(bare, name, from_raw=True), tensortrial.query(full, name)
    assert computed.columns == saved.columns
    rows = saved.fetchall()
    assert rows
    assert computed.fetchall() == rows
    assert tensortrial.query(full, name, from_raw=True).fetchall() == rows


@pytest.mark.parametrize("name", NEEDING)
def test_what_follows_from_other_statistics_is_enough(derivable: Path, full: Path, name: str) -> None:
    found, saved = (tensortrial.query(each, name).fetchall() for each in (derivable, full))
    assert [list(map(str, row[:2])) for row in found] == [list(map(str, row[:2])) for row in saved]
    for row, other in zip(found, saved, strict=True):
        assert [x for x in row if isinstance(x, float)] == pytest.approx([x for x in other if isinstance(x, float)])


def test_a_query_says_that_nothing_of_a_collection_was_saved(tmp_path: Path) -> None:
    write(tmp_path / "run", ("l2",))
    with pytest.raises(StatisticsNotSaved, match="needs l2 of tensors of 'wieghts', and none were saved"):
        tensortrial.query(tmp_path, "weight_changes", collection="wieghts")


def test_a_run_that_has_just_begun_lacks_nothing(tmp_path: Path) -> None:
    Job(tmp_path / "run").close()
    assert tensortrial.query(tmp_path, "gradient_norms").fetchall() == []


def test_a_gradient_is_linked_to_its_parameter(tmp_path: Path) -> None:
    write(tmp_path / "run", ("l2",))
    rows = tensortrial.query(tmp_path, "update_ratios").fetchall()
    assert len(rows) == 8
    assert rows[1] == ("run", "fc/weights/fc/kernel:0", "worker_0", "TRAIN", 1, 4.0, 3.0, 0.75)


def test_gradients_without_their_parameter_are_paired_by_their_prefix(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for _ in range(2):
            job.step({"w": np.ones(4)}, TRAIN, statistics=("l2",), collections=("weights",))
            job.step({"gradient/w": np.ones(4)}, TRAIN, statistics=("l2",), collections=("gradients",))
    with Job(tmp_path / "both") as job:
        step = job.begin(TRAIN)
        job.put(step, {"w": np.ones(4)}, statistics=("l2",), collections=("weights",))
        job.put(step, {"gradient/w": np.full(4, 2.0)}, statistics=("l2",), collections=("gradients",), closes=True)
    rows = tensortrial.query(tmp_path, "update_ratios").fetchall()
    assert [(row[0], row[1], row[-1]) for row in rows] == [("both", "w", 2.0)]


def test_gradient_norms_are_of_all_modes_unless_one_is_chosen(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for mode in (TRAIN, EVAL):
            job.step({"gradient/w": np.ones(4)}, mode, statistics=("l2",), collections=("gradients",))
    rows = tensortrial.query(tmp_path, "gradient_norms").fetchall()
    assert [row[3:] for row in rows] == [("EVAL", 0, 2.0), ("TRAIN", 0, 2.0)]
    rows = tensortrial.query(tmp_path, "gradient_norms", mode="TRAIN").fetchall()
    assert [row[3:] for row in rows] == [("TRAIN", 0, 2.0)]


def test_the_first_batch_of_an_epoch_is_not_the_best_of_running_means(tmp_path: Path) -> None:
    means = [0.1, 0.9, 0.8, 0.2, 0.7, 0.6]
    for framework, best in (("keras", 0.6), ("pytorch", 0.1)):
        with Job(tmp_path / framework) as job:
            for epoch in range(2):
                for batch in range(3):
                    job.step({"loss": means[3 * epoch + batch]}, TRAIN, collections=("losses",))
                job.step({"val_loss": 1.0}, EVAL, collections=("losses",))
        edit_document(tmp_path / framework / "run.json", framework=framework)
        ((_, found, *_),) = tensortrial.query(tmp_path / framework, "best_runs").fetchall()
        assert found == best
