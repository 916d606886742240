"""A run that smdebug itself wrote, imported: every value is what smdebug's own reader gives."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from tensortrial.importers.smdebug import import_run
from tensortrial.mode import ModeKeys

VARIABLE = "TENSORTRIAL_SMDEBUG_PYTHON"
JOB = Path(__file__).with_name("smdebug_job.py")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, np.ndarray]]:
    """The run, what its reader says of it, and what it reads."""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no Python that has smdebug; `make env-smdebug` makes one")
    folder = tmp_path_factory.mktemp("smdebug")
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(
        [python, JOB, folder / "run", folder / "answers.npz"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "answers.npz") as answers:
        arrays = {key: answers[key] for key in answers.files}
    return folder / "run", json.loads(str(arrays.pop("facts"))), arrays


@pytest.fixture(scope="module")
def trial(
    run: tuple[Path, dict[str, Any], dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory
) -> tensortrial.Trial:
    damage: list[Exception] = []
    target = tmp_path_factory.mktemp("imported") / "run"
    trial = tensortrial.create_trial(import_run(run[0], target, progress=False, on_damage=damage.append))
    assert damage == []
    return trial


def test_every_value_and_reduction(
    run: tuple[Path, dict[str, Any], dict[str, np.ndarray]], trial: tensortrial.Trial
) -> None:
    arrays = run[2]
    assert len(arrays) > 400
    assert {"value", "abs_prod", "l2"} <= {key.partition("|")[0] for key in arrays}
    for key, expected in arrays.items():
        kind, name, mode, step = key.split("|")
        tensor = trial.tensor(name)
        if kind == "value":
            found = tensor.value(int(step), ModeKeys[mode])
            if name == "custom/int8:0":
                expected = expected.view(np.int8)  # it writes int8, and reads it as uint8
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), key
        else:
            absolute = kind.startswith("abs_")
            found = tensor.reduction_values(int(step), ModeKeys[mode])[kind.removeprefix("abs_"), absolute]
        np.testing.assert_array_equal(found, expected, err_msg=key)


def test_what_smdebug_writes_and_cannot_read(
    run: tuple[Path, dict[str, Any], dict[str, np.ndarray]], trial: tensortrial.Trial
) -> None:
    unreadable = [key.split("|") for key in run[1]["unreadable"]]
    assert {name for name, _, _ in unreadable} == {"custom/int16:0", "custom/complex64:0"}
    for name, mode, step in unreadable:
        found = trial.tensor(name).value(int(step), ModeKeys[mode])
        # All that the job saves under custom/ is made from the same float32 tensor.
        exact = trial.tensor("custom/float64:0").value(int(step), ModeKeys[mode])
        np.testing.assert_array_equal(found, exact.astype(found.dtype))
        assert f"custom/{found.dtype}:0" == name


def test_nothing_more(run: tuple[Path, dict[str, Any], dict[str, np.ndarray]], trial: tensortrial.Trial) -> None:
    """Values and reductions are as many as smdebug's reader found."""
    (counted,) = trial.sql("select count(*) filter (scalar is not null or chunk is not null) from tensors").fetchall()
    assert counted[0] == sum(key.startswith("value|") for key in run[2]) + len(run[1]["unreadable"])
    ((reductions,),) = trial.sql("select count(*) from reductions").fetchall()
    assert reductions == sum(not key.startswith("value|") for key in run[2])


def test_steps_workers_and_collections(
    run: tuple[Path, dict[str, Any], dict[str, np.ndarray]], trial: tensortrial.Trial
) -> None:
    facts = run[1]
    assert {mode.name: trial.steps(mode) for mode in trial.modes()} == facts["steps"]
    assert trial.workers() == facts["workers"]
    assert trial.loaded_all_steps
    assert trial.tensor_names() == facts["names"]
    for name, members in facts["collections"].items():
        if name != "all":  # there empty, here all tensors
            assert trial.tensor_names(collection=name) == members, name
    assert trial.tensor("fc2_output_0").shape(0, ModeKeys.TRAIN) == (12, 4)
