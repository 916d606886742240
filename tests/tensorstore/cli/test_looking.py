"""What the command line shows of runs: lists, sparklines, new steps, JSON, and what is wrong with arguments."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tensortrial as package
from support import warm
from support.commands import run_command as run
from support.runs import EVAL, TRAIN, Job
from tensortrial.cli.sparkline import sparkline
from tensortrial.errors import StepUnavailable, TensorUnavailableForStep


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the ended run `good`, and the running run `bad`, one of whose tensors explodes."""
    place = tmp_path_factory.mktemp("place")
    with Job(place / "good") as job:
        for step in range(6):
            job.step({"loss": 1.0 / (step + 1), "weight": np.full(3, 1.0)}, TRAIN if step % 3 else EVAL)
    bad = Job(place / "bad")
    for step in range(20):
        broken = np.array([1.0, np.nan if step > 15 else 1.0])
        bad.step(
            {"loss": float("nan") if step == 19 else 1.0, "calm": np.ones(2), "broken": broken},
            TRAIN,
            statistics=("l2", "nan_count"),
        )
    bad.flush()
    return place


def test_ls_lists_runs_with_state_steps_and_size(place: Path) -> None:
    rows = [json.loads(line) for line in run("ls", place, "--json").stdout.splitlines()]
    found = {row["run"]: (row["state"], row["steps"]) for row in rows}
    assert found == {"good": ("ended", 6), "bad": ("running", 20)}
    assert all(row["file_bytes"] > row["tensor_bytes"] > 0 for row in rows)
    assert {row["started_at"] for row in rows} == {"2026-01-01T00:00:00+00:00"}
    listed = run("ls", place / "b*").stdout
    assert "running" in listed
    assert "file size" in listed


def test_ls_lists_tags_if_a_run_has_any(tmp_path: Path) -> None:
    for name in "ab":
        with Job(tmp_path / name) as job:
            job.step({"loss": 1.0})
    assert "tags" not in run("ls", tmp_path).stdout
    run("note", tmp_path / "b", "good", "--tag", "paper", "--tag", "base")
    header, _, *rows = run("ls", tmp_path).stdout.splitlines()[1:5]
    assert header.split()[-1] == "tags"
    assert [row.split()[-2:] for row in rows if " b " in row] == [["base,", "paper"]]
    noted = {
        row["run"]: (row["note"], row["tags"])
        for row in map(json.loads, run("ls", tmp_path, "--json").stdout.splitlines())
    }
    assert noted == {"a": ("", []), "b": ("good", ["base", "paper"])}


def test_info_says_which_statistics_each_collection_has(tmp_path: Path) -> None:
    statistics = package.ReductionConfig(reductions=["mean"], norms=["l2"])
    with package.Run(tmp_path / "run", reduction_config=statistics, environment=False) as job:
        job.log({"loss": 1.0}, step=0)
        job.save_tensor("weight", np.ones(3), step=0)
    saved = {"all": ["numbers", "mean", "l2"], "losses": ["numbers"], "default": ["mean", "l2"]}
    assert json.loads(run("info", tmp_path / "run", "--json").stdout)["saved"] == saved
    assert "default      1         mean, l2" in run("info", tmp_path / "run").stdout


def test_info_shows_a_run_whose_notes_are_damaged(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"loss": 1.0})
    (tmp_path / "run" / "notes.json").write_text("{")
    assert "notes.json" in run("info", tmp_path / "run").stdout
    assert json.loads(run("ls", tmp_path, "--json").stdout)["tags"] == []


def test_info_counts_the_workers_that_it_lists(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]
    for job in jobs:
        job.step({"loss": 1.0})
        job.close()
    assert "2: worker_0, worker_1" in run("info", tmp_path).stdout
    with Job(tmp_path, resume=True) as job:
        job.step({"loss": 1.0})
    assert "2: worker_0, worker_1 (the job has 1 now)" in run("info", tmp_path).stdout


def test_info_shows_why_a_worker_saved_no_more(tmp_path: Path) -> None:
    run_of_one_step(tmp_path, failure="the disk is full")
    assert "worker_0: the disk is full" in run("info", tmp_path).stdout
    assert json.loads(run("info", tmp_path, "--json").stdout)["failures"] == {"worker_0": "the disk is full"}


def run_of_one_step(path: Path, failure: str | None) -> None:
    job = Job(path)
    job.step({"loss": 1.0})
    job.writer.close(failure, steps=40)


def test_info_names_and_steps_print_json(place: Path) -> None:
    documents = [json.loads(line) for line in run("info", place / "*", "--json").stdout.splitlines()]
    assert [each["run"] for each in documents] == ["bad", "good"]
    assert documents[1]["steps"] == {"TRAIN": [0, 1, 2, 3], "EVAL": [0, 1]}
    assert json.loads(run("names", place / "good", "--json").stdout) == ["loss", "weight"]
    assert json.loads(run("steps", place / "good", "--json").stdout) == list(range(6))


def test_a_pattern_where_one_run_is_needed_is_named(place: Path) -> None:
    assert "takes one run, not a pattern" in run("steps", place / "*", status=1).stderr


def test_show_puts_the_tensor_with_nan_first(place: Path) -> None:
    printed = run("show", place / "bad").stdout
    tensors = printed.partition("why")[2]
    assert tensors.index("broken") < tensors.index("calm")
    assert "first at global step 16" in printed
    assert "!" in next(line for line in printed.splitlines() if line.strip().startswith("loss"))


def test_a_sparkline_marks_what_is_not_finite_and_missing() -> None:
    assert sparkline([0.0, None, 1.0, float("nan"), float("inf")]) == "▁ █!!"
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"
    assert sparkline([]) == ""


def test_follow_prints_the_last_steps_until_the_job_ends(place: Path) -> None:
    lines = run("follow", place / "good", "-n", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["global_step"] for line in lines] == [4, 5]
    assert json.loads(lines[-1])["scalars"] == {"loss": pytest.approx(1 / 6)}


def test_follow_prints_a_step_that_another_process_saves(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.publish({"loss": 1.0}, TRAIN)
        process = warm.start(["-m", "tensortrial", "follow", tmp_path / "run", "--timeout", "30"])
        assert "loss 1" in process.stdout.readline()
        job.publish({"loss": 2.0}, TRAIN)
        assert "loss 2" in process.stdout.readline()
    with process:
        assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sql", "RUN"], "missing argument QUERY"),
        (["sql", "select 1 "], "missing argument RUN"),
        (["sql", "select * from steps", "RUN"], "is a query, which comes last"),
        (["export", "RUN"], "missing argument TARGET"),
        (["export", "csv:folder"], "missing argument RUN"),
        (["export", "csv:folder", "RUN"], "is a target, which comes last"),
        (["query", "RUN", "nothing"], "nor 'nothing' is a named query"),
        (["query", "losses"], "missing RUN"),
    ],
)
def test_a_missing_or_swapped_argument_is_named(place: Path, arguments: list[str], sentence: str) -> None:
    done = run(*[place / "good" if each == "RUN" else each for each in arguments], status=2)
    assert sentence in done.stderr


def test_a_named_query_is_found_before_and_after_the_run(place: Path) -> None:
    after = run("query", place / "good", "losses", "--format", "csv")
    assert after.stdout == run("query", "losses", place / "good", "--format", "csv").stdout


def test_watch_says_what_it_watches_and_that_nothing_was_found(place: Path) -> None:
    done = run("watch", place / "good", "--rule", "ExplodingTensor", "--no-record")
    first, last = done.stderr.splitlines()
    assert first.startswith(f"watching {place / 'good'} by ExplodingTensor; the last step is 5 (TRAIN")
    assert last.startswith("nothing was found by ExplodingTensor in 6 steps; the last step is 5")
    done = run("watch", place / "good", "--rule", "ExplodingTensor", "--no-record", "--start-step", 1, "--end-step", 3)
    assert "nothing was found by ExplodingTensor in 2 steps; the last step is 5" in done.stderr


def test_the_error_of_a_step_names_modes_that_have_it_and_steps_near_it(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for _ in range(3):
            job.step({"other": 1.0}, EVAL)
        for _ in range(2):
            job.step({"w": np.ones(2)}, TRAIN)
            job.skip(TRAIN)
        job.step({"other": 1.0}, TRAIN)
    tensor = package.create_trial(tmp_path / "run").tensor("w")
    sentence = "mode TRAIN has a step 2 of it: choose mode TRAIN; its nearest step is 3 of mode GLOBAL"
    with pytest.raises(TensorUnavailableForStep, match=sentence):
        tensor.value(2)
    with pytest.raises(StepUnavailable, match="its nearest steps are 0 and 2"):
        tensor.value(1, TRAIN)
    with pytest.raises(TensorUnavailableForStep, match="its nearest step is 2"):
        tensor.value(4, TRAIN)
