"""Every method of a trial, as the reference documents it, on a disk, in memory and in an object store."""

from __future__ import annotations

import itertools
import re
import secrets
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support import warm
from support.file_access import before, opened_by_this_thread
from support.runs import EVAL, GLOBAL, PREDICT, TRAIN, Job
from support.servers import ObjectStore
from tensortrial.config.collection import Collection
from tensortrial.errors import (
    ConfigurationError,
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    NotARun,
    RunClosed,
    RunNotFound,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from tensortrial.read.step_states import StepState
from tensortrial.read.trial import Trial
from tensortrial.rules import Rule, invoke_rule

COLLECTIONS = [Collection("weights", include_regex="^w"), Collection("losses"), Collection("all"), Collection("none")]


def write_run(url: str, **options: Any) -> None:
    """TRAIN at global steps 0, 1, 3, 4, EVAL at 2, 5; w0 only in TRAIN."""
    with Job(url, collections=COLLECTIONS, saved=["weights", "losses"], **options) as job:
        for mode in (TRAIN, TRAIN, EVAL, TRAIN, TRAIN, EVAL):
            step = job.begin(mode)
            values = {"w1": np.full(3, step.global_step), **({"w0": np.full((2, 2), 1.5)} if mode is TRAIN else {})}
            job.put(step, values, collections=("weights",))
            job.put(step, {"loss": float(step.mode_step)}, closes=True, collections=("losses",))


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    if request.param == "local":
        return str(tmp_path / "run"), {}
    if request.param == "memory":
        return f"memory://{secrets.token_hex(6)}/run", {}
    moto: ObjectStore = request.getfixturevalue("moto_s3")
    return f"{moto.new_bucket()}/project/run", moto.storage_options


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "run"
    write_run(str(folder))
    return folder


@pytest.fixture
def trial(tmp_path: Path, written: Path) -> Trial:
    shutil.copytree(written, tmp_path / "run")
    return tensortrial.create_trial(tmp_path / "run")


def test_a_whole_run_wherever_it_is(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    with pytest.raises(RunNotFound):
        tensortrial.create_trial(url, storage_options=options)
    write_run(url, storage_options=options)
    trial = tensortrial.create_trial(url, storage_options=options)
    assert trial.name == "run"
    assert trial.tensor_names() == ["loss", "w0", "w1"]
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert trial.tensor("w1").value(1, mode=EVAL).tolist() == [5, 5, 5]
    assert trial.values(["w0", "w1"], [3])["w0"][3].tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert trial.sql("select count(*) from tensor_values where name = 'w1'").fetchall() == [(6,)]
    assert trial.loaded_all_steps
    with Job(url, storage_options=options, resume=True, flush_seconds=0) as job:
        job.publish({"w1": np.zeros(3)}, mode=PREDICT)
        trial.refresh()
        assert trial.modes() == [TRAIN, EVAL, PREDICT]
        assert trial.steps() == [*range(7)]


# ------------------------------------------------------------------------------------------------------- what there is


@pytest.mark.parametrize("step", [1.5, float("nan"), 1 << 70])
@pytest.mark.parametrize("mode", [GLOBAL, TRAIN])
def test_what_is_no_step_was_not_saved(trial: Trial, step: Any, mode: Any) -> None:
    assert trial.tensor_names(step=step, mode=mode) == []
    assert trial.values(["w1"], [step], mode)["w1"] == {}


@pytest.mark.parametrize("step", ["0", None, b"0"])
def test_a_step_of_a_wrong_type_is_named(trial: Trial, step: Any) -> None:
    name = trial.tensor_names()[0]
    for mode in (GLOBAL, TRAIN):
        with pytest.raises(ConfigurationError, match=rf"a step must be a whole number, got {step!r}$"):
            trial.tensor(name).value(step, mode=mode)
        for method in (trial.has_passed_step, lambda step, mode: trial.values(name, [step], mode)):
            with pytest.raises(ConfigurationError, match="a step must be a whole number"):
                method(step, mode)
    with pytest.raises(ConfigurationError, match="a step must be a whole number"):
        trial.mode(step)


def test_names_are_text_and_patterns_may_be_compiled(trial: Trial) -> None:
    assert trial.tensor_names(regex=re.compile("^W", re.IGNORECASE)) == ["w0", "w1"]
    assert trial.values("w1").keys() == {"w1"}
    for name in (None, 3, b"w1", Path("w1")):
        assert not trial.has_tensor(name)  # type: ignore[arg-type]
        for method in (trial.tensor, trial.values, trial.frame):
            with pytest.raises(ConfigurationError, match="the name of a tensor must be text, got"):
                method(name)  # type: ignore[operator]
    with pytest.raises(ConfigurationError, match="must be text, got 3"):
        trial.values(["w1", 3])  # type: ignore[list-item]


def test_tensors(trial: Trial) -> None:
    assert trial.tensor("w0").name == "w0"
    assert trial.has_tensor("w0")
    assert not trial.has_tensor("W0")
    with pytest.raises(TensorUnavailable, match=r"did you mean 'w0'") as caught:
        trial.tensor("w00")
    assert caught.value.tname == "w00"
    assert isinstance(caught.value, KeyError)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ({}, ["loss", "w0", "w1"]),
        ({"step": 2}, ["loss", "w1"]),
        ({"step": 2, "mode": TRAIN}, ["loss", "w0", "w1"]),
        ({"step": 1, "mode": EVAL}, ["loss", "w1"]),
        ({"mode": EVAL}, ["loss", "w1"]),
        ({"step": 9}, []),
        ({"step": 9, "mode": EVAL}, []),
        ({"mode": PREDICT}, []),
        ({"regex": "w"}, ["w0", "w1"]),
        ({"regex": "W"}, []),
        ({"regex": ["0$", "^l"]}, ["loss", "w0"]),
        ({"regex": "s"}, ["loss"]),
        ({"regex": []}, []),
        ({"collection": "weights"}, ["w0", "w1"]),
        ({"collection": "weights", "step": 2}, ["w1"]),
        ({"collection": "losses"}, ["loss"]),
        ({"collection": "all"}, ["loss", "w0", "w1"]),
        ({"collection": "none"}, []),
        ({"collection": Collection("mine", include_regex="[s0]")}, ["loss", "w0"]),
        ({"collection": Collection("weights")}, ["w0", "w1"]),
        ({"mode": "eval", "regex": "w"}, ["w1"]),
        ({"show_prefixed_tensors": True}, ["loss", "w0", "w1"]),
    ],
)
def test_tensor_names(trial: Trial, question: dict[str, Any], names: list[str]) -> None:
    assert trial.tensor_names(**question) == names


@pytest.mark.parametrize(
    "question",
    [
        {"regex": "("},
        {"regex": "a", "collection": "b"},
        {"mode": "DREAM"},
        {"mode": 9},
        {"show_prefixed_tensors": "weights"},  # as its first argument
    ],
)
def test_tensor_names_asked_wrongly(trial: Trial, question: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        trial.tensor_names(**question)


def test_steps_and_modes(trial: Trial) -> None:
    assert (trial.steps(), trial.steps(mode=TRAIN), trial.steps(EVAL)) == ([*range(6)], [0, 1, 2, 3], [0, 1])
    assert trial.steps(PREDICT) == []
    assert trial.modes() == [TRAIN, EVAL]
    assert [trial.global_step(EVAL, step) for step in (0, 1)] == [2, 5]
    assert trial.global_step(GLOBAL, 4) == 4
    assert [(trial.mode(step), trial.mode_step(step)) for step in (1, 2, 3)] == [(TRAIN, 1), (EVAL, 0), (TRAIN, 2)]
    for act in (trial.mode, trial.mode_step, lambda step: trial.global_step(TRAIN, step)):
        with pytest.raises(NoMoreData) as caught:
            act(99)
        assert caught.value.step == 99
        with pytest.raises(StepUnavailable):
            act(-1)


def test_collections(trial: Trial) -> None:
    assert sorted(trial.collections()) == ["all", "losses", "none", "weights"]
    weights = trial.collection("weights")
    assert weights.include_regex == ["^w"]
    # smdebug's scripts ask a collection for what was saved of it.
    assert weights.tensor_names == {"w0", "w1"}
    assert trial.collection("all").tensor_names == {"loss", "w0", "w1"}
    assert trial.collection("none").tensor_names == set()
    with pytest.raises(ConfigurationError, match="weights"):
        trial.collection("no")


def test_workers_in_natural_order(tmp_path: Path) -> None:
    names = [f"worker_{number}" for number in (10, 2, 1)]
    for job in [Job(tmp_path, name, 3) for name in names]:
        job.step({"a": 1.0})
        job.close()
    trial = tensortrial.create_trial(tmp_path)
    assert trial.workers() == ["worker_1", "worker_2", "worker_10"]
    assert trial.num_workers == 3


def test_values_of_many(trial: Trial) -> None:
    found = trial.values(["w1", "w0", "w1"])
    assert {name: list(values) for name, values in found.items()} == {"w1": [*range(6)], "w0": [0, 1, 3, 4]}
    assert list(trial.values(["w1"], [5, 3, 99])["w1"]) == [3, 5]
    assert list(trial.values(["w1", "w0", "loss"], [1], mode=EVAL)["w1"]) == [1]
    assert trial.values(["w1", "w0"], [1], mode=EVAL)["w0"] == {}
    assert trial.values([]) == {}
    assert trial.values(["w1"], []) == {"w1": {}}
    with pytest.raises(TensorUnavailable):
        trial.values(["w1", "no"])


# -------------------------------------------------------------------------------------------------------------- opening


def test_inputs_labels_and_predictions(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        step = job.begin(TRAIN)
        for number in (10, 9, 0):
            job.put(step, {f"model_inputs_{number}": np.full(2, number)}, collections=("inputs",))
        job.put(step, {"labels": np.arange(3)}, collections=("labels", "default"))
        job.put(step, {"predictions": np.ones(1)}, closes=True, raw=False, collections=("predictions",))
        job.step({"w": np.ones(1)}, TRAIN)
    trial = tensortrial.create_trial(tmp_path / "run")
    assert [array[0] for array in trial.inputs(0, TRAIN)] == [0, 9, 10]
    assert [array.tolist() for array in trial.labels(0)] == [[0, 1, 2]]
    assert trial.labels(1) == []
    with pytest.raises(TensorUnavailableForStep, match="predictions"):
        trial.predictions(0)
    with pytest.raises(NoMoreData):
        trial.inputs(2)
    with pytest.raises(NoMoreData):
        trial.inputs(0, EVAL)
    with pytest.raises(InvalidWorker):
        trial.inputs(0, worker="worker_1")


def test_a_path_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="timeout") as caught:
        tensortrial.create_trial(tmp_path / "nothing")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(RunNotFound):
        tensortrial.create_trial(tmp_path)
    began = time.monotonic()
    with pytest.raises(RunNotFound):
        tensortrial.create_trial(tmp_path / "nothing", timeout=0.2)
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("first", [".run.json.part", "leases/worker_0=00000000.json"])
def test_a_run_whose_first_file_is_being_written_is_waited_for(tmp_path: Path, first: str) -> None:
    (tmp_path / "run" / first).parent.mkdir(parents=True)
    (tmp_path / "run" / first).write_bytes(b"{")
    with pytest.raises(RunNotFound):
        tensortrial.create_trial(tmp_path / "run")
    writer = threading.Timer(0.2, lambda: write_run(str(tmp_path / "run")))
    writer.start()
    assert tensortrial.create_trial(tmp_path / "run", timeout=60).name == "run"
    writer.join()


def test_a_run_that_begins_while_it_is_opened_is_opened(tmp_path: Path) -> None:
    # It is listed when it has no run.json.
    with before(["list"], tmp_path / "run", lambda: write_run(str(tmp_path / "run"))):
        assert tensortrial.create_trial(tmp_path / "run").steps() == [*range(6)]


def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(NotARun):
        tensortrial.create_trial(tmp_path)
    with pytest.raises(NotARun):
        tensortrial.create_trial(tmp_path / "thesis.txt")


def test_a_run_that_nobody_writes_to_yet(tmp_path: Path) -> None:
    Job(tmp_path).close()
    (tmp_path / "collections" / "worker_0.json").unlink()
    with pytest.raises(MissingCollectionFiles):
        tensortrial.create_trial(tmp_path)


def test_arguments(tmp_path: Path) -> None:
    write_run(str(tmp_path / "run"))
    url = tmp_path / "run"
    assert tensortrial.create_trial(f"{url}/", name="mine").name == "mine"
    assert tensortrial.create_trial(path=str(url), parallel=False, check=True, index_mode=True, cache=True).steps()
    with pytest.raises(TypeError, match="rangesteps"):
        tensortrial.create_trial(url, rangesteps=(1, 2))
    for bad in ((5, 5), (6, 2)):
        with pytest.raises(ConfigurationError, match="empty"):
            tensortrial.create_trial(url, range_steps=bad)


@pytest.mark.parametrize(("first", "end"), [*itertools.product([None, 0, 2], [None, 3, 99])])
def test_range_steps(tmp_path: Path, first: int | None, end: int | None) -> None:
    write_run(str(tmp_path))
    trial = tensortrial.create_trial(tmp_path, range_steps=(first, end))
    kept = [step for step in range(6) if (first or 0) <= step < (99 if end is None else end)]
    assert trial.steps() == kept
    assert list(trial.tensor("w1").values()) == trial.tensor("w1").steps() == kept
    assert list(trial.values(["w1", "loss"])["loss"]) == kept
    assert trial.tensor_names(step=5) == (["loss", "w1"] if 5 in kept else [])
    for _ in range(2):
        if 1 not in kept:
            with pytest.raises(StepUnavailable):
                trial.tensor("w1").value(1)


def test_a_closed_trial(trial: Trial) -> None:
    with trial as opened:
        assert opened.steps()
    assert "run" in repr(trial)
    trial.close()  # twice is fine
    for read in (lambda: trial.tensor_names(step=0), lambda: trial.sql("select 1")):
        with pytest.raises(RunClosed, match="open it again with create_trial"):
            read()


# -------------------------------------------------------------------------------------------------------------- waiting


def test_wait_for_steps(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for _ in range(3):
        job.step({"a": 1.0}, mode=TRAIN)
        job.skip(TRAIN)
    trial = tensortrial.create_trial(tmp_path)
    trial.wait_for_steps([0, 2])
    trial.wait_for_steps([4], mode=TRAIN)
    with pytest.raises(StepUnavailable) as caught:
        trial.wait_for_steps([0, 1])
    assert (caught.value.step, caught.value.mode) == (1, GLOBAL)
    with pytest.raises(StepNotYetAvailable):
        trial.wait_for_steps([5], timeout=0.1)
    with pytest.raises(StepNotYetAvailable):
        trial.tensor("a").value(5)
    job.close()
    with pytest.raises(NoMoreData) as no_more:
        trial.wait_for_steps([5], mode=TRAIN)
    assert (no_more.value.step, no_more.value.last_step) == (5, 4)


def test_mark_ended_is_remembered_in_the_run(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.step({"a": 1.0})
    trial = tensortrial.create_trial(tmp_path)
    assert not trial.loaded_all_steps
    assert trial.has_passed_step(7) is StepState.NOT_YET_AVAILABLE
    trial.mark_ended()
    assert trial.has_passed_step(7) is StepState.UNAVAILABLE
    assert tensortrial.create_trial(tmp_path).loaded_all_steps
    job.close()


# ----------------------------------------------------------------------------------------------------------- refreshing


def test_no_refresh_yields_the_trials(trial: Trial) -> None:
    with tensortrial.no_refresh(trial) as one, tensortrial.refresh(iter([trial])) as [of_many]:
        assert one is of_many is trial


def test_trials_of_one_path_are_equal(trial: Trial, tmp_path: Path) -> None:
    again = tensortrial.create_trial(f"{tmp_path}/./run/", range_steps=(1, 3))
    assert again == trial
    assert len({again, trial}) == 1
    write_run(str(tmp_path / "other"))
    assert tensortrial.create_trial(tmp_path / "other") != trial
    assert trial != "run"
    # Yet each has its own steps, also for rules.
    assert len(invoke_rule(Always(again), record=False)) == 2
    assert len(invoke_rule(Always(trial), record=False)) == 6


class Always(Rule):
    def invoke_at_step(self, step: int) -> bool:
        return True


def test_a_scalar_is_also_found_under_the_name_that_smdebug_gives_it(trial: Trial) -> None:
    assert trial.tensor("scalar/loss").name == "loss"
    assert trial.has_tensor("scalar/loss")
    assert not trial.has_tensor("scalar/w9")
    with pytest.raises(TensorUnavailable, match="'scalar/w9'"):
        trial.tensor("scalar/w9")


@pytest.mark.parametrize("part", ["los", "LOS", "oss"])
def test_a_part_of_a_name_is_near(trial: Trial, part: str) -> None:
    with pytest.raises(TensorUnavailable, match="did you mean 'loss'"):
        trial.tensor(part)


def test_no_refresh_and_refresh(tmp_path: Path) -> None:
    jobs = [Job(tmp_path / name) for name in "ab"]
    trials = [tensortrial.create_trial(tmp_path / name) for name in "ab"]

    def steps() -> list[int]:
        for job in jobs:
            job.step({"x": 1.0})
        return [len(trial.steps()) for trial in trials]

    assert steps() == [1, 1]
    with tensortrial.no_refresh(trials[0]):
        assert steps() == [1, 2]
        with tensortrial.refresh(trials):
            assert steps() == [3, 3]
            with tensortrial.no_refresh(iter(trials)):
                assert steps() == [3, 3]
            assert steps() == [5, 5]
        assert steps() == [5, 6]
        trials[0].refresh()
        assert steps() == [6, 7]

    def fail() -> None:
        with tensortrial.no_refresh(trials):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert steps() == [8, 8]
    for job in jobs:
        job.close()


def test_a_block_without_refresh_is_not_changed_by_one_that_began_before_and_ends_within_it(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    trial = tensortrial.create_trial(tmp_path / "run")

    def num_steps() -> int:
        job.step({"x": 1.0})
        return len(trial.steps())

    first, second = tensortrial.no_refresh(trial), tensortrial.no_refresh([trial])
    assert num_steps() == 1
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert num_steps() == 1
    second.__exit__(None, None, None)
    assert num_steps() == 3
    job.close()


def test_every_closed_step_is_seen_at_once_in_the_same_process(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", flush_seconds=3600)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    trials = [tensortrial.create_trial(tmp_path / name) for name in ("run", "link")]
    for number in range(3):
        job.step({"a": np.full(2, number)})
        job.put(job.begin(), {"open": 1.0})
        for trial in trials:
            assert trial.steps() == [2 * each for each in range(number + 1)]
            assert trial.tensor("a").value(2 * number).tolist() == [number, number]
            assert not trial.has_tensor("open")
    job.close()


WRITE = """
import sys
import numpy as np
from support.runs import Job
job = Job(sys.argv[1], flush_seconds=float(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    step = job.step({"a": np.full(3, job.next_global_step)})
    print("closed", flush=True)
job.close()
"""


@pytest.mark.parametrize("flush_seconds", [0, 0.2])
def test_another_process_is_read_live(tmp_path: Path, flush_seconds: float) -> None:
    with warm.start(["-c", WRITE, tmp_path / "run", flush_seconds], stdin=subprocess.PIPE) as child:
        assert child.stdout.readline() == "ready\n"
        trial = tensortrial.create_trial(tmp_path / "run", timeout=30)
        for number in range(3 if flush_seconds else 6):
            child.stdin.write("step\n")
            child.stdin.flush()
            assert child.stdout.readline() == "closed\n"
            trial.wait_for_steps([number], timeout=30)
            assert trial.tensor("a").value(number).tolist() == [number] * 3
        child.communicate(timeout=30)
    trial.refresh()
    assert trial.loaded_all_steps


def test_values_of_a_few_steps_read_the_files_that_have_them(tmp_path: Path) -> None:
    """Also where the steps of the modes differ from the global ones, and a worker has none of them."""
    jobs = [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]
    for number in range(20):
        for rank, job in enumerate(jobs):
            if rank == 0 or number < 4:
                job.publish({"a": [number], "b": [rank]}, mode=EVAL if number % 2 else TRAIN)
    trial = tensortrial.create_trial(tmp_path)
    with opened_by_this_thread() as opened:
        found = trial.values(["a", "b"], [3, 4, 5], mode=EVAL, worker="worker_0")
    assert {name: {step: int(each) for step, (each,) in found[name].items()} for name in found} == {
        "a": {3: 7, 4: 9, 5: 11},
        "b": {3: 0, 4: 0, 5: 0},
    }
    read = {Path(path).stem for path in opened if "/index/" in str(path) and str(path).endswith(".parquet")}
    assert read == {f"{number:08}" for number in (7, 9, 11)}
    with opened_by_this_thread() as opened:
        assert sorted(trial.values(["a", "b"], [0, 1], mode=EVAL, worker="worker_1")["b"]) == [0, 1]
    assert {"worker_1" in str(path) for path in opened if str(path).endswith(".parquet")} == {True}
    assert trial.values(["a", "b"], [3, 4, 5], mode=EVAL, worker="worker_1") == {"a": {}, "b": {}}
    nowhere: list[Any] = [[100, 101, 102], [-1, 10**19, 10**20]]
    assert [trial.values(["a", "b"], steps) for steps in nowhere] == [{"a": {}, "b": {}}] * 2
    with pytest.raises(InvalidWorker, match="worker_7"):
        trial.values(["a", "b"], [3, 4, 5], worker="worker_7")
    for job in jobs:
        job.close()


def test_a_collection_is_found_by_its_name_as_hooks_read_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        run.get_collection(" of mine ").include("^b")
        run.save_tensor("a", np.ones(2), collections_to_write=" of mine")
        run.save_tensor("b", np.ones(2), collections_to_write="")
    trial = tensortrial.create_trial(tmp_path / "run")
    assert trial.tensor_names(collection="of mine") == trial.tensor_names(collection=" of mine ") == ["a", "b"]
    assert trial.tensor_names(collection="") == ["b"]
    assert trial.tensor_names(collection="losses") == []
    assert not caplog.messages
    assert trial.tensor_names(collection="of mime\n") == []
    assert "no collection 'of mime\\n'; the nearest are: of mine" in caplog.text


@pytest.mark.parametrize("folder", ["index", "tensors"])
def test_pandas_reads_a_folder_of_a_run_without_this_package(tmp_path: Path, folder: str) -> None:
    pandas = pytest.importorskip("pandas")
    write_run(str(tmp_path / "run"))
    frame = pandas.read_parquet(tmp_path / "run" / folder, partitioning=None)
    assert {"w0", "w1"} <= set(frame["name"])
    assert set(frame["mode"]) == {"TRAIN", "EVAL"}


def test_a_value_of_a_known_tensor_refreshes_a_living_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.major", lambda _: 0)  # as on a file server, whose folders are opened at each refresh
    with Job(tmp_path / "run") as job:
        job.publish({"w": np.arange(4.0)})
        trial = tensortrial.create_trial(tmp_path / "run")
        job.publish({"w": np.arange(4.0) + 1})
        with opened_by_this_thread() as opened:
            assert trial.tensor("w").value(1).tolist() == [1, 2, 3, 4]
        assert [str(path) for path in opened].count(f"{tmp_path}/run/end") == 1
        job.publish({"later": np.ones(2)})
        assert trial.tensor("later").value(2).tolist() == [1, 1]
