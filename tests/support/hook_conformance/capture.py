"""Which tensors a hook saves, and at which steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensortrial import create_trial
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError
from tensortrial.mode import modes

from .job import HookTests

EVERY = SaveConfigMode(save_interval=1)


class CaptureTests(HookTests):
    """Tests of the tensors and the steps that are saved."""

    def test_the_default_collections_are_saved_by_default(self, out: str) -> None:
        hook = self.make_hook(out)
        assert hook.save_config.get_save_config(modes.TRAIN).save_interval == self.interval
        assert set(hook.recorder.collections.saved_names) == set(self.defaults)
        seen = self.run(hook, 2)
        trial = create_trial(out)
        assert trial.steps(self.mode) == list(range(0, 2, self.interval))
        assert self.number in trial.tensor_names(collection=self.defaults[0])
        assert not trial.has_tensor(self.tensor)
        np.testing.assert_allclose(trial.tensor(self.number).value(0, self.mode), seen[0][self.number], rtol=1e-6)

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

    def test_tensors_that_match_include_regex_are_in_the_collection_default(self, hook: Any, out: str) -> None:
        self.run(hook(include_regex=[f"^{self.tensor}$", "^no tensor has this name"]), 1)
        trial = create_trial(out)
        assert trial.tensor_names(collection="default") == [self.tensor]
        assert self.number in trial.tensor_names()
        assert trial.collection("default").include_regex == [f"^{self.tensor}$", "^no tensor has this name"]

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

    def test_an_empty_custom_collection_is_one_warning(
        self, hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        typo = f"{self.collection}x"
        self.run(hook(include_collections=[typo]), 2)
        warnings = [each.message for each in caplog.records if repr(typo) in each.message]
        assert len(warnings) == 1
        assert f"did you mean {self.collection!r}?" in warnings[0]
        assert create_trial(out).tensor_names(collection=typo) == []

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            (SaveConfig(save_interval=2), [0, 2, 4]),
            (SaveConfig(save_interval="2", start_step="1"), [2, 4]),
            (SaveConfig(save_interval=2, end_step=4), [0, 2]),
            (SaveConfig(save_steps="1, 3", end_step=0), [1, 3]),
            (SaveConfigMode(save_interval=3, save_steps=[1]), [0, 1, 3]),
            ({"save_interval": 4}, [0, 4]),
            ({modes.TRAIN: EVERY, "global": {"save_interval": 1}}, [0, 1, 2, 3, 4]),
        ],
        ids=["interval", "start", "end", "steps", "mode-config", "dictionary", "by-mode"],
    )
    def test_a_save_config_decides_which_steps_are_saved(
        self, hook: Any, out: str, config: Any, expected: list[int]
    ) -> None:
        self.run(hook(save_config=config, include_collections=[self.collection]), 5)
        assert self.steps(out, self.number) == self.steps(out, self.tensor) == expected

    def test_the_save_config_of_a_collection_overrides_the_hooks(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=[self.collection])
        custom.get_collection(self.collection).save_config = SaveConfig(save_interval=3)
        self.run(custom, 4)
        assert self.steps(out, self.tensor) == [0, 3]
        assert self.steps(out, self.number) == [0, 1, 2, 3]

    def test_end_step_0_switches_a_default_collection_off(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=[self.collection])
        for name in self.defaults:
            custom.get_collection(name).save_config.end_step = 0
        self.run(custom, 2)
        assert self.steps(out, self.number) == []
        assert self.steps(out, self.tensor) == [0, 1]

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

    def test_gradients_are_saved_in_training_only(self, hook: Any, out: str) -> None:
        if self.gradient is None:
            pytest.skip(f"{self.framework} has no gradients")
        with self.running(hook(include_collections=["gradients"], save_all=True)) as job:
            for mode in (modes.TRAIN, modes.EVAL):
                job.train(1, mode)
        assert self.steps(out, self.gradient, modes.GLOBAL) == [0]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 1]

    def test_a_gradient_names_its_parameter(self, hook: Any, out: str) -> None:
        if self.gradient is None:
            pytest.skip(f"{self.framework} has no gradients")
        with self.running(hook(include_collections=["gradients", "weights", "biases"])) as job:
            job.train(1, modes.TRAIN)
        trial = create_trial(out)
        parameters = {name for kind in ("weights", "biases") for name in trial.tensor_names(collection=kind)}
        rows = trial.sql("select name, parameter, list_contains(collections, 'gradients') from tensors").fetchall()
        linked = {name: parameter for name, parameter, is_gradient in rows if is_gradient}
        assert linked
        assert set(linked.values()) <= parameters
        assert all(parameter is None for _, parameter, is_gradient in rows if not is_gradient)

    def test_an_unknown_mode_is_refused(self, hook: Any) -> None:
        made = hook()
        with pytest.raises(ConfigurationError, match="TRAIN, EVAL, PREDICT, GLOBAL"):
            made.set_mode("training")
        assert made.recorder.active
