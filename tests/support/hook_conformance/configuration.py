"""The configuration of a hook by JSON and by bad arguments, and the current hook.

`hooks/core/configuration` reads it before a binding sees it, and `hooks/core/current_hook.py` knows no binding. So one
hook runs these tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensortrial import create_trial
from tensortrial.config.save_config import SaveConfig
from tensortrial.errors import ConfigurationError
from tensortrial.mode import modes

from .job import HookTests


class ConfigurationTests(HookTests):
    """Tests of the configuration."""

    def test_a_json_file_configures_the_hook_and_its_collections(
        self, hook: Any, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        document = {
            "LocalPath": out,
            "HookParameters": {"save_interval": "2", "include_regex": f"^{self.tensor}$", "eval.save_interval": "1"},
            "CollectionConfigurations": [
                {
                    "CollectionName": self.collection,
                    "CollectionParameters": {
                        "save_interval": "3",
                        "reductions": "mean,abs_l2",
                        "save_raw_tensor": "True",
                    },
                },
                {"CollectionName": "mine", "CollectionParameters": {"include_regex": self.number, "save_steps": "1"}},
            ],
        }
        path = tmp_path / "hook.json"
        path.write_text(json.dumps(document))
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
        made = self.module.get_hook(self.hook_type, create_if_not_exists=True)
        assert isinstance(made, getattr(self.module, self.hook_class))
        self.run(made, 4)
        trial = create_trial(out)
        assert self.steps(out, self.tensor) == [0, 2, 3]
        assert set(trial.tensor(self.tensor).reduction_values(3, self.mode)) == {("mean", False), ("l2", True)}
        assert self.steps(out, self.number) == [0, 1, 2]
        assert self.number in trial.tensor_names(collection="mine")

    def test_without_a_configuration_get_hook_returns_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SMDEBUG_CONFIG_FILE_PATH", raising=False)
        assert self.module.get_hook(self.hook_type, create_if_not_exists=True) is None
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", "/nowhere/hook.json")
        assert self.module.get_hook(self.hook_type, create_if_not_exists=True) is None
        with pytest.raises(ConfigurationError, match=r"other\.json"):
            self.module.get_hook(self.hook_type, "other.json", create_if_not_exists=True)

    def test_a_json_file_with_a_path_only_leaves_the_defaults(self, out: str, tmp_path: Path) -> None:
        (tmp_path / "hook.json").write_text(json.dumps({"LocalPath": out}))
        made = self.from_json(str(tmp_path / "hook.json"))
        assert self.module.get_hook() is made
        assert made.out_dir == out
        assert set(made.recorder.collections.saved_names) == set(self.defaults)
        assert all(made.save_config.get_save_config(mode).save_interval == self.interval for mode in modes)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"out_dir": ""}, "where to save"),
            ({"include_workers": "two"}, "'one' or 'all'"),
            ({"codec": "gzip"}, "none, lz4, zstd"),
            ({"flush_seconds": -1}, "0 or more"),
            ({"include_regex": ["["]}, r"'\['"),
            ({"include_regex": [None]}, "None"),
            ({"save_all": "perhaps"}, "true or false"),
            ({"save_config": 3}, "save_config"),
            ({"save_steps": 5}, "save_steps must be a list or a comma-separated string, got 5"),
            ({"save_config": SaveConfig(), "save_interval": 3}, "save_interval as a part of save_config"),
            ({"save_interval": 0}, "save_interval must be at least 1"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_an_argument_with_a_bad_value_is_refused(self, out: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            self.make_hook(**{"out_dir": out, **options})
        assert self.module.get_hook() is None

    def test_the_current_hook_is_the_last_one_made_or_the_one_that_was_set(self, hook: Any, tmp_path: Path) -> None:
        assert self.module.get_hook() is None
        first, second = hook(), hook(str(tmp_path / "second"))
        assert self.module.get_hook(self.hook_type, create_if_not_exists=True) is second
        self.module.set_hook(first)
        assert self.module.get_hook("anything", create_if_not_exists=True) is first
        self.module.set_hook(second)
        self.module.del_hook()
        assert self.module.get_hook() is None
        assert not second.recorder.active
        assert first.recorder.active

    def test_a_hook_that_is_made_after_a_closed_one_is_current(
        self, hook: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = hook()
        first.save_scalar("x", 1)
        first.close()
        for _ in range(2):
            self.module.get_hook().save_scalar("x", 2)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "is closed, and values that are saved with it now are lost" in caplog.text
        second = hook(str(tmp_path / "second"))
        self.module.get_hook().save_scalar("x", 3)
        second.close()
        assert create_trial(tmp_path / "second").tensor("x").value(0) == 3

    def test_a_closed_hook_that_saved_nothing_loses_nothing(self, hook: Any, caplog: pytest.LogCaptureFixture) -> None:
        made = hook(dry_run=True)
        made.save_scalar("x", 1)
        made.close()
        made.save_scalar("x", 2)
        assert caplog.text == ""

    def test_a_garbage_collected_hook_is_closed_when_the_next_is_made(self, tmp_path: Path) -> None:
        for number in range(5):
            self.make_hook(str(tmp_path / str(number)), save_config=SaveConfig(save_interval=1)).save_scalar(
                "x", number
            )
        for number in range(4):
            assert create_trial(tmp_path / str(number)).loaded_all_steps
