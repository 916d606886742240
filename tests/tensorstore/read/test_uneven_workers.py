"""Workers that are not in step: one global step is TRAIN for one of them and EVAL for the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tensortrial
from support.runs import EVAL, GLOBAL, TRAIN, Job
from tensortrial.cli.commands import main
from tensortrial.errors import CorruptFile, InvalidWorker, StepUnavailable
from tensortrial.mode import ModeKeys
from tensortrial.read.step_states import StepState
from tensortrial.read.tensor import Tensor
from tensortrial.read.trial import Trial
from tensortrial.rules import LossNotDecreasing, WeightUpdateRatio, watch

WORKERS = ("worker_0", "worker_1")
# Steps of each mode in an epoch, by worker.
LENGTHS = ({TRAIN: 7, EVAL: 3}, {TRAIN: 5, EVAL: 3})
EPOCHS = 2

Place = tuple[str, ModeKeys, int]


def number_of(worker: str, mode: ModeKeys, step: int) -> float:
    return 1000.0 * WORKERS.index(worker) + 100 * mode.value + step


def train(job: Job, rank: int) -> Iterator[None]:
    """Save in each mode a tensor whose elements say what they are of, and whose shape says the worker."""
    for mode in [TRAIN, EVAL] * EPOCHS:
        for _ in range(LENGTHS[rank][mode]):
            number = number_of(WORKERS[rank], mode, job.next_mode_steps[mode])
            values = {"x": np.full(rank + 2, number), f"only/{mode.name}": number}
            job.step(values, mode, statistics=("max",), collections=("weights", "losses"))
            yield
    job.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("uneven") / "run")
    jobs = [train(Job(path, worker, 2), rank) for rank, worker in enumerate(WORKERS)]
    while jobs:
        jobs = [job for job in jobs if next(job, StopIteration) is not StopIteration]
    return path


@pytest.fixture
def trial(run: str) -> Iterator[Trial]:
    with tensortrial.create_trial(run) as opened:
        yield opened


@pytest.fixture(scope="module")
def saved() -> dict[Place, int]:
    """The global step of each worker's steps of each mode."""
    found: dict[Place, int] = {}
    for worker, lengths in zip(WORKERS, LENGTHS, strict=True):
        counts, reached = {TRAIN: 0, EVAL: 0}, 0
        for mode in [TRAIN, EVAL] * EPOCHS:
            for _ in range(lengths[mode]):
                found[worker, mode, counts[mode]] = reached
                counts[mode], reached = counts[mode] + 1, reached + 1
    return found


READERS: dict[str, Callable[[Tensor, Trial, Place], Any]] = {
    "value": lambda x, _, at: x.value(at[2], at[1], at[0])[0],
    "values": lambda x, _, at: x.values(at[1], at[0])[at[2]][0],
    "some values": lambda x, trial, at: trial.values(["x", f"only/{at[1].name}"], [at[2]], at[1], at[0])["x"][at[2]][0],
    "reduction_value": lambda x, _, at: x.reduction_value(at[2], "max", at[1], at[0]),
    "a computed reduction": lambda x, _, at: x.reduction_value(at[2], "mean", at[1], at[0]),
    "reduction_values": lambda x, _, at: x.reduction_values(at[2], at[1], at[0])["max", False],
    "quantile": lambda x, _, at: x.quantile(at[2], 0.5, at[1], at[0]) and x.value(at[2], at[1], at[0])[1],
    "inputs of a collection": lambda _, trial, at: trial.tensor(f"only/{at[1].name}").value(at[2], at[1], at[0]),
}


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
def test_a_worker_reads_its_own_step_of_a_mode(
    trial: Trial, saved: dict[Place, int], read: Callable[[Tensor, Trial, Place], Any]
) -> None:
    with tensortrial.no_refresh(trial):
        found = {at: float(read(trial["x"], trial, at)) for at in saved}
    assert found == {at: number_of(*at) for at in saved}


def test_a_frame_has_the_steps_of_its_worker(trial: Trial, saved: dict[Place, int]) -> None:
    pytest.importorskip("pandas")
    found = {at: float(trial.frame("x", "max", at[1], at[0])["x"][at[2]]) for at in saved}
    assert found == {at: number_of(*at) for at in saved}


def test_shapes_are_those_of_the_worker(trial: Trial, saved: dict[Place, int]) -> None:
    x = trial["x"]
    assert {x.shape(step, mode, worker)[0] - 2 == WORKERS.index(worker) for worker, mode, step in saved} == {True}
    assert set(x.shapes(TRAIN, "worker_1").values()) == {(3,)}


def test_without_a_worker_the_first_one_that_has_the_step_is_read(trial: Trial, saved: dict[Place, int]) -> None:
    for mode in (TRAIN, EVAL):
        for step in trial.steps(mode):
            first = next(worker for worker in WORKERS if (worker, mode, step) in saved)
            assert trial["x"].value(step, mode)[0] == number_of(first, mode, step)
            assert trial.global_step(mode, step) == saved[first, mode, step]
            assert trial["x"].workers(step, mode) == [each for each in WORKERS if (each, mode, step) in saved]
    for step in trial.steps():
        _, mode, of_mode = next(at for at, place in saved.items() if place == step)  # worker_0 comes first
        assert (trial.mode(step), trial.mode_step(step)) == (mode, of_mode)
        assert float(trial["x"].value(step)[0]) % 1000 == 100 * mode.value + of_mode


def test_a_step_that_a_worker_never_had_has_no_value(trial: Trial) -> None:
    with pytest.raises(InvalidWorker, match="worker_1"):
        trial["x"].value(10, TRAIN, "worker_1")
    with pytest.raises(StepUnavailable):
        trial["x"].value(14, TRAIN)
    assert sorted(trial["x"].values(TRAIN, "worker_1")) == list(range(10))


def test_the_names_of_a_step_are_those_of_its_mode(trial: Trial, saved: dict[Place, int]) -> None:
    for mode in (TRAIN, EVAL):
        assert {tuple(trial.tensor_names(step=each, mode=mode)) for each in trial.steps(mode)} == {
            (f"only/{mode.name}", "x")
        }
    assert trial.modes() == [TRAIN, EVAL]
    assert trial.tensor_names(step=5) == ["only/EVAL", "only/TRAIN", "x"]


def test_the_parts_of_a_step_of_a_mode_are_merged(trial: Trial, saved: dict[Place, int]) -> None:
    rows = trial.sql(
        "select mode, mode_step, global_step, workers, elements, max from merged_reductions where name = 'x'"
    )
    found = {(ModeKeys[mode], step): rest for mode, step, *rest in rows.fetchall()}
    for mode, step in {at[1:] for at in saved}:
        workers = [worker for worker in WORKERS if (worker, mode, step) in saved]
        first = min(saved[worker, mode, step] for worker in workers)
        elements = sum(2 + WORKERS.index(worker) for worker in workers)
        assert found[mode, step] == [first, len(workers), elements, number_of(workers[-1], mode, step)]


def test_rules_judge_each_worker_in_its_own_mode(trial: Trial, saved: dict[Place, int]) -> None:
    of_train = WeightUpdateRatio(trial, large_threshold=0.0)
    of_eval = LossNotDecreasing(trial, mode="EVAL", num_steps=1)
    findings = watch(trial, [of_train, of_eval], record=False)
    found = {(each.worker, each.step): each.mode for each in findings}
    assert found == {(worker, place): mode.name for (worker, mode, step), place in saved.items() if step > 0}


def test_a_loss_is_compared_with_the_same_worker_at_the_same_number_of_steps_before(trial: Trial) -> None:
    findings = watch(trial, [LossNotDecreasing(trial, mode="TRAIN", num_steps=5)], record=False)
    sentences = [each.sentence for each in findings if each.worker == "worker_1"]
    assert sentences, "worker_1 was judged"
    # Its losses are the numbers 1100 to 1109; five steps of the mode before the first of its second epoch is 1100.
    assert all("since step 0" in each for each in sentences)


def test_follow_prints_the_scalars_of_a_step_of_a_mode(run: str) -> None:
    lines = CliRunner().invoke(main, ["follow", run, "-n", "100", "--regex", "only"]).stdout.splitlines()
    assert lines[5] == "TRAIN 5  (global 5)  only/TRAIN 105"
    assert lines[7] == "EVAL 0  (global 7)  only/EVAL 200"


def test_a_step_of_a_mode_is_complete_when_all_workers_have_written_or_passed_it(tmp_path: Any) -> None:
    jobs = [Job(tmp_path, worker, 2) for worker in WORKERS]
    saved = [(0, [TRAIN] * 3 + [EVAL] * 2), (1, [TRAIN] * 2 + [EVAL] * 2)]
    for rank, modes in saved:
        for mode in modes:
            jobs[rank].step({"x": 1.0}, mode)
    trial = tensortrial.create_trial(tmp_path)
    assert trial.steps() == [0, 1, 2, 3]
    assert (trial.steps(TRAIN), trial.steps(EVAL)) == ([0, 1], [0, 1])
    assert trial.has_passed_step(2, TRAIN) is StepState.NOT_YET_AVAILABLE
    jobs[1].step({"x": 1.0}, TRAIN)
    assert trial.steps(TRAIN) == [0, 1, 2]
    jobs[1].step({"x": 1.0}, TRAIN)
    assert trial.steps(TRAIN) == [0, 1, 2]
    assert trial.steps(TRAIN, show_incomplete_steps=True) == [0, 1, 2, 3]
    jobs[0].step({"x": 1.0}, EVAL)
    assert trial.has_passed_step(2, EVAL) is StepState.NOT_YET_AVAILABLE
    jobs[1].close()
    assert trial.steps(EVAL) == [0, 1, 2]
    jobs[0].close()
    assert trial.steps(TRAIN) == [0, 1, 2, 3]


def test_a_mode_in_which_one_worker_alone_saves_does_not_wait_for_the_others(tmp_path: Any) -> None:
    jobs = [Job(tmp_path, worker, 2) for worker in WORKERS]
    for rank, modes in ((0, [TRAIN, EVAL, EVAL, TRAIN]), (1, [TRAIN, TRAIN])):
        for mode in modes:
            jobs[rank].step({"x": 1.0}, mode)
    trial = tensortrial.create_trial(tmp_path)
    assert (trial.steps(TRAIN), trial.steps(EVAL)) == ([0, 1], [0])
    jobs[1].step({"x": 1.0}, TRAIN)
    assert (trial.steps(TRAIN), trial.steps(EVAL)) == ([0, 1], [0, 1])
    assert trial.steps(GLOBAL) == [0, 1, 2]
    for job in jobs:
        job.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_no_row_of_another_worker_is_returned_where_a_file_with_the_step_is_damaged(tmp_path: Any, rank: int) -> None:
    jobs = [Job(tmp_path, worker, 2, flush_seconds=0) for worker in WORKERS]
    lost = WORKERS[rank]
    for worker, job in zip(WORKERS, jobs, strict=True):
        for mode in [TRAIN, EVAL] * EPOCHS:
            for _ in range(LENGTHS[WORKERS.index(worker)][mode]):
                job.publish({"x": number_of(worker, mode, job.next_mode_steps[mode])}, mode)
    for job in jobs:
        job.abandon()
    places = {(TRAIN, 6): (6, 9), (EVAL, 1): (8, 6)}
    folder = tmp_path / "index" / f"worker={lost}" / "step=000000000000"
    for place in places.values():
        sorted(folder.iterdir())[place[rank]].write_bytes(b"damaged")
    trial = tensortrial.create_trial(tmp_path)
    trial.mark_ended()
    x = trial["x"]
    for mode, step in places:
        with pytest.raises(CorruptFile):
            x.value(step, mode, lost)
        if rank == 0:
            with pytest.raises(CorruptFile, match=f"of worker_0 at step {step} of mode {mode.name}; pass worker="):
                x.value(step, mode)
            with pytest.raises(CorruptFile):
                x.values(mode)
        assert x.value(step, mode, WORKERS[1 - rank]) == number_of(WORKERS[1 - rank], mode, step)
    # Nothing else is lost: not the steps whose global step, with the other worker, is that of a damaged file.
    for mode, step in [(TRAIN, 5), (TRAIN, 7), (EVAL, 0), (EVAL, 2)]:
        assert x.value(step, mode) == number_of("worker_0", mode, step)
        assert x.value(step, mode, lost) == number_of(lost, mode, step)
    assert x.value(13, TRAIN) == number_of("worker_0", TRAIN, 13)
    with pytest.raises(InvalidWorker):
        x.value(13, TRAIN, "worker_1")
