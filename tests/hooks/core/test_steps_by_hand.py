"""Steps that the caller begins and numbers, and values for a step that the call names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.made_hooks import closed
from support.plain_hook import Hook
from tensortrial import create_trial
from tensortrial.errors import ConfigurationError, CorruptFile
from tensortrial.mode import modes
from tensortrial.read.step_states import LostRows
from tensortrial.snapshot.saved_steps import SavedSteps


def series(out: str, name: str = "x", mode: Any = modes.GLOBAL) -> dict[int, float]:
    tensor = create_trial(out).tensor(name)
    return {step: float(tensor.value(step, mode)) for step in tensor.steps(mode)}


def test_a_begun_step_lasts_until_it_is_ended(out: str) -> None:
    hook = Hook(out)
    for value in (1.0, 2.0):
        hook.begin_step()
        hook.recorder.begin_step()  # as a framework does
        hook.save_scalar("x", value)
        hook.end_step()
    hook.close()
    assert series(out) == {0: 1.0, 1: 2.0}


def test_steps_have_the_numbers_and_modes_that_the_caller_gives(out: str) -> None:
    hook = Hook(out)
    hook.set_mode(modes.TRAIN)
    for step in (10, 11, 20):
        with hook.step(step):
            hook.save_scalar("x", step)
        if step == 11:
            with hook.step(step, mode="EVAL"):
                hook.save_scalar("y", -step)
    assert hook.mode is modes.TRAIN
    hook.close()
    assert series(out, mode=modes.TRAIN) == {10: 10.0, 11: 11.0, 20: 20.0}
    assert series(out, "y", modes.EVAL) == {11: -11.0}
    assert create_trial(out).steps() == [10, 11, 12, 21]


def test_beginning_a_step_ends_the_one_before(out: str) -> None:
    hook = Hook(out)
    for step in range(3):
        hook.begin_step(step)
        hook.save_scalar("x", step)
    hook.close()
    assert series(out) == {0: 0.0, 1: 1.0, 2: 2.0}


def test_what_runs_outside_of_numbered_steps_is_no_step(out: str) -> None:
    hook = Hook(out, save_all=True, save_config={"save_interval": 1})

    def forward(value: float) -> None:
        hook.recorder.begin_step()
        plan = hook.recorder.planner.plan("w") if hook.recorder.saving else None
        if plan is not None:
            hook.recorder.record(plan, np.array([value, value]))

    for step in range(1, 4):
        hook.begin_step(step)
        forward(step)
        hook.end_step()
        forward(-1.0)
    hook.set_mode(modes.EVAL)
    forward(7.0)
    tensor = closed(hook).tensor("w")
    assert {step: tensor.value(step)[0] for step in tensor.steps()} == {1: 1.0, 2: 2.0, 3: 3.0, 4: 7.0}
    assert tensor.steps(modes.EVAL) == [0]


@pytest.mark.parametrize("flush", [False, True], ids=["together", "after a flush"])
def test_a_value_for_a_past_step_is_saved_there_and_the_last_one_counts(out: str, flush: bool) -> None:
    hook = Hook(out)
    trial = None
    for step in range(5):
        hook.begin_step(step)
        hook.log({"x": step, "y": step})
        hook.end_step()
    if flush:
        hook.flush()
        trial = create_trial(out)
        assert trial.tensor("x").value(1) == 1.0
    hook.log({"x": 100.0, "late": 3.0}, step=1)
    hook.save_scalar("x", 200.0, step=3)
    hook.flush()
    for each in filter(None, (trial, create_trial(out))):
        assert [each.tensor("x").value(step) for step in range(5)] == [0.0, 100.0, 2.0, 200.0, 4.0]
        assert each.tensor("x").steps() == [0, 1, 2, 3, 4]
        assert each.tensor("late").value(1) == 3.0
        assert each.tensor("x").reduction_value(1, "mean") == 100.0
        assert [float(each) for each in each.tensor("x").values().values()] == [0.0, 100.0, 2.0, 200.0, 4.0]
    hook.close()
    assert series(out) == {0: 0.0, 1: 100.0, 2: 2.0, 3: 200.0, 4: 4.0}
    rows = create_trial(out).sql("select global_step, scalar from tensors where name = 'x' order by global_step")
    assert rows.fetchall() == [(0, 0.0), (1, 100.0), (2, 2.0), (3, 200.0), (4, 4.0)]


def test_a_value_for_a_past_step_of_another_mode_is_saved_at_its_global_step(out: str) -> None:
    hook = Hook(out)
    for _ in range(3):
        for mode in ("TRAIN", "TRAIN", "EVAL"):
            with hook.step(mode=mode):
                hook.save_scalar("x", 0.0)
    for step in range(6):
        hook.save_scalar("train", step, step=step, mode="TRAIN")
    for step in range(3):
        hook.save_scalar("eval", step, step=step, mode=modes.EVAL)
    trial = closed(hook)
    assert trial.tensor("train").steps() == [0, 1, 3, 4, 6, 7]
    assert trial.tensor("eval").steps() == [2, 5, 8]
    assert trial.tensor("eval").steps(modes.EVAL) == [0, 1, 2]
    assert len(trial.steps()) == 9


def test_values_for_later_steps_make_a_run_of_their_own(out: str) -> None:
    hook = Hook(out)
    for step in (3, 3, 7, 9):
        hook.log({"x": step, f"y{step}": 1.0}, step=step)
    hook.close()
    assert series(out) == {3: 3.0, 7: 7.0, 9: 9.0}
    assert create_trial(out).tensor_names(step=7) == ["x", "y7"]


def test_a_value_for_the_next_step_waits_while_a_step_of_the_framework_runs(out: str) -> None:
    hook = Hook(out)
    hook.recorder.begin_step()
    hook.save_scalar("x", 0.0)
    hook.save_scalar("x", 1.0, step=1)
    hook.save_scalar("y", 0.5)
    hook.recorder.begin_step()
    hook.save_scalar("y", 1.5)
    hook.close()
    assert series(out) == {0: 0.0, 1: 1.0}
    assert series(out, "y") == {0: 0.5, 1: 1.5}


def test_values_that_wait_for_skipped_steps_or_the_end_are_saved_at_their_steps(out: str) -> None:
    hook = Hook(out)
    hook.begin_step(0)
    for step in (2, 4, 9):
        hook.save_scalar("x", step, step=step)
    hook.begin_step(4)
    hook.end_step()
    hook.save_scalar("next", 1.0)
    hook.close()
    assert series(out) == {2: 2.0, 4: 4.0, 9: 9.0}
    assert list(series(out, "next")) == [5]


def test_a_past_step_of_an_earlier_session_is_found(out: str) -> None:
    hook = Hook(out)
    for _ in range(3):
        for mode in ("TRAIN", "EVAL"):
            with hook.step(mode=mode):
                hook.save_scalar("x", 0.0)
    hook.close()
    hook = Hook(out, resume=True)
    hook.save_scalar("late", 5.0, step=1, mode="EVAL")
    hook.close()
    assert series(out, "late", modes.EVAL) == {1: 5.0}
    assert create_trial(out).tensor("late").steps() == [3]


BAD: dict[str, tuple[Callable[[Any], object], str]] = {
    "a step that goes backwards": (lambda hook: hook.begin_step(4), "step 4 of mode GLOBAL begins after step 5"),
    "a step that is a text": (lambda hook: hook.begin_step("7"), "step must be an integer, got '7'"),
    "a step that is a fraction": (lambda hook: hook.log({"y": 1}, step=7.5), "step must be an integer, got 7.5"),
    "a negative step": (lambda hook: hook.save_scalar("y", 1, step=-1), "from 0 to 999999999999, got -1"),
    "a step that is too large": (lambda hook: hook.save_scalar("y", 1, step=10**13), "got 10000000000000"),
    "a step that is a bool": (lambda hook: hook.save_scalar("y", 1, step=True), "got True"),
    "a mode that is unknown": (lambda hook: hook.log({"y": 1}, mode="dev"), "unknown mode 'dev'"),
    "a mode that is an empty text": (lambda hook: hook.begin_step(7, mode=""), "unknown mode ''"),
    "a mode that is an array": (lambda hook: hook.begin_step(7, mode=np.ones(2)), "unknown mode array([1., 1.])"),
    "an end without a begin": (lambda hook: hook.end_step(), "begin_step has begun no step that is still open"),
    "a nested dictionary": (lambda hook: hook.log({"eval": {"loss": 1}}), "such as 'eval/loss'"),
    "no dictionary": (lambda hook: hook.log(3), "it takes a dictionary of numbers by their names, got 3"),
    "no number": (lambda hook: hook.log({"y": "high"}), "a scalar must be a number, got 'high'"),
    "an array of two": (lambda hook: hook.log({"y": np.ones(2)}), "save_tensor saves arrays"),
}


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_a_bad_call_is_logged_and_the_next_steps_are_saved(
    out: str, call: Callable[[Any], object], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook(out)
    hook.begin_step(5)
    hook.save_scalar("x", 5.0)
    hook.end_step()
    call(hook)
    hook.begin_step(9)
    hook.save_scalar("x", 9.0)
    hook.end_step()
    hook.close()
    assert series(out) == {5: 5.0, 9: 9.0}
    assert len(caplog.messages) == 1
    assert message in caplog.messages[0]


@pytest.mark.usefixtures("lenient")
def test_an_open_file_that_is_logged_can_still_be_written(out: str, tmp_path: Path) -> None:
    hook = Hook(out)
    with open(tmp_path / "log.txt", "w") as file:
        hook.log({"y": file})
        file.write("mine")
    hook.close()
    assert (tmp_path / "log.txt").read_text() == "mine"


@pytest.mark.usefixtures("lenient")
def test_an_epoch_that_begins_at_0_again_is_counted_on(out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(out)
    for epoch in range(2):
        for batch in range(3):
            with hook.step(batch):
                hook.save_scalar("x", 10 * epoch + batch)
    hook.close()
    assert series(out) == {0: 0, 1: 1, 2: 2, 3: 10, 4: 11, 5: 12}
    assert "it is counted as step 3" in caplog.messages[0]


@pytest.mark.usefixtures("lenient")
def test_many_steps_that_go_back_are_logged_once(out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(out)
    for _ in range(3):
        for batch in range(20):
            with hook.step(batch):
                hook.save_scalar("x", batch)
    hook.close()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("step had no effect: step 0 of mode GLOBAL begins after step 19")


@pytest.mark.usefixtures("lenient")
def test_a_step_inside_a_step_is_a_part_of_it(out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(out)
    with hook.step(1):
        with hook.step(1):
            hook.save_scalar("a", 1.0)
        with hook.step(2):
            hook.save_scalar("b", 1.0)
        hook.begin_step(3)
        hook.save_scalar("c", 1.0)
        hook.end_step()
        hook.save_scalar("d", 1.0)
    hook.close()
    assert create_trial(out).tensor_names(step=1) == ["a", "b", "c", "d"]
    assert create_trial(out).steps() == [1]
    assert [message.partition(" ")[0] for message in caplog.messages] == ["step", "begin_step", "end_step"]


def test_a_bad_step_is_raised_in_strict_mode(out: str) -> None:
    hook = Hook(out)
    hook.begin_step(5)
    hook.end_step()
    with pytest.raises(ConfigurationError, match="steps go forward only"):
        hook.begin_step(2)
    with pytest.raises(ConfigurationError, match="begin_step has begun no step"):
        hook.end_step()
    hook.close()


def test_files_with_values_for_past_steps_are_found_by_a_reader_that_follows(out: str) -> None:
    hook = Hook(out, flush_seconds=0)
    hook.log({"x": 0.0}, step=0)
    hook.log({"x": 1.0}, step=50_000)
    hook.flush()
    trial = create_trial(out)
    assert trial.tensor("x").steps(show_incomplete_steps=True) == [0]
    hook.log({"x": 2.0}, step=100_000)
    hook.flush()
    hook.log({"y": 5.0}, step=0)
    hook.flush()
    assert trial.tensor("y").value(0) == 5.0
    hook.close()
    paths = sorted(Path(out).glob("index/*/*/*.parquet"))
    numbers = [int(path.stem.partition("-")[0]) for path in paths if "-" not in path.stem]
    assert numbers == sorted(numbers)
    assert trial.tensor("x").steps() == [0, 50_000, 100_000]


def test_a_value_at_a_past_step_does_not_hide_that_a_file_is_damaged() -> None:
    files = [
        (f"index/worker=worker_0/step=000000000000/{flush:08d}.parquet", first, last)
        for flush, first, last in [(0, 0, 2), (2, 6, 8), (3, 1, 9), (4, 1, 1)]
    ]
    path = "index/worker=worker_0/step=000000000000/00000001.parquet"
    paths, first, last = zip(*files, strict=True)
    saved = SavedSteps(paths=paths, first_steps=np.array(first), last_steps=np.array(last))
    lost = LostRows({path: CorruptFile(path, "damaged")}, saved)
    assert [step for step in range(10) if lost.holding(step, modes.GLOBAL)] == [3, 4, 5]


def test_mode_steps_are_the_newest_of_each_mode_and_over_all(out: str) -> None:
    hook = Hook(out)
    assert hook.mode_steps == {modes.GLOBAL: -1}
    hook.set_mode(modes.TRAIN)
    hook.recorder.begin_step()
    hook.recorder.begin_step()
    hook.set_mode(modes.EVAL)
    assert hook.mode_steps == {modes.TRAIN: 1, modes.GLOBAL: 1}
    hook.recorder.begin_step()
    assert hook.mode_steps == {modes.TRAIN: 1, modes.EVAL: 0, modes.GLOBAL: 2}
    hook.close()
