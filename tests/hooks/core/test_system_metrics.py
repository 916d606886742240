"""Samples of what the process and its machine do, in a run of their own."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import tensortrial
from support.missing import without
from support.plain_hook import Hook
from support.programs import start
from support.waiting import wait_until
from tensortrial.errors import ConfigurationError, MissingExtra
from tensortrial.hooks.core.configuration.options import DEFAULT_SECONDS, parse_interval
from tensortrial.hooks.core.system.gpus import find_gpus
from tensortrial.read.trial import Trial

psutil = pytest.importorskip("psutil")

ALWAYS = {
    "system/global_step",
    "system/process/cpu_percent",
    "system/process/rss_bytes",
    "system/cpu_percent",
    "system/memory_used_bytes",
    "system/memory_available_bytes",
}


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_SYSTEM_METRICS", raising=False)


@pytest.fixture
def samplers() -> Iterator[list[str]]:
    """Return the names of the threads that sample now, and check at the end that none is left."""
    yield _samplers()
    assert _samplers() == []


def _samplers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tensortrial-system-")]


def train(out: str | Path, steps: int = 3, **options: object) -> Hook:
    hook = Hook(out, **options)
    for step in range(steps):
        hook.save_scalar("loss", 1.0 / (step + 1), step=step)
    return hook


def samples_of(out: str | Path) -> Trial:
    return tensortrial.create_trial(f"{out}/system")


def wait_for_samples(out: str | Path, count: int) -> Trial:
    """Return the samples, once there are so many."""
    trial = tensortrial.create_trial(f"{out}/system", timeout=60)
    wait_until(lambda: len(trial.steps(show_incomplete_steps=True)) >= count)
    return trial


def test_nothing_is_sampled_by_default(out: str, tmp_path: Path) -> None:
    train(out).close()
    with pytest.raises(tensortrial.errors.RunNotFound):
        samples_of(out)
    assert _samplers() == []


def test_a_run_shorter_than_the_interval_has_one_sample(out: str, samplers: list[str]) -> None:
    train(out, system_metrics=True, export_tensorboard=True).close()
    assert not Path(out, "system", "tensorboard").exists()
    trial = samples_of(out)
    assert trial.steps() == [0]
    assert set(trial.tensor_names()) >= ALWAYS
    assert set(trial.tensor_names(collection="system")) == set(trial.tensor_names())
    assert trial.tensor("system/global_step").value(0) == 2
    rss = float(trial.tensor("system/process/rss_bytes").value(0))
    assert 0.2 < rss / psutil.Process().memory_info().rss < 5
    assert 0 <= float(trial.tensor("system/cpu_percent").value(0)) <= 100
    assert trial.info.metadata == {"seconds_between_samples": DEFAULT_SECONDS}


def test_the_run_itself_is_as_without_samples(tmp_path: Path) -> None:
    with_samples, without = tmp_path / "with", tmp_path / "without"
    hook = train(with_samples, system_metrics=0.1)
    wait_for_samples(with_samples, 3)
    hook.close()
    train(without).close()
    trials = [tensortrial.create_trial(each) for each in (with_samples, without)]
    assert [trial.steps() for trial in trials] == [[0, 1, 2]] * 2
    assert [trial.tensor_names() for trial in trials] == [["loss"]] * 2
    assert [trial.workers() for trial in trials] == [["worker_0"]] * 2
    assert all(trial.loaded_all_steps for trial in trials)
    verified = trials[0].verify()
    assert verified.is_whole
    assert not verified.unnamed
    assert not verified.unfinished
    assert tensortrial.open_runs(tmp_path).names == ["with", "without"]


def test_a_training_that_hangs_in_a_step_is_sampled(tmp_path: Path) -> None:
    out = tmp_path / "run"
    hook = Hook(out, system_metrics=0.1, flush_seconds=0)
    with hook.step(7):
        trial = wait_for_samples(out, 5)
        steps = trial.steps(show_incomplete_steps=True)
        assert {float(trial.tensor("system/global_step").value(step)) for step in steps} == {7.0}
        query = "select saved_at from tensors where name = 'system/cpu_percent' order by mode_step"
        saved_at = trial.sql(query).fetchall()
        assert saved_at == sorted(set(saved_at))
    hook.close()
    assert samples_of(out).loaded_all_steps


def test_a_resumed_run_goes_on_with_its_samples(out: str, samplers: list[str]) -> None:
    train(out, system_metrics=60).close()
    train(out, system_metrics=60, resume=True).close()
    train(out, resume=True).close()
    train(out, system_metrics=60, resume=True).close()
    trial = samples_of(out)
    assert trial.steps() == [0, 1, 2]
    assert trial.loaded_all_steps


def test_samples_begin_in_a_resumed_run_that_had_none(out: str, samplers: list[str]) -> None:
    train(out).close()
    train(out, system_metrics=60, resume=True).close()
    assert samples_of(out).steps() == [0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (False, None), (True, 10.0), (2, 2.0), (0.5, 0.5), ("30", 30.0), ("true", 10.0), ("0", None)],
)
def test_an_interval_is_seconds_or_a_switch(value: object, expected: float | None) -> None:
    assert parse_interval(value) == expected


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("0", None), ("1", 10.0), ("2.5", 2.5), ("off", None), ("yes", 10.0), ("", 5.0), (" ", 5.0)],
)
def test_the_variable_overrides_the_argument(
    variable: str, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTRIAL_SYSTEM_METRICS", variable)
    assert parse_interval(5) == expected


@pytest.mark.parametrize("value", [0, -1, 0.01, "often", float("nan"), float("inf"), [10], {"seconds": 10}])
def test_another_interval_is_refused_at_construction(out: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"system_metrics must be True, False or the seconds .* got "):
        Hook(out, system_metrics=value)


def test_an_interval_comes_from_a_json_file(tmp_path: Path) -> None:
    out = tmp_path / "run"
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(out), "HookParameters": {"system_metrics": "60"}}))
    hook = Hook.create_from_json_file(str(path))
    hook.save_scalar("loss", 1.0)
    hook.close()
    assert samples_of(out).info.metadata == {"seconds_between_samples": 60.0}


def test_without_psutil_the_extra_is_named(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "psutil", again="tensortrial.hooks.core.system.probe")
    monkeypatch.delattr("tensortrial.hooks.core.system.probe", raising=False)
    with pytest.raises(MissingExtra, match=r"system_metrics needs psutil.*tensortrial\[system\]"):
        Hook(out, system_metrics=True)
    train(out).close()
    assert tensortrial.create_trial(out).steps() == [0, 1, 2]


def test_a_dry_run_and_an_unused_hook_are_not_sampled(out: str, samplers: list[str]) -> None:
    train(out, system_metrics=True, dry_run=True).close()
    Hook(out, system_metrics=True).close()
    with pytest.raises(tensortrial.errors.RunNotFound):
        samples_of(out)


def test_an_error_of_psutil_ends_the_samples_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No system refuses psutil on request."""
    monkeypatch.setenv("TENSORTRIAL_STRICT", "0")
    out = tmp_path / "run"
    hook = train(out, system_metrics=0.1)
    wait_for_samples(out, 2)

    def gone() -> None:
        raise psutil.AccessDenied(msg="no /proc")

    monkeypatch.setattr(psutil, "virtual_memory", gone)
    sampler = next(each for each in threading.enumerate() if each.name == "tensortrial-system-worker_0")
    sampler.join(60)
    assert not sampler.is_alive()
    hook.save_scalar("loss", 0.0, step=3)
    hook.close()
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.levelname for record in warned] == ["WARNING"]
    assert "the system metrics of" in warned[0].message
    assert "no /proc" in warned[0].message
    trial = tensortrial.create_trial(out)
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.loaded_all_steps
    assert len(samples_of(out).steps()) >= 2
    assert "no /proc" in samples_of(out).snapshot.workers.failures["worker_0"]


def test_in_strict_mode_the_error_is_raised_at_close(
    out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TENSORTRIAL_STRICT", "1")
    hook = train(out, system_metrics=60)

    def gone() -> None:
        raise psutil.AccessDenied(msg="no /proc")

    monkeypatch.setattr(psutil, "virtual_memory", gone)
    with pytest.raises(psutil.AccessDenied, match="no /proc"):
        hook.close()
    assert tensortrial.create_trial(out).steps() == [0, 1, 2]


def test_a_forked_child_samples_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    hook = train(out, system_metrics=0.1)
    wait_for_samples(out, 1)
    child = multiprocessing.get_context("fork").Process(target=_use_in_child, args=(hook,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    count = len(wait_for_samples(out, 1).steps(show_incomplete_steps=True))
    wait_for_samples(out, count + 2)
    hook.close()
    assert samples_of(out).loaded_all_steps
    assert samples_of(out).workers() == ["worker_0"]


def _use_in_child(hook: Hook) -> None:
    assert _samplers() == []
    hook.save_scalar("loss", 0.0)
    hook.close()
    assert _samplers() == []


def test_sigterm_closes_the_run_and_its_samples(tmp_path: Path) -> None:
    program = """
    import os, psutil, signal, time
    from support.plain_hook import Hook

    read = psutil.virtual_memory

    def read_late():
        os.kill(os.getpid(), signal.SIGTERM)  # a second one, during the last sample
        time.sleep(0.5)
        return read()

    hook = Hook("run", system_metrics=60)
    psutil.virtual_memory = read_late
    hook.save_scalar("loss", 1.0)
    print("ready", flush=True)
    time.sleep(600)
    """
    with start(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGTERM
    for trial in (tensortrial.create_trial(tmp_path / "run"), samples_of(tmp_path / "run")):
        assert trial.steps() == [0]
        assert trial.loaded_all_steps


def test_the_end_of_a_program_takes_the_last_sample(tmp_path: Path) -> None:
    program = """
    from tensortrial import Run

    run = Run("run", system_metrics=True)
    run.log({"loss": 1.0})
    """
    with start(program, tmp_path) as process:
        assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0
    assert samples_of(tmp_path / "run").steps() == [0]


def test_a_damaged_folder_of_samples_affects_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TENSORTRIAL_STRICT", "0")
    out = tmp_path / "run"
    (out / "system").mkdir(parents=True)
    (out / "system" / "run.json").write_text("damaged")
    hook = train(out, system_metrics=60)
    hook.close()
    assert "the system metrics of" in caplog.text
    assert tensortrial.create_trial(out).steps() == [0, 1, 2]


class TestGpus:
    def test_a_machine_without_a_driver_has_no_gpus(self) -> None:
        if os.path.exists("/dev/nvidiactl"):
            pytest.skip("this machine has a driver")
        assert find_gpus() is None

    def test_without_nvidias_library_there_are_no_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without(monkeypatch, "pynvml")
        assert find_gpus() is None

    def test_each_gpu_reports_what_it_can(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", _two_gpus())
        gpus = find_gpus()
        assert gpus is not None
        assert gpus.read() == {
            "gpu_0/utilization_percent": 93,
            "gpu_0/memory_used_bytes": 7,
            "gpu_0/memory_total_bytes": 80,
            "gpu_0/temperature_celsius": 61,
            "gpu_0/power_watts": 412.5,
            "gpu_1/memory_used_bytes": 7,
            "gpu_1/memory_total_bytes": 80,
            "gpu_1/temperature_celsius": 61,
        }


def _two_gpus() -> ModuleType:
    """Return a stand-in for `pynvml`: the machines that run the tests have no GPU. The second one is divided."""

    class NVMLError(Exception):
        pass

    def only_first(value: object) -> object:
        def read(handle: int) -> object:
            if handle:
                raise NVMLError("Not Supported")
            return value

        return read

    nvml = ModuleType("pynvml")
    nvml.__dict__.update(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=only_first(SimpleNamespace(gpu=93, memory=4)),
        nvmlDeviceGetPowerUsage=only_first(412_500),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=7, total=80, free=73),
        nvmlDeviceGetTemperature=lambda _, sensor: 61 + sensor,
    )
    return nvml
