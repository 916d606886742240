"""An out_dir that holds a run already: what `on_exists` lets a hook do with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from support.permissions import bound_by_modes
from tensortrial import Run, create_trial
from tensortrial.errors import ConfigurationError, RunExists, RunInUse
from tensortrial.hooks.core.configuration.json_config import read_configuration


def saved(out: str | Path) -> dict[int, float]:
    return {step: float(value) for step, value in create_trial(out).tensor("x").values().items()}


@pytest.mark.parametrize("on_exists", ["fail", "restart_crashed"])
def test_a_worker_may_begin_after_another_one_of_its_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_exists: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        save(Run(tmp_path / "run", include_workers="all", on_exists=on_exists), [0, 1])
    trial = create_trial(tmp_path / "run")
    assert (trial.workers(), trial.steps(), trial.loaded_all_steps) == (["worker_0", "worker_1"], [0, 1], True)
    with pytest.raises(RunExists):
        Run(tmp_path / "run", include_workers="all", on_exists=on_exists)


def save(run: Run, numbers: Iterable[float]) -> str:
    for number in numbers:
        run.log({"x": number})
    run.close()
    return str(run.out_dir)


def test_a_script_that_numbers_its_runs_saves_each_time_it_is_run(out: str) -> None:
    assert [save(Run(out, on_exists="number"), [n]) for n in range(3)] == [out, f"{out}-2", f"{out}-3"]
    assert [saved(each) for each in (out, f"{out}-2", f"{out}-3")] == [{0: 0.0}, {0: 1.0}, {0: 2.0}]


def test_jobs_that_begin_at_the_same_time_take_different_numbers(out: str) -> None:
    options = {"on_exists": "number", "export_tensorboard": True}
    runs = [Run(out, metadata={"n": n}, **options) for n in range(3)]
    folders = [save(run, [n]) for n, run in enumerate(runs)]
    assert folders == [out, f"{out}-2", f"{out}-3"] == [run.out_dir for run in runs]
    assert [saved(each) for each in folders] == [{0: 0.0}, {0: 1.0}, {0: 2.0}]
    assert [len(list(Path(each, "tensorboard").rglob("*.tfevents.*"))) for each in folders] == [1, 1, 1]


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("on_exists", ["fail", "replace"])
def test_the_later_of_two_jobs_that_begin_at_the_same_time_logs_one_line(
    out: str, on_exists: str, caplog: pytest.LogCaptureFixture
) -> None:
    earlier, later = (Run(out, on_exists=on_exists) for _ in range(2))
    for run in (earlier, later):
        run.log({"x": 1})
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("ERROR", None)]
    assert out in caplog.text
    earlier.close()
    later.close()
    assert create_trial(out).tensor("x").values() == {0: 1}


def test_a_run_is_replaced_at_the_first_step_and_what_others_wrote_stays(out: str) -> None:
    save(Run(out, export_tensorboard=True, flush_seconds=0), range(3))
    own = [Path(out, "model.pt"), Path(out, "index", "notes.txt"), Path(out, "tensorboard", "notes.txt")]
    for file in own:
        file.write_text("mine")
    run = Run(out, on_exists="replace")
    assert saved(out) == {0: 0.0, 1: 1.0, 2: 2.0}
    save(run, [7])
    assert saved(out) == {0: 7.0}
    assert not list(Path(out, "tensorboard").rglob("*.tfevents.*"))
    assert [file.read_text() for file in own] == ["mine"] * 3


def test_a_run_that_is_being_written_is_not_replaced(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save(Run(out), [0])
    first, second = Run(out, on_exists="replace"), Run(out, on_exists="replace")
    first.log({"x": 1})
    with pytest.raises(RunInUse, match=r"(?s)close its hook, or .*only if no process writes to it"):
        Run(out, on_exists="replace", force=True)
    monkeypatch.setenv("TENSORTRIAL_STRICT", "0")
    second.log({"x": 2})
    assert not second.recorder.active
    first.close()
    assert saved(out) == {0: 1.0}


def test_a_removal_that_was_interrupted_is_completed(out: str) -> None:
    save(Run(out), [0])
    for file in [*Path(out, "index").rglob("*.parquet"), *Path(out, "end").iterdir()]:
        file.unlink()
    save(Run(out, on_exists="replace"), [1])
    assert saved(out) == {0: 1.0}


def test_a_crashed_run_is_begun_again_and_an_ended_one_is_refused(out: str) -> None:
    save(Run(out), [0, 1, 2])
    with pytest.raises(RunExists) as refused:
        Run(out, on_exists="restart_crashed")
    assert isinstance(refused.value, RuntimeError)
    Path(out, "end", "worker_0.json").unlink()
    save(Run(out, on_exists="restart_crashed"), [5, 6])
    assert saved(out) == {0: 5.0, 1: 6.0}
    aside = "select scalar from superseded where name = 'x' order by mode_step"
    assert create_trial(out).sql(aside).fetchall() == [(0.0,), (1.0,), (2.0,)]
    save(Run(out, on_exists="resume"), [7])
    assert saved(out) == {0: 5.0, 1: 6.0, 2: 7.0}


def test_workers_that_would_choose_folders_on_their_own_are_refused(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    for choice in ("number", "replace"):
        with pytest.raises(ConfigurationError, match="is for runs of one worker"):
            Run(out, on_exists=choice, include_workers="all")
        Run(out, on_exists=choice)


def test_a_choice_that_does_not_exist_is_refused(out: str) -> None:
    with pytest.raises(ConfigurationError, match="on_exists must be one of fail, number, replace"):
        Run(out, on_exists="overwrite")


def test_a_configuration_file_may_say_what_happens_to_a_run(tmp_path: Path) -> None:
    file = tmp_path / "hook.json"
    file.write_text('{"LocalPath": "runs/x", "HookParameters": {"on_exists": "number"}}')
    assert read_configuration(str(file)).arguments["on_exists"] == "number"


@pytest.mark.parametrize("below", ["", "/deeper/run"])
def test_a_folder_in_which_nothing_can_be_written_is_refused_before_training(tmp_path: Path, below: str) -> None:
    Path(tmp_path, "file").write_text("mine")
    with pytest.raises(ConfigurationError, match="file is not a folder"):
        Run(f"{tmp_path}/file{below}")
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigurationError, match=f"this process may not write to {tmp_path}"):
        bound_by_modes(lambda: Run(f"{tmp_path}{below or '/run'}", on_exists="number"))


def test_a_run_that_cannot_be_written_to_is_numbered_past_or_named(out: str) -> None:
    save(Run(out), [0])
    Path(out).chmod(0o500)
    with pytest.raises(RunExists):
        bound_by_modes(lambda: Run(out))
    with pytest.raises(ConfigurationError, match="this process may not write to"):
        bound_by_modes(lambda: Run(out, resume=True))
    assert save(bound_by_modes(lambda: Run(out, on_exists="number")), [1]) == f"{out}-2"


@pytest.mark.parametrize("out_dir", [3, None, "", "  ", b"run"])
def test_an_out_dir_that_is_no_path_is_refused(out_dir: object) -> None:
    with pytest.raises(ConfigurationError, match="out_dir must be a folder or URL where to save the run, got"):
        Run(out_dir)  # type: ignore[arg-type]
