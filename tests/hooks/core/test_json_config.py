"""The JSON configuration of a hook."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration, RunExists  # noqa: E402
from tensortrial.hooks.core.configuration import sagemaker  # noqa: E402
from tensortrial.hooks.core.configuration.json_config import read_configuration  # noqa: E402
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
            "digest": "true",
            "axis": "0",
            "quantiles": "true",
            "export_tensorboard": "False",
            "tensorboard_dir": None,
            **WHEN,
        }
        hook = hook_of(HookParameters=parameters)
        assert hook.get_collection("default").include_regex == ["relu", "tanh"]
        assert hook.recorder.collections.saved_names == ["all", "default", "losses"]
        assert hook.reduction_config == tt.ReductionConfig(
            ["min"], ["max"], ["l1"], ["l2"], True, digest=True, axis=0, quantiles=True
        )
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
            "digest": True,
            "axis": -1,
            "save_interval": 7,
            "save_steps": [1, 2],
            "start_step": 3,
            "end_step": 9,
        }
        hook = hook_of(CollectionConfigurations=[{"CollectionName": "mine", "CollectionParameters": parameters}])
        mine = hook.get_collection("mine", create=False)
        assert mine.include_regex == ["relu"]
        assert mine.save_histogram is True
        assert mine.reduction_config == tt.ReductionConfig(
            ["mean"], abs_norms=["l1"], save_shape=True, digest=True, axis=-1
        )
        assert when(mine.save_config) == (7, [1, 2], 3, 9)
        assert hook.recorder.collections.saved_names == ["losses", "mine"]

    @pytest.mark.parametrize("empty", [None, {}])
    def test_every_key_may_be_missing(self, hook_of: Any, empty: Any) -> None:
        hook = hook_of(HookParameters=empty, CollectionConfigurations=None)
        assert when(hook.save_config) == (500, [], 0, None)
        assert hook.reduction_config == tt.ReductionConfig()


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
    """The place of the configuration. SageMaker's own paths belong to the machine, so tests replace them."""

    def test_sagemakers_path_is_the_default(self, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sagemaker, "HOOK_CONFIGURATION", write({"HookParameters": {"save_interval": 4}}))
        assert when(read_configuration().arguments["save_config"])[0] == 4

    @pytest.mark.parametrize("document", [{}, {"S3OutputPath": "s3://bucket/run"}], ids=str)
    def test_sagemakers_folder_is_used_without_a_local_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any
    ) -> None:
        (tmp_path / "hook.json").write_text(json.dumps(document))
        monkeypatch.setattr(sagemaker, "OUTPUT_FOLDER", str(tmp_path / "tensors"))
        with pytest.raises(ConfigurationError, match=r"hook\.json.*no LocalPath"):
            read_configuration(str(tmp_path / "hook.json"))
        (tmp_path / "tensors").mkdir()
        assert read_configuration(str(tmp_path / "hook.json")).arguments["out_dir"] == str(tmp_path / "tensors")

    def test_the_error_without_a_folder_names_the_way_to_save_to_s3(self, tmp_path: Path) -> None:
        (tmp_path / "hook.json").write_text('{"S3OutputPath": "s3://bucket/run"}')
        with pytest.raises(ConfigurationError, match="set LocalPath to 's3://bucket/run'"):
            read_configuration(str(tmp_path / "hook.json"))


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("document", "warning"),
        [
            ({"S3Path": "s3://bucket/run"}, "'S3Path' in .*hook.json is unknown and ignored.*'S3OutputPath'"),
            ({"HookParameter": {}}, "'HookParameter'.*did you mean 'HookParameters'"),
            ({"HookParameters": {"save_intervall": 1}}, "'save_intervall' in HookParameters of .*'save_interval'"),
            ({"HookParameters": {"train.save_step": 1}}, r"did you mean 'train\.save_steps'"),
            ({"CollectionConfigurations": [{"CollectionName": "x", "Parameters": {}}]}, "'CollectionParameters'"),
            (
                {"CollectionConfigurations": [{"CollectionName": "x", "CollectionParameters": {"save_histograms": 1}}]},
                "'save_histograms' in CollectionParameters of .*'save_histogram'",
            ),
        ],
        ids=str,
    )
    def test_an_unknown_key_is_a_warning_that_names_the_nearest(
        self, write: Any, caplog: pytest.LogCaptureFixture, document: Any, warning: str
    ) -> None:
        known = read_configuration(write({}))
        assert not caplog.messages
        assert read_configuration(write(document)).arguments == known.arguments
        assert len(caplog.messages) == 1
        assert re.search(warning, caplog.messages[0])


class TestSpellings:
    @pytest.mark.parametrize("true", ["true", "True", True, ["true"], [True], "1", 1, " TRUE "], ids=repr)
    def test_true_is_read_in_every_spelling(self, write: Any, true: Any) -> None:
        document = {
            "HookParameters": {"save_all": true, "save_raw_tensor": true},
            "CollectionConfigurations": [{"CollectionName": "x", "CollectionParameters": {"save_histogram": true}}],
        }
        configuration = read_configuration(write(document))
        assert configuration.arguments["save_all"] is True
        assert configuration.arguments["reduction_config"].save_raw_tensor is True
        assert configuration.collections[0].save_histogram is True

    @pytest.mark.parametrize("false", ["false", "False", False, ["False"], "0", "", "None", None], ids=repr)
    def test_false_is_read_in_every_spelling(self, write: Any, false: Any) -> None:
        arguments = read_configuration(write({"HookParameters": {"save_all": false}})).arguments
        assert arguments["save_all"] is False

    @pytest.mark.parametrize("steps", ["0,10", "0, 10", [0, 10], ["0", "10"], "[0, 10]", "['0', '10']"], ids=repr)
    def test_a_list_is_read_in_every_spelling(self, write: Any, steps: Any) -> None:
        parameters = {"save_steps": steps, "eval.save_steps": steps}
        config = read_configuration(write({"HookParameters": parameters})).arguments["save_config"]
        assert when(config)[1] == [0, 10]
        assert when(config, modes.EVAL)[1] == [0, 10]

    @pytest.mark.parametrize("names", ["min,l2", ["min", "l2"], '["min", "l2"]', "['min','l2']"], ids=repr)
    def test_names_are_read_in_every_spelling(self, write: Any, names: Any) -> None:
        document = {"HookParameters": {"reductions": names}}
        assert read_configuration(write(document)).arguments["reduction_config"].statistics == ("min", "l2")

    @pytest.mark.parametrize(
        ("text", "regexes"),
        [
            ("relu, tanh", ["relu", "tanh"]),
            ('["relu", "tanh"]', ["relu", "tanh"]),
            ("[ab]$", ["[ab]$"]),
            ("[0]", ["[0]"]),
        ],
    )
    def test_a_regex_in_brackets_is_not_a_list(self, write: Any, text: str, regexes: list[str]) -> None:
        arguments = read_configuration(write({"HookParameters": {"include_regex": text}})).arguments
        assert arguments["include_regex"] == regexes

    @pytest.mark.parametrize("interval", ["5", 5, ["5"], "5 "], ids=repr)
    def test_a_number_is_read_in_every_spelling(self, write: Any, interval: Any) -> None:
        parameters = {"save_interval": interval, "end_step": "None"}
        config = read_configuration(write({"HookParameters": parameters})).arguments["save_config"]
        assert when(config) == (5, [], 0, None)


class TestSageMaker:
    @pytest.fixture
    def point_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def point_to(variable: str, document: Any) -> None:
            path = tmp_path / f"{variable}.json"
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            monkeypatch.setenv(variable, str(path))

        return point_to

    @pytest.mark.parametrize(
        ("document", "folder"),
        [({"LocalPath": "boards"}, "boards"), ({"S3OutputPath": "s3://b"}, "/opt/ml/output/tensorboard")],
    )
    def test_the_configuration_of_tensorboard_exports(
        self, write: Any, point_to: Any, document: Any, folder: str
    ) -> None:
        point_to("TENSORBOARD_CONFIG_FILE_PATH", document)
        arguments = read_configuration(write({"HookParameters": {"tensorboard_dir": "other"}})).arguments
        assert (arguments["export_tensorboard"], arguments["tensorboard_dir"]) == (True, folder)

    def test_event_files_are_written_where_tensorboard_is_configured(
        self, hook_of: Any, point_to: Any, tmp_path: Path
    ) -> None:
        point_to("TENSORBOARD_CONFIG_FILE_PATH", {"LocalPath": str(tmp_path / "boards")})
        hook = hook_of()
        hook.save_scalar("accuracy", 0.5)
        hook.close()
        assert list((tmp_path / "boards").rglob("*tfevents*"))

    @pytest.mark.parametrize("damaged", ["{", "[]"])
    def test_a_damaged_configuration_of_tensorboard_is_a_warning(
        self, write: Any, point_to: Any, caplog: pytest.LogCaptureFixture, damaged: str
    ) -> None:
        point_to("TENSORBOARD_CONFIG_FILE_PATH", damaged)
        assert read_configuration(write({})).arguments["export_tensorboard"] is False
        assert "TENSORBOARD_CONFIG_FILE_PATH.json cannot be read and is ignored" in caplog.text

    @pytest.mark.parametrize("variable", ["TENSORBOARD_CONFIG_FILE_PATH", "CHECKPOINT_CONFIG_FILE_PATH"])
    def test_a_missing_configuration_is_one_warning(
        self,
        write: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        variable: str,
    ) -> None:
        path = tmp_path / "nowhere.json"
        monkeypatch.setenv(variable, str(path))
        assert read_configuration(write({})).arguments["export_tensorboard"] is False
        tt.Hook.create_from_json_file(write({"LocalPath": str(tmp_path / "run")})).close()
        assert caplog.text.count(f"{variable} names the file {path}, which does not exist") == 1

    def test_a_job_that_continues_from_a_checkpoint_continues_its_run(
        self, write: Any, point_to: Any, tmp_path: Path
    ) -> None:
        def train() -> list[int]:
            hook = tt.Hook.create_from_json_file(write({}))
            hook.save_scalar("accuracy", 0.5)
            return closed(hook).steps()

        checkpoints = tmp_path / "checkpoints"
        checkpoints.mkdir()
        point_to("CHECKPOINT_CONFIG_FILE_PATH", {"S3Uri": "s3://bucket/job", "LocalPath": str(checkpoints)})
        assert train() == [0]
        with pytest.raises(RunExists):
            train()
        (checkpoints / "model.pt").write_text("")
        assert train() == [0, 1]


class TestRefused:
    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"nowhere\.json.*cannot be read"):
            read_configuration(str(tmp_path / "nowhere.json"))

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            ("{", "not JSON"),
            ("[]", "JSON object"),
            ('{"LocalPath": ""}', "no LocalPath, and SageMaker's folder .* does not exist"),
            ({"HookParameters": {"save_interval": "often"}}, "save_interval must be an integer"),
            ({"HookParameters": {"reductions": "min,maximum"}}, "max"),
            ({"HookParameters": {"dry_run": "maybe"}}, "dry_run must be true or false"),
            ({"HookParameters": []}, "HookParameters must be a JSON object"),
            ({"CollectionConfigurations": ["weights"]}, "needs a CollectionName"),
            ({"CollectionConfigurations": {"CollectionName": "x"}}, "CollectionConfigurations must be a list"),
        ],
        ids=str,
    )
    def test_the_error_of_a_bad_file_names_it(self, write: Any, document: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message) as caught:
            read_configuration(write(document))
        assert "hook.json" in str(caught.value)

    def test_a_bad_regex_is_refused_with_its_collection(self, write: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"'\(relu'"):
            tt.Hook.create_from_json_file(write({"HookParameters": {"include_regex": "(relu"}}))
        entry = {"CollectionName": "mine", "CollectionParameters": {"include_regex": "(relu"}}
        with pytest.raises(InvalidCollectionConfiguration, match=r"mine.*'\(relu'"):
            tt.Hook.create_from_json_file(write({"CollectionConfigurations": [entry]}))
        assert tt.get_hook() is None
