"""Which collections are saved, and the steps that a save configuration chooses.

The planner and the collection manager of `hooks/core/configuration` decide it, and a binding only asks them whether a
name is due. So one hook runs these tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from tensortrial import create_trial
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError
from tensortrial.mode import modes

from .job import HookTests

EVERY = SaveConfigMode(save_interval=1)


class CollectionTests(HookTests):
    """Tests of collections and save configurations."""

    def test_tensors_that_match_include_regex_are_in_the_collection_default(self, hook: Any, out: str) -> None:
        self.run(hook(include_regex=[f"^{self.tensor}$", "^no tensor has this name"]), 1)
        trial = create_trial(out)
        assert trial.tensor_names(collection="default") == [self.tensor]
        assert self.number in trial.tensor_names()
        assert trial.collection("default").include_regex == [f"^{self.tensor}$", "^no tensor has this name"]

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

    def test_end_step_0_switches_a_default_collection_off(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=[self.collection])
        for name in self.defaults:
            custom.get_collection(name).save_config.end_step = 0
        self.run(custom, 2)
        assert self.steps(out, self.number) == []
        assert self.steps(out, self.tensor) == [0, 1]

    def test_an_unknown_mode_is_refused(self, hook: Any) -> None:
        made = hook()
        with pytest.raises(ConfigurationError, match="TRAIN, EVAL, PREDICT, GLOBAL"):
            made.set_mode("training")
        assert made.recorder.active
