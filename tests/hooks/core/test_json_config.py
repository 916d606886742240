"""The JSON configuration of a hook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tensortrial.hooks.pytorch as tt  # noqa: E402
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration  # noqa: E402
from tensortrial.hooks.core import json_config  # noqa: E402
from tensortrial.hooks.core.json_config import read_configuration  # noqa: E402
from tensortrial.mode import modes  # noqa: E402

WHEN = {"save_interval": "7", "save_steps": "1, 2", "start_step": "3", "end_step": "9"}
MODES = ("train", "eval", "predict", "global")


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(document: Any, name: str = "hook.json") -> str:
        if isinstance(document, dict):
            document = {"LocalPath": str(tmp_path / "run"), **document}
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


@pytest.fixture
def hook_of(write: Any) -> Any:
    made = []

    def hook_of(**document: Any) -> Any:
        made.append(tt.Hook.create_from_json_file(write(document)))
        return made[-1]

    yield hook_of
    for hook in made:
        hook.close()


def when(config: Any, mode: Any = modes.TRAIN) -> tuple[Any, ...]:
    of_mode = config.get_save_config(mode)
    return of_mode.save_interval, of_mode.save_steps, of_mode.start_step, of_mode.end_step


class TestEveryKey:
    def test_every_key_of_a_hook_is_read(self, hook_of: Any) -> None:
        parameters = {
            "dry_run": "True",
            "save_all": "true",
            "include_workers": "all",
            "include_regex": "relu, tanh",
            "reductions": "min,abs_max,l1,abs_l2_norm",
            "save_raw_tensor": "True",
            "save_shape": "False",
            "export_tensorboard": "False",
            "tensorboard_dir": None,
            **WHEN,
        }
        hook = hook_of(HookParameters=parameters)
        assert hook.get_collection("default").include_regex == ["relu", "tanh"]
        assert hook.recorder.collections.saved_names == ["all", "default", "losses"]
        assert hook.reduction_config == tt.ReductionConfig(["min"], ["max"], ["l1"], ["l2"], save_raw_tensor=True)
        assert all(when(hook.save_config, mode) == (7, [1, 2], 3, 9) for mode in modes)
        assert not hook.recorder.active
        assert tt.get_hook() is hook

    @pytest.mark.parametrize("mode", MODES)
    def test_every_key_with_a_mode_is_read(self, hook_of: Any, mode: str) -> None:
        prefixed = {f"{mode}.{key}": value for key, value in WHEN.items()}
        hook = hook_of(
            HookParameters=prefixed,
            CollectionConfigurations=[
                {"CollectionName": "weights", "CollectionParameters": {f"{mode}.save_interval": 70}},
                {"CollectionName": "biases"},
            ],
        )
        for each in modes:
            mine = each.name.lower() == mode
            assert when(hook.save_config, each) == ((7, [1, 2], 3, 9) if mine else (500, [], 0, None))
            collection = hook.get_collection("weights").save_config
            assert when(collection, each) == ((70, [1, 2], 3, 9) if mine else (500, [], 0, None))
        assert hook.get_collection("biases").save_config == hook.save_config

    def test_every_key_of_a_collection_is_read(self, hook_of: Any) -> None:
        parameters = {
            "include_regex": ["relu"],
            "save_histogram": "True",
            "reductions": ["mean", "abs_l1"],
            "save_raw_tensor": False,
            "save_shape": True,
            "save_interval": 7,
            "save_steps": [1, 2],
            "start_step": 3,
            "end_step": 9,
        }
        hook = hook_of(CollectionConfigurations=[{"CollectionName": "mine", "CollectionParameters": parameters}])
        mine = hook.get_collection("mine", create=False)
        assert mine.include_regex == ["relu"]
        assert mine.save_histogram is True
        assert mine.reduction_config == tt.ReductionConfig(["mean"], abs_norms=["l1"], save_shape=True)
        assert when(mine.save_config) == (7, [1, 2], 3, 9)
        assert hook.recorder.collections.saved_names == ["losses", "mine"]

    @pytest.mark.parametrize("empty", [None, {}])
    def test_every_key_may_be_missing(self, hook_of: Any, empty: Any) -> None:
        hook = hook_of(HookParameters=empty, CollectionConfigurations=None)
        assert when(hook.save_config) == (500, [], 0, None)
        assert hook.reduction_config == tt.ReductionConfig()

    def test_end_step_0_switches_a_default_collection_off(self, hook_of: Any) -> None:
        hook = hook_of(CollectionConfigurations=[{"CollectionName": "losses", "CollectionParameters": {"end_step": 0}}])
        hook.recorder.begin_step()
        assert not hook.recorder.saving


class TestLayers:
    def test_a_later_layer_overrides_an_earlier_one(self, hook_of: Any) -> None:
        hook = hook_of(
            HookParameters={"save_interval": 1, "start_step": 1, "train.save_interval": 2, "eval.start_step": 2},
            CollectionConfigurations=[
                {"CollectionName": "weights", "CollectionParameters": {"save_interval": 3, "train.start_step": 4}},
            ],
        )
        assert when(hook.save_config, modes.TRAIN) == (2, [], 1, None)
        assert when(hook.save_config, modes.EVAL) == (1, [], 2, None)
        weights = hook.get_collection("weights").save_config
        # A collection's plain key is above the hook's key of a mode.
        assert when(weights, modes.TRAIN) == (3, [], 4, None)
        assert when(weights, modes.EVAL) == (3, [], 2, None)

    def test_a_collection_without_reductions_takes_the_hooks(self, hook_of: Any) -> None:
        hook = hook_of(HookParameters={"reductions": "min"}, CollectionConfigurations=[{"CollectionName": "weights"}])
        assert hook.get_collection("weights").reduction_config is None
        assert hook.reduction_config.statistics == ("min",)


class TestWhere:
    def test_the_variable_names_the_file(self, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", write({"HookParameters": {"save_interval": 3}}))
        assert when(read_configuration().arguments["save_config"])[0] == 3

    def test_the_argument_overrides_the_variable(self, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", "/nowhere")
        assert read_configuration(write({})).arguments["include_workers"] == "one"

    def test_sagemakers_path_is_the_default(self, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_config, "DEFAULT_PATH", write({"HookParameters": {"save_interval": 4}}))
        assert when(read_configuration().arguments["save_config"])[0] == 4

    def test_s3_is_used_without_a_local_path(self, write: Any) -> None:
        path = write({"LocalPath": None, "S3OutputPath": "s3://bucket/run"})
        assert read_configuration(path).arguments["out_dir"] == "s3://bucket/run"


class TestRefused:
    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"nowhere\.json.*cannot be read"):
            read_configuration(str(tmp_path / "nowhere.json"))

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            ("{", "not JSON"),
            ("[]", "JSON object"),
            ('{"LocalPath": ""}', "neither LocalPath nor S3OutputPath"),
            ({"HookParameter": {}}, "'HookParameter'.*did you mean 'HookParameters'"),
            ({"HookParameters": {"save_intervall": 1}}, "did you mean 'save_interval'"),
            ({"HookParameters": {"train.save_step": 1}}, r"did you mean 'train\.save_steps'"),
            ({"HookParameters": {"save_interval": "often"}}, "save_interval must be an integer"),
            ({"HookParameters": {"reductions": "min,maximum"}}, "max"),
            ({"HookParameters": {"dry_run": "maybe"}}, "dry_run must be true or false"),
            ({"HookParameters": []}, "HookParameters must be a JSON object"),
            ({"CollectionConfigurations": ["weights"]}, "needs a CollectionName"),
            ({"CollectionConfigurations": {"CollectionName": "x"}}, "CollectionConfigurations must be a list"),
            (
                {"CollectionConfigurations": [{"CollectionName": "x", "Parameters": {}}]},
                "did you mean 'CollectionParameters'",
            ),
        ],
        ids=str,
    )
    def test_the_error_of_a_bad_file_names_it(self, write: Any, document: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message) as caught:
            read_configuration(write(document))
        assert "hook.json" in str(caught.value)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"save_histograms": "True"}, "did you mean 'save_histogram'"),
            ({"dry_run": "True"}, "unknown key 'dry_run'"),
        ],
    )
    def test_an_unknown_key_of_a_collection_is_refused_with_its_name(
        self, write: Any, parameters: Any, message: str
    ) -> None:
        entry = {"CollectionName": "mine", "CollectionParameters": parameters}
        with pytest.raises(InvalidCollectionConfiguration, match=message) as caught:
            read_configuration(write({"CollectionConfigurations": [entry]}))
        assert caught.value.name == "mine"
        assert str(caught.value).startswith("collection 'mine': unknown key")

    def test_a_bad_regex_is_refused_with_its_collection(self, write: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"'\(relu'"):
            tt.Hook.create_from_json_file(write({"HookParameters": {"include_regex": "(relu"}}))
        entry = {"CollectionName": "mine", "CollectionParameters": {"include_regex": "(relu"}}
        with pytest.raises(InvalidCollectionConfiguration, match=r"mine.*'\(relu'"):
            tt.Hook.create_from_json_file(write({"CollectionConfigurations": [entry]}))
        assert tt.get_hook() is None


def test_metadata_is_kept_as_json(tmp_path: Path) -> None:
    import numpy as np
    import torch

    metadata = {
        "lr": np.float32(0.5),
        "layers": np.array([3, 4]),
        "decay": torch.tensor(0.25),
        "bad": float("nan"),
        "at": tmp_path,
        7: {"deep": (np.int64(1),)},
    }
    with_metadata = tt.Hook(tmp_path / "run", metadata=metadata)
    with_metadata.register_module(torch.nn.Linear(2, 2))
    with_metadata.save_scalar("loss", 1.0)
    with_metadata.close()
    kept = tt.create_trial(tmp_path / "run").info.metadata
    assert kept == {
        "lr": 0.5,
        "layers": [3, 4],
        "decay": 0.25,
        "bad": "nan",
        "at": str(tmp_path),
        "7": {"deep": [1]},
    }
    with pytest.raises(ConfigurationError, match="metadata must be a mapping"):
        tt.Hook(tmp_path / "other", metadata=5)  # type: ignore[arg-type]
