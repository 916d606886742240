"""How a hook is made, and what its module offers.

Each binding declares the arguments, makes the hook the current one once it is whole, and has a `get_hook` and a
`Collection` of its own. So each framework runs these tests, none of which trains.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from tensortrial.config.save_config import SaveConfig
from tensortrial.errors import ConfigurationError
from tensortrial.mode import modes

from .job import HookTests

# The arguments of every hook that may be passed by position.
POSITIONAL = (
    "out_dir",
    "export_tensorboard",
    "tensorboard_dir",
    "dry_run",
    "reduction_config",
    "save_config",
    "include_regex",
    "include_collections",
    "save_all",
    "include_workers",
)


class ConstructionTests(HookTests):
    """Tests of the constructor, of the JSON configuration that makes a hook, and of the public names."""

    def test_the_constructor_shows_its_arguments_in_the_order_of_smdebug(self) -> None:
        hook_class = getattr(self.module, self.hook_class)
        shown = inspect.signature(hook_class).parameters
        assert list(shown)[: len(POSITIONAL)] == list(POSITIONAL)
        assert {"resume", "force", "storage_options", "flush_seconds", "codec", "durable", "metadata"} <= set(shown)
        assert (shown["include_workers"].default, shown["codec"].default) == ("one", "none")
        assert all(f"\n    {name}: " in hook_class.__init__.__doc__ for name in shown)

    def test_an_unknown_argument_is_a_type_error_that_names_it(self, out: str) -> None:
        sentence = r"__init__\(\) got an unexpected keyword argument 'save_intervall'; did you mean 'save_interval'\?"
        with pytest.raises(TypeError, match=sentence):
            getattr(self.module, self.hook_class)(out, save_intervall=1)
        with pytest.raises(TypeError, match=r"__init__\(\) missing a required argument: 'out_dir'"):
            getattr(self.module, self.hook_class)()

    def test_the_arguments_of_a_save_config_are_arguments_of_the_hook(self, out: str) -> None:
        steps = {"save_interval": 7, "start_step": 2, "end_step": 20, "save_steps": [4], "warmup_steps": 2}
        assert getattr(self.module, self.hook_class)(out, **steps).save_config == SaveConfig(**steps)

    def test_a_hook_that_cannot_be_made_does_not_become_the_current_one(self) -> None:
        with pytest.raises(ConfigurationError, match="where to save"):
            self.make_hook(out_dir="")
        assert self.module.get_hook() is None

    def test_a_json_file_makes_the_hook_of_the_module(
        self, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.module.get_hook(self.hook_type, create_if_not_exists=True) is None
        path = tmp_path / "hook.json"
        parameters = {"save_interval": "3", "include_regex": f"^{self.tensor}$"}
        path.write_text(json.dumps({"LocalPath": out, "HookParameters": parameters}))
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
        made = self.module.get_hook(self.hook_type, create_if_not_exists=True)
        assert type(made) is getattr(self.module, self.hook_class)
        assert self.module.get_hook() is made
        assert made.out_dir == out
        assert set(made.recorder.collections.saved_names) == {"default", *self.defaults}
        assert all(made.save_config.get_save_config(mode).save_interval == 3 for mode in modes)

    def test_the_collections_of_a_hook_are_found_by_name(self, hook: Any) -> None:
        made = hook()
        assert {"all", "default", "sm_metrics", self.collection, *self.defaults} <= set(made.get_collections())
        assert made.get_collection("nowhere", create=False) is None
        assert made.get_collection(self.collection) is made.get_collections()[self.collection]
        assert made.get_collection("all").include_regex == [".*"]
        assert isinstance(made.get_collection("new"), self.module.Collection)
        with pytest.raises(ConfigurationError, match="takes a Collection"):
            made.add_collection("weights")

    def test_the_environment_of_the_process_decides_which_worker_it_is(
        self, hook: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", "1")
        made = hook(include_workers="all")
        assert (made.worker, made.recorder.active) == ("worker_1", True)

    def test_the_public_names_of_a_framework_exist(self) -> None:
        for name in self.module.__all__:
            assert getattr(self.module, name) is not None
        common = ("Collection", "CollectionKeys", "SaveConfig", "SaveConfigMode", "ReductionConfig", "modes")
        assert {self.hook_class, *common, "create_trial", "get_hook", "set_hook", "del_hook"} <= set(
            self.module.__all__
        )
