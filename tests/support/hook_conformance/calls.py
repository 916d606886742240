"""What the user saves by a call.

Each binding converts the values of its framework, and some have a `save_scalar` of their own; and whether a step is
open after a call of the framework depends on the binding. So each framework runs these tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensortrial import create_trial
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig
from tensortrial.mode import modes

from .job import HookTests


class CallTests(HookTests):
    """Tests of the methods that save a tensor or a number."""

    def test_what_is_saved_by_a_call_is_saved_at_the_open_step(self, hook: Any, out: str) -> None:
        made = hook(save_config=SaveConfig(save_interval=100))
        if self.mode is not modes.GLOBAL:
            made.set_mode(self.mode)
        made.save_scalar("before", 7)
        with self.running(made) as job:
            job.train(2)
            made.save_scalar("accuracy", 0.5)
            made.save_scalar("f1", np.float32(0.25), sm_metric=True, timestamp=1000.5)
            made.save_tensor("matrix", np.arange(6.0).reshape(2, 3), collections_to_write=["mine", "other"])
            made.save_tensor("list", [[1, 2], [3, 4]])
            job.train(1)
        trial, after = create_trial(out), 1 if self.step_stays_open else 2
        assert trial.tensor("before").steps(self.mode) == [0]
        for name, value in {
            "accuracy": 0.5,
            "f1": 0.25,
            "matrix": [[0, 1, 2], [3, 4, 5]],
            "list": [[1, 2], [3, 4]],
        }.items():
            assert trial.tensor(name).steps(self.mode) == [after], name
            assert trial.tensor(name).value(after, self.mode).tolist() == value
        assert trial.tensor_names(collection="sm_metrics") == ["f1"]
        assert trial.tensor_names(collection="mine") == trial.tensor_names(collection="other") == ["matrix"]
        assert trial.sql("SELECT epoch_ms(saved_at) FROM tensors WHERE name = 'f1'").fetchall() == [(1000500,)]

    def test_values_are_saved_at_the_step_that_a_call_names(self, hook: Any, out: str) -> None:
        made = hook()
        if self.mode is not modes.GLOBAL:
            made.set_mode(self.mode)
        with self.running(made) as job:
            job.train(3)
            made.log({"late": 1.0, "late/two": np.float32(2.0)}, step=1, mode=self.mode)
            made.flush()
            made.save_scalar("late", 3.0, step=1, mode=self.mode.name)
            made.save_scalar("validation", 4.0, step=2, mode=modes.PREDICT)
            made.save_tensor("vector", [1.0, 2.0], step=1, mode=self.mode.name)
            made.save_tensor("evaluated", [3.0, 4.0], "mine", step=2, mode="predict")
            job.train(1)
        trial = create_trial(out)
        assert trial.tensor("late").steps(self.mode) == trial.tensor("late/two").steps(self.mode) == [1]
        assert trial.tensor("late").value(1, self.mode) == 3.0
        assert trial.tensor("vector").steps(self.mode) == [1]
        assert trial.tensor("vector").value(1, self.mode).tolist() == [1.0, 2.0]
        assert trial.tensor("validation").steps(modes.PREDICT) == trial.tensor("evaluated").steps(modes.PREDICT) == [2]
        assert len(trial.steps()) == 5

    def test_several_tensors_are_saved_as_each_by_a_call(
        self, hook: Any, out: str, lenient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = hook()
        tensors = {"vector": np.arange(3.0), "objects": [object()], "list": [[1, 2], [3, 4]], "number": 5.0}
        if self.mode is not modes.GLOBAL:
            made.set_mode(self.mode)
        with self.running(made) as job:
            job.train(2)
            for name, value in tensors.items():
                made.save_tensor(f"each/{name}", value, "mine,other")
                made.save_tensor(f"past/each/{name}", value, step=0, mode=self.mode)
            made.save_tensors({f"all/{name}": value for name, value in tensors.items()}, "mine,other")
            made.save_tensors(
                {f"past/all/{name}": value for name, value in tensors.items()}, step=0, mode=self.mode.name
            )
            made.save_tensors([("pair", 1.0)])
            job.train(1)
        trial = create_trial(out)
        query = "SELECT name, mode, mode_step, dtype, shape, collections, scalar, digest FROM tensors ORDER BY name"
        rows = {name: row for name, *row in trial.sql(query).fetchall()}
        for each in (name for name in rows if "each/" in name):
            assert rows[each] == rows[each.replace("each/", "all/")], each
        assert trial.tensor("all/list").value(1 if self.step_stays_open else 2, self.mode).tolist() == [[1, 2], [3, 4]]
        assert trial.tensor("past/all/vector").value(0, self.mode).tolist() == [0.0, 1.0, 2.0]
        refused = [str(record.args[0]) for record in self.errors(caplog) if record.args]
        assert refused == ["each/objects", "past/each/objects", "all/objects", "past/all/objects", "save_tensors"]
        assert not trial.snapshot.workers.failures

    def test_images_are_saved_raw_with_the_channels_last(
        self, hook: Any, out: str, lenient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = hook(reduction_config=ReductionConfig(norms=["l2"]))
        pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
        images = {"colors": pixels, "first": np.moveaxis(pixels, -1, 0), "floats": pixels / 255, "gray": pixels[..., 0]}
        images["inexact"] = pixels / 255 - 1e-7
        wrong = {"integers": pixels.astype(int), "large": pixels * 1.0, "flat": pixels[0, 0], "object": object()}
        with self.running(made) as job:
            job.train(1)
            for name, image in {**images, **wrong}.items():
                made.save_image(name, image)
            made.save_image("past", pixels, step=0, mode=self.mode)
            job.train(1)
        trial = create_trial(out)
        assert set(trial.tensor_names(collection="images")) == {*images, "past"}
        for name in (*images, "past"):
            [value] = trial.tensor(name).values(self.mode).values()
            assert value.dtype == np.uint8
            assert np.array_equal(value, pixels[..., :1] if name == "gray" else pixels), name
        refused = [str(record.args[0]) for record in self.errors(caplog) if record.args]
        assert refused == list(wrong)
        assert not trial.snapshot.workers.failures

    def test_a_tensor_may_be_passed_by_the_names_of_smdebugs_documents(self, hook: Any, out: str) -> None:
        made = hook()
        with self.running(made) as job:
            job.train(1)
            made.save_tensor(tensor_name="documented", tensor_value=[1.0, 2.0], collections_to_write="mine")
            job.train(1)
        assert create_trial(out).tensor_names(collection="mine") == ["documented"]

    def test_a_tensor_that_cannot_be_stored_does_not_stop_the_others(
        self, hook: Any, out: str, lenient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Angry:
            def __array__(self, *args: Any, **kwargs: Any) -> Any:
                raise AssertionError("not an array")

        odd = {"none": None, "ragged": [[1], [2, 3]], "objects": [object()], "object": object(), "angry": Angry()}
        made = hook()
        with self.running(made) as job:
            for _ in range(2):
                job.train(1)
                for name, value in odd.items():
                    made.save_tensor(name, value)
                    made.save_scalar(f"{name} number", value)
                made.save_scalar("text", "not a number")
        names = {*odd, *(f"{name} number" for name in odd), "text"}
        assert sorted(str(record.args[0]) for record in self.errors(caplog) if record.args) == sorted(names)
        trial = create_trial(out)
        assert trial.tensor(self.number).steps(self.mode) == [0, 1]
        assert not names & set(trial.tensor_names())
        assert not trial.snapshot.workers.failures
