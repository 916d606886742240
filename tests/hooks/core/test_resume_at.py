"""Runs that are continued at the step of a checkpoint."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.file_access import before

torch = pytest.importorskip("torch")

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.programs import run as run_program  # noqa: E402
from tensortrial import Run, Trial, create_trial, open_runs  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.maintenance.compaction import compact  # noqa: E402
from tensortrial.maintenance.verification import verify  # noqa: E402
from tensortrial.mode import ModeKeys  # noqa: E402


def attempt(hook: Any, value: float, steps: int) -> None:
    """Save a raw value and a number at each of some steps."""
    for _ in range(steps):
        with hook.step():
            hook.save_tensor("x", torch.full((3,), value))
            hook.save_scalar("y", value)


def first_attempt(make_hook: Any, steps: int = 8, mode: Any = None, closes: bool = True, **options: Any) -> Any:
    hook = make_hook(**options)
    if mode is not None:
        hook.set_mode(mode)
    attempt(hook, 1, steps)
    if closes:
        hook.close()
    return hook


def values(out: Any, mode: Any = ModeKeys.GLOBAL) -> list[float]:
    """Return the values of both tensors, by step, which must agree."""
    trial = create_trial(out)
    x, y = trial.tensor("x"), trial.tensor("y")
    assert x.steps(mode) == y.steps(mode) == list(range(len(x.steps(mode))))
    found = [float(x.value(step, mode)[0]) for step in x.steps(mode)]
    assert found == [y.value(step, mode) for step in y.steps(mode)]
    return found


@pytest.mark.parametrize("mode", [None, tt.modes.TRAIN])
@pytest.mark.parametrize(
    ("at", "steps", "same_process"),
    [(5, 2, False), (5, 6, False), (0, 9, False), (8, 1, False), (5, 2, True), (0, 9, True)],
)
def test_steps_after_a_checkpoint_are_superseded_when_they_are_saved_again(
    make_hook: Any, out: str, at: int, steps: int, same_process: bool, mode: Any
) -> None:
    hook = first_attempt(make_hook, mode=mode, flush_seconds=0, closes=not same_process)
    if not same_process:
        hook = make_hook(resume=True, flush_seconds=0)
    if mode is not None:
        hook.set_mode(mode)
    hook.resume_at(at)
    assert hook.mode_steps.get(mode or tt.modes.GLOBAL, -1) == at - 1
    attempt(hook, 2, steps)
    hook.close()
    expected = [1.0] * at + [2.0] * steps
    assert values(out, mode or ModeKeys.GLOBAL) == expected
    trial = create_trial(out)
    assert trial.loaded_all_steps
    query = "select global_step, scalar from {} where name = 'y' order by saved_at"
    kept, aside = [(step, 1.0) for step in range(at)], [(step, 1.0) for step in range(at, 8)]
    assert trial.sql(query.format("tensors")).fetchall() == kept + [(at + step, 2.0) for step in range(steps)]
    assert trial.sql(query.format("superseded")).fetchall() == aside
    assert verify(out).is_whole
    compact(out, delete_older_than=0)
    assert values(out, mode or ModeKeys.GLOBAL) == expected
    assert verify(out).is_whole
    trial = create_trial(out)
    assert trial.sql(query.format("superseded")).fetchall() == aside
    assert not trial.sql("select chunk from superseded where chunk is null and name = 'x'").fetchall()


@pytest.mark.parametrize("same_process", [False, True])
def test_an_open_trial_returns_what_the_new_attempt_has_saved(make_hook: Any, out: str, same_process: bool) -> None:
    hook = first_attempt(make_hook, flush_seconds=0, closes=not same_process)
    hook.flush()
    trial = create_trial(out)
    assert trial.tensor("y").value(6) == 1
    if not same_process:
        hook = make_hook(resume=True, flush_seconds=0)
    hook.resume_at(5)
    attempt(hook, 2, 2)
    hook.flush()
    trial.refresh()
    assert trial.steps() == list(range(7))
    assert [trial.tensor("y").value(step) for step in range(7)] == [1, 1, 1, 1, 1, 2, 2]
    assert [float(trial.tensor("x").value(step)[0]) for step in (4, 5, 6)] == [1, 2, 2]


def test_an_answer_from_before_a_run_went_back_keeps_its_rows(make_hook: Any, out: str) -> None:
    first_attempt(make_hook, flush_seconds=0)
    trial = create_trial(out)
    answer = trial.sql("select global_step from steps")
    hook = make_hook(resume=True, flush_seconds=0)
    hook.resume_at(5)
    attempt(hook, 2, 1)
    hook.close()
    trial.refresh()
    assert trial.steps() == list(range(6))
    assert len(answer.fetchall()) == 8
    assert trial.sql("select count(*) from steps").fetchall() == [(6,)]


def test_a_run_may_go_back_several_times(make_hook: Any, out: str) -> None:
    first_attempt(make_hook)
    for at, value in ((5, 2), (3, 3), (9, 4)):
        hook = make_hook(resume=True)
        hook.resume_at(at)
        attempt(hook, value, 3)
        hook.close()
    trial = create_trial(out)
    assert [trial.tensor("y").value(step) for step in trial.tensor("y").steps()] == [1, 1, 1, 3, 3, 3, 4, 4, 4]
    assert trial.steps() == [0, 1, 2, 3, 4, 5, 9, 10, 11]


@pytest.mark.parametrize("same_process", [False, True])
def test_steps_between_saved_ones_have_the_numbers_that_they_had(make_hook: Any, same_process: bool) -> None:
    every_third = tt.SaveConfig(save_interval=3)

    def train(hook: Any, value: float, steps: int) -> None:
        hook.set_mode(tt.modes.TRAIN)
        for _ in range(steps):
            with hook.step():
                hook.record_tensor_value("loss", value)

    hook = make_hook(save_config=every_third)
    train(hook, 1, 10)
    if not same_process:
        hook.close()
        hook = make_hook(save_config=every_third, resume=True)
    hook.resume_at(5, mode="TRAIN")
    train(hook, 2, 3)
    loss = closed(hook).tensor("loss_output_0")
    assert [(step, float(loss.value(step, ModeKeys.TRAIN))) for step in loss.steps(ModeKeys.TRAIN)] == [
        (0, 1),
        (3, 1),
        (6, 2),
    ]


@pytest.mark.parametrize("same_process", [False, True])
def test_steps_of_other_modes_go_back_too(make_hook: Any, out: str, same_process: bool) -> None:
    def epochs(hook: Any, value: float, count: int) -> None:
        for _ in range(count):
            for mode, steps in ((tt.modes.TRAIN, 3), (tt.modes.EVAL, 2)):
                hook.set_mode(mode)
                attempt(hook, value, steps)

    hook = make_hook()
    epochs(hook, 1, 3)
    if not same_process:
        hook.close()
        hook = make_hook(resume=True)
    hook.resume_at(3, tt.modes.TRAIN)
    epochs(hook, 2, 1)
    hook.close()
    assert values(out, ModeKeys.TRAIN) == [1] * 3 + [2] * 3
    assert values(out, ModeKeys.EVAL) == [1] * 2 + [2] * 2
    assert values(out) == [1] * 5 + [2] * 5


def test_a_run_without_steps_begins_at_the_step(make_hook: Any) -> None:
    hook = make_hook(resume=True)
    hook.resume_at(40)
    attempt(hook, 1, 2)
    assert closed(hook).steps() == [40, 41]


def test_a_checkpoint_after_the_last_saved_step_is_continued(make_hook: Any) -> None:
    first_attempt(make_hook, steps=3)
    hook = make_hook(resume=True)
    hook.resume_at(7)
    attempt(hook, 2, 1)
    assert closed(hook).steps() == [0, 1, 2, 7]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("not resumed", "pass resume=True"),
        ("held", "a step is open"),
        ("another mode", r"no steps in mode EVAL, only in GLOBAL: pass mode="),
        (-1, "step must be an integer"),
        (1.5, "step must be an integer"),
        (True, "step must be an integer"),
        ("5", "step must be an integer"),
    ],
)
def test_a_step_at_which_a_run_cannot_continue_is_refused(make_hook: Any, out: str, case: Any, text: str) -> None:
    first_attempt(make_hook, steps=3)
    hook = make_hook(out + "2") if case == "not resumed" else make_hook(resume=True)
    if case == "held":
        hook.begin_step()
    with pytest.raises(ConfigurationError, match=text):
        hook.resume_at(
            case if not isinstance(case, str) or case == "5" else 1, "EVAL" if case == "another mode" else None
        )
    if case == "held":
        hook.end_step()
    attempt(hook, 2, 1)
    hook.close()
    assert create_trial(hook.out_dir).steps()


def test_a_process_goes_back_to_before_its_first_step(make_hook: Any, out: str) -> None:
    first_attempt(make_hook, steps=4)
    hook = make_hook(resume=True)
    attempt(hook, 2, 2)
    hook.resume_at(2)
    attempt(hook, 3, 1)
    hook.save_scalar("z", 5, step=0)
    hook.close()
    assert values(out) == [1, 1, 3]
    trial = create_trial(out)
    assert trial.loaded_all_steps
    assert trial.tensor("z").value(0) == 5
    assert trial.sql("select count(*) from superseded where name = 'y'").fetchall() == [(4,)]


def test_each_worker_goes_back_by_itself(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        runs.append(Run(out, include_workers="all", flush_seconds=0))
        runs[-1].log({"y": 1}, step=0)
    for rank, at, value in ((0, 1, 1), (1, 1, 1), (0, 2, 1), (1, 2, 1), (0, 1, 2), (1, 1, 2)):
        if value == 2:
            runs[rank].resume_at(at)
        runs[rank].log({"y": value}, step=at)
    for run in runs:
        run.close()
    rows = create_trial(out).sql("select worker, global_step, scalar from tensors order by all").fetchall()
    assert rows == [(f"worker_{rank}", step, step + 1) for rank in range(2) for step in range(2)]
    assert create_trial(out).loaded_all_steps
    assert verify(out).is_whole


# Steps of each mode in an epoch, by worker.
UNEVEN = ({"TRAIN": 7, "EVAL": 3}, {"TRAIN": 5, "EVAL": 3})
ONLY_TRAINING = ({"TRAIN": 7}, {"TRAIN": 5})
MORE_EVALUATION = ({"TRAIN": 5, "EVAL": 3}, {"TRAIN": 5, "EVAL": 2})
EVEN = ({"TRAIN": 4, "EVAL": 2}, {"TRAIN": 4, "EVAL": 2})


class UnevenJob:
    """Workers that make different numbers of steps in an epoch, each in its own order, and save the attempt."""

    def __init__(self, out: str, lengths: Sequence[dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.lengths, self._monkeypatch = out, lengths, monkeypatch

    def hook(self, rank: int, **options: Any) -> Any:
        self._monkeypatch.setenv("RANK", str(rank))
        self._monkeypatch.setenv("WORLD_SIZE", str(len(self.lengths)))
        return tt.Hook(self.out, include_workers="all", flush_seconds=0, **options)

    def run(self, epochs: int, attempt: int) -> None:
        """Run a session of all workers from the beginning to its end."""
        hooks = [self.hook(rank) for rank in range(len(self.lengths))]
        for hook in hooks:
            self.train(hook, epochs, attempt)
        for hook in hooks:
            hook.close()

    def train(self, hook: Any, epochs: int, attempt: int) -> None:
        for _ in range(epochs):
            for mode, length in self.lengths[int(hook.worker[-1])].items():
                hook.set_mode(tt.modes[mode])
                for _ in range(length):
                    with hook.step():
                        hook.save_scalar("attempt", attempt)

    def expected(self, rank: int, attempts: Sequence[int]) -> list[tuple[int, str, int, float]]:
        """Return the rows of a worker, of whose epochs those of `attempts` count."""
        counts, found = dict.fromkeys(self.lengths[rank], 0), list[tuple[int, str, int, float]]()
        for attempt in attempts:
            for mode, length in self.lengths[rank].items():
                for _ in range(length):
                    found.append((len(found), mode, counts[mode], float(attempt)))
                    counts[mode] += 1
        return found

    def rows(self, rank: int, view: str = "tensors", trial: Trial | None = None) -> list[Any]:
        query = f"select global_step, mode, mode_step, scalar from {view} where worker = $worker order by global_step"
        return list((trial or create_trial(self.out)).sql(query, {"worker": f"worker_{rank}"}).fetchall())


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("lengths", [UNEVEN, ONLY_TRAINING, MORE_EVALUATION])
def test_workers_with_different_numbers_of_steps_go_back_to_an_epoch(
    out: str, monkeypatch: pytest.MonkeyPatch, lengths: Sequence[dict[str, int]], order: tuple[int, int], at: int
) -> None:
    job = UnevenJob(out, lengths, monkeypatch)
    job.run(3, 1)
    hooks = [job.hook(rank, resume=True) for rank in order]
    for rank, hook in zip(order, hooks, strict=True):
        hook.resume_at(at * lengths[rank]["TRAIN"], "TRAIN")
        job.train(hook, 1, 2)
        hook.flush()
    trial = create_trial(out)
    # All has been saved that the epoch has: its steps are complete, also while the job goes on.
    assert trial.steps(ModeKeys.TRAIN)[-1] == (at + 1) * lengths[1]["TRAIN"] - 1
    for hook in hooks:
        job.train(hook, 1, 2)
        hook.close()
    trial = create_trial(out)
    for rank in range(2):
        expected = job.expected(rank, [1] * at + [2, 2])
        assert job.rows(rank, trial=trial) == expected
        aside = [row for row in job.expected(rank, [1, 1, 1]) if row[0] >= len(job.expected(rank, [1] * at))]
        assert job.rows(rank, "superseded", trial) == aside
        for _, mode, step, attempt in expected:
            assert trial.tensor("attempt").value(step, ModeKeys[mode], f"worker_{rank}") == attempt
    assert verify(out).is_whole


def test_steps_of_a_worker_that_has_not_gone_back_yet_complete_none(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = UnevenJob(out, UNEVEN, monkeypatch)
    job.run(3, 1)
    first = job.hook(0, resume=True)
    first.resume_at(7, "TRAIN")
    job.train(first, 1, 2)
    first.flush()
    trial = create_trial(out)
    assert trial.steps(ModeKeys.TRAIN) == list(range(7))
    assert trial.steps() == list(range(10))
    assert [(late.worker, late.last_step) for late in trial.late_workers()] == [("worker_1", None)]
    first.close()


@pytest.mark.parametrize("goes_back", [0, 1])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("lengths", [UNEVEN, MORE_EVALUATION, EVEN])
def test_a_worker_that_does_not_go_back_continues_after_its_own_steps_whoever_starts_first(
    out: str, monkeypatch: pytest.MonkeyPatch, lengths: Sequence[dict[str, int]], order: tuple[int, int], goes_back: int
) -> None:
    job = UnevenJob(out, lengths, monkeypatch)
    job.run(2, 1)
    for rank in order:
        hook = job.hook(rank, resume=True)
        if rank == goes_back:
            hook.resume_at(lengths[rank]["TRAIN"], "TRAIN")
        job.train(hook, 2, 2)
        hook.close()
    for rank in range(2):
        assert job.rows(rank) == job.expected(rank, [1, 2, 2] if rank == goes_back else [1, 1, 2, 2])
    assert verify(out).is_whole


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("lengths", [UNEVEN, MORE_EVALUATION])
def test_workers_that_are_not_in_step_continue_after_their_own_steps(
    out: str, monkeypatch: pytest.MonkeyPatch, lengths: Sequence[dict[str, int]], order: tuple[int, int, int]
) -> None:
    job = UnevenJob(out, lengths, monkeypatch)
    job.run(2, 1)
    job.lengths = [*lengths, lengths[0]]
    for rank in order:
        hook = job.hook(rank, resume=True)
        job.train(hook, 1, 2)
        hook.close()
    for rank in range(2):
        assert job.rows(rank) == job.expected(rank, [1, 1, 2])
    assert next(row[2] for row in job.rows(2) if row[1] == "TRAIN") == 2 * lengths[0]["TRAIN"]
    assert verify(out).is_whole


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_worker_that_was_stopped_early_continues_with_those_that_it_was_in_step_with(
    out: str, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    """Two workers are in step, of which one was stopped early, and a third one is not."""
    job = UnevenJob(out, [EVEN[0], EVEN[0], UNEVEN[0]], monkeypatch)
    hooks = [job.hook(rank) for rank in range(3)]
    for hook, epochs in zip(hooks, (2, 1, 2), strict=True):
        job.train(hook, epochs, 1)
    for hook in hooks:
        hook.close()
    for rank in (2, *order):
        hook = job.hook(rank, resume=True)
        job.train(hook, 1, 2)
        hook.close()
    later = job.expected(0, [1, 1, 2])[12:]
    assert job.rows(0)[12:] == job.rows(1)[6:] == later
    assert job.rows(2) == job.expected(2, [1, 1, 2])


def test_a_worker_that_has_left_the_job_is_set_aside_from_its_own_step_on(
    out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = UnevenJob(out, [{"TRAIN": 7, "EVAL": 3}, {"TRAIN": 7, "EVAL": 3}, {"TRAIN": 3, "EVAL": 3}], monkeypatch)
    job.run(3, 1)
    job.lengths = job.lengths[:2]
    hooks = [job.hook(rank, resume=True) for rank in range(2)]
    for hook in hooks:
        hook.resume_at(5, "TRAIN")
        hook.save_scalar("attempt", 2, mode="TRAIN")
        hook.close()
    job.lengths = [*job.lengths, {"TRAIN": 3, "EVAL": 3}]
    earlier = job.expected(2, [1, 1, 1])
    first = earlier.index((8, "TRAIN", 5, 1.0))
    assert (job.rows(2), job.rows(2, "superseded")) == (earlier[:first], earlier[first:])
    for rank in range(2):
        assert job.rows(rank) == [*job.expected(rank, [1])[:5], (5, "TRAIN", 5, 2.0)]
    assert verify(out).is_whole


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_workers_that_set_another_one_aside_at_once_do_so_from_the_earlier_step_on(
    out: str, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    job = UnevenJob(out, [{"TRAIN": 5, "EVAL": 3}, {"TRAIN": 7, "EVAL": 2}, {"TRAIN": 4, "EVAL": 3}], monkeypatch)
    job.run(3, 1)
    lengths, job.lengths = job.lengths, job.lengths[:2]
    first, second = (job.hook(rank, resume=True) for rank in order)

    def train(hook: Any) -> None:
        hook.resume_at(job.lengths[int(hook.worker[-1])]["TRAIN"], "TRAIN")
        job.train(hook, 1, 2)

    with before(["create"], Path(out, "index", "worker=worker_2"), lambda: train(second)):
        train(first)
    first.close()
    second.close()
    job.lengths = lengths
    earlier = job.expected(2, [1, 1, 1])
    cut = earlier.index((8, "TRAIN", 5, 1.0))
    assert job.rows(2) == earlier[:cut]
    assert set(job.rows(2, "superseded")) == set(earlier[cut:])
    for rank in range(2):
        assert job.rows(rank) == job.expected(rank, [1, 2])
    assert verify(out).is_whole


def test_a_past_step_that_is_named_is_that_of_the_worker(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = UnevenJob(out, UNEVEN, monkeypatch)
    job.run(2, 1)
    for rank in range(2):
        hook = job.hook(rank, resume=True)
        hook.save_scalar("note", rank, step=6, mode="TRAIN")
        hook.close()
    query = "select worker, global_step, mode_step from tensors where name = 'note' order by worker"
    assert create_trial(out).sql(query).fetchall() == [("worker_0", 6, 6), ("worker_1", 9, 6)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_workers_go_back_to_steps_of_evaluation(
    out: str, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    job = UnevenJob(out, MORE_EVALUATION, monkeypatch)
    job.run(3, 1)
    for rank in order:
        hook = job.hook(rank, resume=True)
        hook.resume_at(job.lengths[rank]["EVAL"] + 1, "EVAL")
        hook.set_mode(tt.modes.EVAL)
        with hook.step():
            hook.save_scalar("attempt", 2)
        hook.close()
    for rank in range(2):
        kept = job.expected(rank, [1, 1])
        first = kept.index(next(row for row in kept if row[1:3] == ("EVAL", job.lengths[rank]["EVAL"] + 1)))
        assert job.rows(rank) == [*kept[:first], (*kept[first][:3], 2.0)]
        assert job.rows(rank, "superseded") == job.expected(rank, [1, 1, 1])[first:]


def test_a_model_that_is_made_again_has_the_name_of_the_one_before(make_hook: Any) -> None:
    hook = make_hook(include_collections=["weights"])
    alive = []
    for value in (1.0, 2.0):
        model = torch.nn.Linear(1, 1, bias=False)
        model.weight.data.fill_(value)
        alive.append(model)
        if value == 2:
            hook.resume_at(0)
        hook.register_module(model)
        model(torch.ones(1))
    hook.register_module(torch.nn.Linear(1, 1))
    alive[0](torch.ones(1))
    trial = closed(hook)
    assert trial.tensor_names() == ["Linear_weight"]
    assert trial.tensor("Linear_weight").value(0) == 2
    assert trial.steps() == [0]


def test_a_refused_step_is_logged_and_training_goes_on(
    make_hook: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook = make_hook()
    with caplog.at_level(logging.WARNING):
        hook.resume_at(3)
    assert "resume_at had no effect" in caplog.text
    attempt(hook, 1, 1)
    assert hook.recorder.active


def test_a_killed_job_is_continued_at_its_checkpoint(tmp_path: Path) -> None:
    program = """
        import os
        import tensortrial.hooks.pytorch as tt
        hook = tt.Hook("run", flush_seconds=0)
        for step in range(6):
            with hook.step():
                hook.save_scalar("y", 1)
        hook.flush()
        os._exit(9)
    """
    assert run_program(program, tmp_path).returncode == 9
    hook = tt.Hook(tmp_path / "run", resume=True)
    hook.resume_at(4)
    with hook.step():
        hook.save_scalar("y", 2)
    hook.close()
    y = create_trial(tmp_path / "run").tensor("y")
    assert [y.value(step) for step in y.steps()] == [1, 1, 1, 1, 2]


def far_apart(make_run: Any, out: Any, value: float, steps: range, **options: Any) -> None:
    """Save a number at each of some steps, in several folders of the index."""
    with make_run(out, flush_seconds=0, **options) as run:
        if options.get("resume"):
            run.resume_at(steps[0])
        for step in steps:
            run.log({"y": value}, step=step)
            run.flush()


def test_steps_in_several_folders_are_set_aside_also_for_an_open_trial(out: str) -> None:
    far_apart(Run, out, 1, range(0, 3000, 150))
    trial = create_trial(out)
    assert trial.steps()[-1] == 2850
    far_apart(Run, out, 2, range(450, 750, 150), resume=True)
    trial.refresh()
    for each in (trial, create_trial(out)):
        assert [(step, each.tensor("y").value(step)) for step in each.steps()] == [
            *((0, 1), (150, 1), (300, 1), (450, 2), (600, 2))
        ]
        assert each.loaded_all_steps
        aside = each.sql("select global_step from superseded order by 1").fetchall()
        assert aside == [(step,) for step in range(450, 3000, 150)]
    assert verify(out).is_whole
    far_apart(Run, out, 3, range(600, 900, 150), resume=True)
    compact(out, delete_older_than=0)
    assert [create_trial(out).tensor("y").value(step) for step in (0, 150, 300, 450, 600, 750)] == [1, 1, 1, 2, 3, 3]
    aside = create_trial(out).sql("select global_step, scalar from superseded order by saved_at").fetchall()
    assert aside == [*((step, 1.0) for step in range(450, 3000, 150)), (600, 2.0)]


def test_a_worker_that_is_not_in_the_resumed_job_is_set_aside_too(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def job(value: float, workers: int, steps: range, resume: bool) -> None:
        runs = []
        for rank in range(workers):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(workers))
            runs.append(Run(out, include_workers="all", flush_seconds=0, resume=resume))
            if resume:
                runs[-1].resume_at(steps[0])
            runs[-1].log({"y": value}, step=steps[0])
        for step in steps[1:]:
            for run in runs:
                run.log({"y": value}, step=step)
        for run in runs:
            run.close()

    job(1, 3, range(6), resume=False)
    job(2, 2, range(3, 5), resume=True)
    trial = create_trial(out)
    assert trial.steps() == [0, 1, 2, 3, 4]
    query = "select worker, global_step from {} order by worker, global_step"
    assert trial.sql(query.format("tensors")).fetchall() == [
        (f"worker_{rank}", step) for rank in range(3) for step in range(5 if rank < 2 else 3)
    ]
    assert trial.sql(query.format("superseded")).fetchall() == [
        (f"worker_{rank}", step) for rank in range(3) for step in range(3, 6)
    ]
    rows = open_runs([out]).sql("select run, count(*) from superseded group by run").fetchall()
    assert rows == [("run", 9)]


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_worker_sets_aside_what_it_had_saved_only_if_the_job_went_back(
    out: str, monkeypatch: pytest.MonkeyPatch, goes_back: bool
) -> None:
    """The job's first worker resumes after step 2, and cannot see what the second one has saved after it."""

    def begin(rank: int, resume: bool) -> Run:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        run = Run(out, include_workers="all", flush_seconds=0, resume=resume)
        if resume and goes_back:
            run.resume_at(3)
        return run

    def save(run: Run, steps: range, value: float) -> None:
        for step in steps:
            run.log({"y": value}, step=step)

    earlier = [begin(rank, resume=False) for rank in range(2)]
    save(earlier[0], range(3), 1)
    save(earlier[1], range(6), 1)
    for run in earlier:
        run.close()
    index = Path(out, "index", "worker=worker_1")
    hidden = index.rename(Path(out).parent / "hidden")
    first = begin(0, resume=True)
    save(first, range(3, 5), 2)
    hidden.rename(index)
    with begin(1, resume=True) as second:
        save(second, range(6, 7), 2)
    first.close()
    rows = create_trial(out).sql("select global_step, scalar from tensors where worker = 'worker_1' order by 1")
    assert rows.fetchall() == [*((step, 1.0) for step in range(3 if goes_back else 6)), (6, 2.0)]


@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_a_folder_with_a_bad_file_stays_as_it_is(out: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    with Run(out, flush_seconds=0) as run:
        for step in range(4):  # so few files are not compacted
            run.log({"y": 1}, step=step)
            run.flush()
    path = Path(out, "index", "worker=worker_0", "step=000000000000", "00000001.parquet")
    if damage == "damaged":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.unlink()
    far_apart(Run, out, 2, range(2, 3), resume=True)
    assert "the steps of worker_0 from 2 on stay unchanged" in caplog.text
    trial = create_trial(out)
    assert [trial.tensor("y").value(step) for step in (0, 2, 3)] == [1, 2, 1]
    assert path.relative_to(out).as_posix() in trial.damaged


def test_a_step_that_is_saved_again_in_another_mode_next_to_a_bad_file_has_that_mode(make_hook: Any, out: str) -> None:
    hook = make_hook(flush_seconds=0)
    hook.set_mode(tt.modes.TRAIN)
    for _ in range(4):  # so few files are not compacted
        attempt(hook, 1, 1)
        hook.flush()
    hook.close()
    second = sorted(Path(out, "index", "worker=worker_0", "step=000000000000").iterdir())[1]
    second.write_bytes(b"damaged")
    trial = create_trial(out)
    hook = make_hook(resume=True, flush_seconds=0)
    hook.resume_at(2, tt.modes.TRAIN)
    for mode, value in ((tt.modes.EVAL, 2), (tt.modes.TRAIN, 3)):
        hook.set_mode(mode)
        attempt(hook, value, 1)
        hook.flush()
    trial.refresh()
    hook.close()
    for each in (trial, create_trial(out)):
        y = each.tensor("y")
        assert [(each.mode(step), each.mode_step(step), y.value(step)) for step in (0, 2, 3)] == [
            *((ModeKeys.TRAIN, 0, 1), (ModeKeys.EVAL, 0, 2), (ModeKeys.TRAIN, 2, 3))
        ]
        assert (y.steps(ModeKeys.TRAIN), y.steps(ModeKeys.EVAL)) == ([0, 2], [0])
        assert (y.value(2, ModeKeys.TRAIN), y.value(0, ModeKeys.EVAL)) == (3, 2)
        for view in ("steps", "scalars"):
            rows = each.sql(f"select global_step, mode, mode_step from {view} order by all").fetchall()
            assert rows == [(0, "TRAIN", 0), (2, "EVAL", 0), (3, "TRAIN", 2)]


def test_an_open_trial_finds_what_is_saved_after_a_folder_with_a_bad_file_stayed_as_it_is(out: str) -> None:
    far_apart(Run, out, 1, range(0, 1500, 150))
    first, *_ = sorted(Path(out, "index", "worker=worker_0", "step=000000001000").iterdir())
    first.write_bytes(b"damaged")  # with step 1050
    trial = create_trial(out)
    with Run(out, resume=True, flush_seconds=0) as run:
        run.resume_at(450)
        for step in (450, 600, 1200):
            run.log({"y": 2}, step=step)
        run.flush()
        trial.refresh()
        for each in (trial, create_trial(out)):
            y = each.tensor("y")
            assert [(step, y.value(step)) for step in y.steps()] == [
                *((0, 1), (150, 1), (300, 1), (450, 2), (600, 2), (1200, 1), (1350, 1))
            ]
    y = create_trial(out).tensor("y")
    assert [y.value(step) for step in (450, 600, 1200, 1350)] == [2, 2, 2, 1]


def test_an_open_trial_passes_over_later_steps_before_anything_is_saved_again(out: str) -> None:
    far_apart(Run, out, 1, range(4))
    trial = create_trial(out)
    assert trial.steps() == [0, 1, 2, 3]
    with Run(out, resume=True, flush_seconds=0) as run:
        run.resume_at(1)
        run.log({"y": 2}, step=1)
        trial.refresh()
        assert trial.steps() == [0]


def test_an_error_of_the_storage_that_passes_leaves_no_step_twice(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    far_apart(Run, out, 1, range(4))

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with before(["read"], Path(out, "index"), fail):
        far_apart(Run, out, 2, range(2, 4), resume=True)
    rows = create_trial(out).sql("select global_step, scalar from tensors order by 1").fetchall()
    assert rows == [(0, 1), (1, 1), (2, 2), (3, 2)]
