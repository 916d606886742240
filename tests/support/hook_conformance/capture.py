"""Which tensors a hook saves of a framework, and at which steps.

Each binding names its tensors, adds them to the built-in collections, finds out what is due at a step and takes the
values. So each framework runs these tests.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortrial import create_trial
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.mode import modes

from .job import HookTests


class CaptureTests(HookTests):
    """Tests of the tensors and the steps that are saved."""

    def test_the_default_collections_are_saved_by_default(self, out: str) -> None:
        hook = self.make_hook(out, metadata={"seed": 7}, codec="zstd", include_collections=())
        assert hook.save_config.get_save_config(modes.TRAIN).save_interval == self.interval
        assert set(hook.recorder.collections.saved_names) == set(self.defaults)
        seen = self.run(hook, 2)
        trial = create_trial(out)
        assert trial.steps(self.mode) == list(range(0, 2, self.interval))
        assert self.number in trial.tensor_names(collection=self.defaults[0])
        assert not trial.has_tensor(self.tensor)
        np.testing.assert_allclose(trial.tensor(self.number).value(0, self.mode), seen[0][self.number], rtol=1e-6)
        run = json.loads(Path(out, "run.json").read_bytes())
        assert [run[key] for key in ("framework", "metadata", "codec")] == [self.framework, {"seed": 7}, "zstd"]
        assert {"tensortrial", "python"} < set(run["versions"])

    def test_a_hook_without_a_choice_saves_statistics_at_a_growing_interval(
        self, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        if not self.growing:
            pytest.skip(f"{self.framework} has no collection that is saved by default")
        with caplog.at_level(logging.INFO, "tensortrial.hooks"):
            hook = self.make_hook(out)
        assert caplog.text.count("at every step") == 1
        self.run(hook, 22)
        trial = create_trial(out)
        assert set(trial.tensor(self.number).steps(self.mode)) == set(range(22))
        saved = [name for each in self.growing for name in trial.tensor_names(collection=each)]
        steps = {step for name in saved if name != self.number for step in trial.tensor(name).steps(self.mode)}
        assert steps == {*range(10), 10, 20}
        assert trial.collection(self.growing[0]).save_config == SaveConfig(save_interval="growing")
        if self.growing == ("health",):
            assert trial.tensor(self.tensor).reduction_value(20, "l2", self.mode) > 0
            with pytest.raises(KeyError, match="only reductions were"):
                trial.tensor(self.tensor).value(20, self.mode)

    def test_a_hook_that_chooses_steps_alone_saves_statistics_at_them(self, out: str) -> None:
        if not self.growing:
            pytest.skip(f"{self.framework} has no collection that is saved by default")
        self.run(self.make_hook(out, save_interval=4), 9)
        trial = create_trial(out)
        names = [self.number, *(name for each in self.growing for name in trial.tensor_names(collection=each))]
        assert {step for name in names for step in trial.tensor(name).steps(self.mode)} == {0, 4, 8}

    def test_a_hook_at_a_growing_interval_saves_losses_at_every_step(self, out: str) -> None:
        hook = self.make_hook(out, include_collections=[self.collection], save_interval="growing")
        self.run(hook, 22)
        trial = create_trial(out)
        assert trial.tensor(self.number).steps(self.mode) == list(range(22))
        assert trial.tensor(self.tensor).steps(self.mode) == [*range(10), 10, 20]

    def test_saved_values_are_those_of_the_job(self, hook: Any, out: str) -> None:
        collections = [self.collection, *(["gradients"] if self.gradient else [])]
        seen = self.run(hook(include_collections=collections), 3)
        trial = create_trial(out)
        assert self.tensor in trial.tensor_names(collection=self.collection)
        assert self.number not in trial.tensor_names(collection=self.collection)
        for name in filter(None, (self.number, self.tensor, self.gradient)):
            assert trial.tensor(name).steps(self.mode) == [0, 1, 2]
            for step, values in enumerate(seen):
                found = trial.tensor(name).value(step, self.mode)
                assert found.shape == trial.tensor(name).shape(step, self.mode) == np.shape(values[name])
                np.testing.assert_allclose(found, values[name], rtol=1e-6, err_msg=f"{name} at step {step}")
        assert np.size(seen[0][self.tensor]) > 1

    def test_training_is_the_same_with_and_without_a_hook(self, hook: Any) -> None:
        watched = self.run(hook(save_all=True), 3)
        job = self.make_job(None)
        alone = job.train(3)
        job.end()
        for with_hook, without in zip(watched, alone, strict=True):
            np.testing.assert_allclose(with_hook[self.number], without[self.number], rtol=1e-5)

    def test_save_all_saves_every_tensor(self, hook: Any, out: str) -> None:
        self.run(hook(save_all=True), 1)
        expected = {self.number, self.tensor, *([self.gradient] if self.gradient else [])}
        assert expected < set(create_trial(out).tensor_names())

    def test_custom_collections_match_by_regex_and_by_name(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=["by_regex", "by_name"])
        custom.get_collection("by_regex").include(f"^{self.tensor}$")
        custom.add_collection(self.module.Collection("by_name", tensor_names=[self.tensor]))
        custom.get_collection("not saved").include(".*")
        self.run(custom, 1)
        trial = create_trial(out)
        for name in ("by_regex", "by_name"):
            assert trial.tensor_names(collection=name) == [self.tensor]
        assert {"by_regex", "by_name", "not saved", self.collection} <= set(trial.collections())

    def test_a_collection_has_steps_and_a_form_of_its_own(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=[self.collection])
        custom.get_collection(self.collection).save_config = SaveConfig(save_interval=3)
        custom.get_collection(self.collection).reduction_config = ReductionConfig(["mean"], norms=["l2"], axis=0)
        seen = self.run(custom, 4)
        assert self.steps(out, self.tensor) == [0, 3]
        assert self.steps(out, self.number) == [0, 1, 2, 3]
        trial = create_trial(out)
        tensor, expected = trial.tensor(self.tensor), np.asarray(seen[3][self.tensor], np.float64)
        assert tensor.shape(3, self.mode) == expected.shape
        assert tensor.reduction_value(3, "l2", self.mode) == pytest.approx(np.linalg.norm(expected), rel=1e-6)
        rows = np.linalg.norm(expected.reshape(len(expected), -1), axis=1)
        np.testing.assert_allclose(tensor.reduction_value(3, "l2", self.mode, axis=0), rows, rtol=1e-6)
        with pytest.raises(KeyError, match="only reductions were"):
            tensor.value(3, self.mode)
        # A loss or a metric is always saved raw.
        np.testing.assert_allclose(trial.tensor(self.number).value(3, self.mode), seen[3][self.number], rtol=1e-6)

    def test_modes_count_their_own_steps(self, hook: Any, out: str) -> None:
        config = {modes.TRAIN: SaveConfigMode(save_interval=2), modes.EVAL: SaveConfigMode(save_steps=[1], end_step=0)}
        with self.running(hook(save_config=config)) as job:
            job.train(3, modes.TRAIN)  # global 0 to 2
            seen = job.train(2, modes.EVAL)  # global 3 and 4
            job.train(2, modes.TRAIN)  # global 5 and 6
        trial = create_trial(out)
        assert trial.modes() == [modes.TRAIN, modes.EVAL]
        assert self.steps(out, self.number, modes.TRAIN) == [0, 2, 4]
        assert self.steps(out, self.number, modes.EVAL) == [1]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 2, 4, 6]
        assert trial.mode(4) is modes.EVAL
        assert trial.mode_step(4) == 1
        assert trial.global_step(modes.EVAL, 1) == 4
        found = trial.tensor(self.number).value(1, modes.EVAL)
        np.testing.assert_allclose(found, seen[1][self.number], rtol=1e-6)

    def test_gradients_are_saved_in_training_only_and_name_their_parameters(self, hook: Any, out: str) -> None:
        if self.gradient is None:
            pytest.skip(f"{self.framework} has no gradients")
        with self.running(hook(include_collections=["gradients", "weights", "biases"], save_all=True)) as job:
            for mode in (modes.TRAIN, modes.EVAL):
                job.train(1, mode)
        assert self.steps(out, self.gradient, modes.GLOBAL) == [0]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 1]
        trial = create_trial(out)
        parameters = {name for kind in ("weights", "biases") for name in trial.tensor_names(collection=kind)}
        rows = trial.sql("select name, parameter, list_contains(collections, 'gradients') from tensors").fetchall()
        linked = {name: parameter for name, parameter, is_gradient in rows if is_gradient}
        assert linked
        assert set(linked.values()) <= parameters
        assert all(parameter is None for _, parameter, is_gradient in rows if not is_gradient)
