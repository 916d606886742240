"""What scripts for smdebug ask of hooks, trials, tensors, rules and configurations."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from support.runs import Job  # noqa: E402
from support.servers import ObjectStore  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.hooks.core import current_hook  # noqa: E402
from tensortrial.read.opening import no_refresh  # noqa: E402
from tensortrial.smdebug.rules import Rule, invoke_rule  # noqa: E402
from tensortrial.smdebug.trials import LocalTrial, S3Trial, Trial, create_trial  # noqa: E402

smd = importlib.import_module("smdebug.pytorch")


@pytest.fixture(autouse=True)
def _no_hook() -> Iterator[None]:
    yield
    current_hook.del_hook()


def make_hook(out: Path, **options: Any) -> Any:
    options.setdefault("save_config", smd.SaveConfig(save_interval=2))
    return smd.Hook(str(out), **options)


def train(hook: Any, steps: int = 5) -> None:
    model, loss = nn.Linear(4, 1), nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss)
    hook.set_mode(smd.modes.TRAIN)
    for _ in range(steps):
        loss(model(torch.ones(3, 4)), torch.ones(3, 1)).backward()


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    hook = make_hook(tmp_path / "run", include_collections=["weights"])
    train(hook)
    hook.save_scalar("acc", 0.5)
    hook.close()
    return create_trial(str(tmp_path / "run"))


class TestHook:
    def test_a_hook_has_what_scripts_ask_of_it(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run", save_all=["true"], include_regex="relu")
        assert (hook.save_all, hook.include_regex, hook.has_default_configuration()) == (True, ["relu"], False)
        assert isinstance(hook.logger, logging.Logger)
        hook.export_collections()
        train(hook, 1)
        hook._write_raw_tensor_simple("raw", np.ones(2))
        assert hook.collection_manager.get("losses").tensor_names == {"MSELoss_output_0"}
        hook.close()
        assert {"raw", "MSELoss_output_0"} <= set(create_trial(str(tmp_path / "run")).tensor_names())

    def test_a_script_that_sets_its_step_continues_a_crashed_run(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=1))
        train(hook, 3)
        hook.close()
        (tmp_path / "run" / "end" / "worker_0.json").unlink()
        again = make_hook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=1))
        again.step = 2
        train(again, 2)
        again.close()
        assert create_trial(str(tmp_path / "run")).steps(smd.modes.TRAIN) == [0, 1, 2, 3, 4]

    def test_steps_are_numbers(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run")
        assert (hook.step, hook.last_saved_step, hook.mode_steps) == (-1, None, {smd.modes.GLOBAL: -1})
        train(hook, 4)
        assert hook.step == 3
        assert hook.step % 2 == 1
        assert f"step {hook.step}" == "step 3"
        assert hook.mode_steps == {smd.modes.TRAIN: 3, smd.modes.GLOBAL: 3}
        assert hook.last_saved_step == 2
        hook.last_saved_step = hook.step
        with hook.step():
            pass
        assert hook.step == 4
        with hook.step(step=7, mode=smd.modes.EVAL):
            pass
        assert hook.mode_steps[smd.modes.EVAL] == 7

    def test_a_step_is_saved_in_a_checkpoint_as_a_plain_number(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run")
        train(hook, 2)
        torch.save({"step": hook.step}, tmp_path / "checkpoint.pt")
        assert torch.load(tmp_path / "checkpoint.pt", weights_only=True) == {"step": 1}
        assert type(copy.deepcopy(hook.step)) is int
        assert json.dumps(hook.step) == f"{hook.step:d}" == "1"

    def test_a_step_that_is_set_before_training_is_gone_on_from(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=1))
        hook.set_mode(smd.modes.TRAIN)
        hook.step = 9
        train(hook, 2)
        hook.step = 3
        assert hook.step == 11
        hook.close()
        assert create_trial(tmp_path / "run").steps(smd.modes.TRAIN) == [10, 11]

    def test_the_constructors_arguments_are_attributes(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run", include_collections=["weights"], export_tensorboard=True)
        assert hook.out_dir == str(tmp_path / "run")
        assert hook.tensorboard_dir == str(tmp_path / "run" / "tensorboard")
        assert hook.export_tensorboard is True
        assert hook.save_all is hook.dry_run is False
        assert hook.include_collections == ["losses", "weights"]
        assert (hook.worker, hook.mode) == ("worker_0", smd.modes.GLOBAL)
        assert hook.collection_manager.get("weights") is hook.get_collection("weights")
        hook.include_collections = ["biases"]
        assert hook.include_collections == ["biases", "losses", "weights"]
        other = make_hook(tmp_path / "other", tensorboard_dir=str(tmp_path / "boards"), save_all=True)
        assert other.tensorboard_dir == str(tmp_path / "boards")
        assert other.save_all is True
        assert make_hook(tmp_path / "third").tensorboard_dir is None

    def test_an_assigned_collection_that_is_empty_is_one_warning(self, tmp_path: Path, caplog: Any) -> None:
        hook = make_hook(tmp_path / "run")
        hook.include_collections = ["mine"]
        train(hook)
        hook.close()
        assert len([message for message in caplog.messages if "'mine' of include_collections" in message]) == 1

    def test_assigned_configurations_are_followed(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run", include_collections=["weights", "biases"])
        own = hook.get_collection("biases").save_config = smd.SaveConfig(save_interval=4)
        hook.save_config = smd.SaveConfig(save_interval=3)
        hook.reduction_config = smd.ReductionConfig(reductions=["mean"])
        hook.add_collection(smd.Collection("mine", include_regex=["gradient/.*weight"]))
        hook.include_collections = "mine"
        assert hook.get_collection("biases").save_config is own
        assert hook.save_config.get_save_config(smd.modes.TRAIN).save_interval == 3
        train(hook, 7)
        hook.close()
        trial = create_trial(tmp_path / "run")
        assert trial.tensor("Linear_bias").steps() == [0, 4]
        assert trial.tensor("Linear_weight").steps() == trial.tensor("gradient/Linear_weight").steps() == [0, 3, 6]
        assert list(trial.tensor("Linear_weight").reduction_values(0)) == [("mean", False)]

    def test_a_configuration_may_be_assigned_while_training(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run", include_collections=["weights"])
        train(hook, 2)
        hook.save_config = smd.SaveConfig(save_steps=[3], save_interval=100)
        hook.reduction_config = smd.ReductionConfig(reductions=["max"])
        model, loss = nn.Linear(4, 1), nn.MSELoss()
        hook.register_module(model)
        for _ in range(2):
            loss(model(torch.ones(3, 4)), torch.ones(3, 1)).backward()
        hook.close()
        trial = create_trial(tmp_path / "run")
        assert trial.steps() == [0, 3]
        assert list(trial.tensor("Linear_1_weight").reduction_values(3)) == [("max", False)]

    @pytest.mark.parametrize(
        ("attribute", "value", "message"),
        [
            ("step", "soon", "invalid literal"),
            ("save_config", 3, "save_config must be a SaveConfig"),
            ("reduction_config", "mean", "reduction_config"),
            ("include_collections", 3, "include_collections must be a list"),
            ("include_collections", [None], "a name must be text"),
            ("save_all", "maybe", "save_all must be true or false"),
            ("dry_run", True, "pass it when the hook is made"),
            ("export_tensorboard", True, "pass it when the hook is made"),
            ("tensorboard_dir", "boards", "pass it when the hook is made"),
        ],
    )
    def test_no_assignment_ends_training(
        self,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        attribute: str,
        value: Any,
        message: str,
    ) -> None:
        monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)
        hook = make_hook(tmp_path / "run", include_collections=["weights"])
        setattr(hook, attribute, value)
        train(hook, 3)
        hook.close()
        assert f"hook.{attribute} = {value!r} had no effect: " in caplog.text
        assert message in caplog.text
        assert create_trial(tmp_path / "run").tensor("Linear_weight").steps() == [0, 2]

    def test_a_call_with_wrong_arguments_is_a_warning(self, tmp_path: Path, caplog: Any) -> None:
        hook = make_hook(tmp_path / "run")
        hook.save_scalar("lr", 0.1, sm_metrics=True)
        hook.record_tensor_value("x")
        assert "save_scalar had no effect" in caplog.text
        assert "record_tensor_value had no effect" in caplog.text
        train(hook)
        hook.close()
        assert create_trial(tmp_path / "run").tensor_names() == ["MSELoss_output_0"]

    def test_get_hook_takes_the_path_of_a_configuration_first(self, tmp_path: Path) -> None:
        (tmp_path / "hook.json").write_text(json.dumps({"LocalPath": str(tmp_path / "run")}))
        hook = smd.get_hook(str(tmp_path / "hook.json"), True)
        assert isinstance(hook, smd.Hook)
        assert hook.out_dir == str(tmp_path / "run")

    def test_get_hook_of_xgboost_makes_a_hook_by_itself(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("xgboost")
        smd_xgboost = importlib.import_module("smdebug.xgboost")

        (tmp_path / "hook.json").write_text(json.dumps({"LocalPath": str(tmp_path / "run")}))
        monkeypatch.delenv("SMDEBUG_CONFIG_FILE_PATH", raising=False)
        assert smd_xgboost.get_hook() is None
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "hook.json"))
        assert smd.get_hook() is None
        assert isinstance(smd_xgboost.get_hook(), smd_xgboost.Hook)

    def test_a_copy_of_a_hook_saves_nothing(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run")
        for twin in (copy.deepcopy(hook), pickle.loads(pickle.dumps(hook))):
            assert not twin.recorder.active


class TestTrial:
    def test_its_further_attributes(self, trial: Trial) -> None:
        assert trial.last_complete_step == 4
        assert trial.refresh_data() is trial.maybe_refresh() is None
        assert trial._global_to_mode[2] == (smd.modes.TRAIN, 2)
        assert trial.tensor("Linear_weight").original_name is None
        assert trial.tensor("Linear_weight").prev_steps(4, None) == [0, 2, 4]

    def test_an_empty_run_has_no_complete_step(self, tmp_path: Path) -> None:
        hook = make_hook(tmp_path / "run")
        hook.recorder.begin_step()
        assert create_trial(tmp_path / "run").last_complete_step == -1

    def test_trials_of_one_path_are_equal(self, trial: Trial) -> None:
        again = create_trial(f" {trial.path}/ \n", name="other")
        assert again == trial
        assert {again: 1} == {trial: 1}

    def test_a_new_collection_matches_names(self, trial: Trial) -> None:
        collection = trial.collection("new")
        collection.include("weight")
        assert trial.collection("new") is trial.collections()["new"] is collection
        assert trial.tensor_names(collection="new") == trial.tensor_names(collection=collection) == ["Linear_weight"]
        assert trial.collection("losses").tensor_names == {"MSELoss_output_0"}

    def test_a_mode_may_be_text(self, trial: Trial) -> None:
        assert trial.steps("Train") == trial.steps(1) == trial.steps(smd.modes.TRAIN)

    def test_the_name_of_a_collection_must_be_text(self, trial: Trial) -> None:
        with pytest.raises(ConfigurationError, match="its name must be text"):
            trial.collection(5)
        assert trial.tensor_names(collection="loses") == []

    def test_names_that_only_the_documents_have(self, trial: Trial) -> None:
        assert smd.create_trial(out_dir=trial.path) == trial
        assert trial.tensors(collection="weights") == ["Linear_weight"]

    def test_an_argument_is_ignored_only_if_smdebug_had_it(self, trial: Trial) -> None:
        assert create_trial(trial.path, profiler=True, output_dir="x") == trial
        makers: tuple[Any, Any] = (create_trial, Trial)
        for make in makers:
            with pytest.raises(TypeError, match="unexpected keyword argument 'range_step'"):
                make(trial.path, range_step=(0, 3))
        with pytest.raises(ConfigurationError, match="a run's location must be a path or a URL, got None"):
            create_trial(None)

    def test_it_can_be_made_by_its_class(self, trial: Trial) -> None:
        local = LocalTrial("mine", trial.path, range_steps=(0, 3))
        assert (local.name, local.steps(), isinstance(trial, LocalTrial)) == ("mine", [0, 2], True)
        copied = pickle.loads(pickle.dumps(local))
        assert (type(copied), copied.name, copied.steps()) == (LocalTrial, "mine", [0, 2])
        assert copied.collection("new").name == "new"

    @pytest.mark.s3
    def test_a_url_of_s3_is_an_s3_trial(self, moto_s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", moto_s3.endpoint_url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto_s3.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto_s3.secret)
        url = f"{moto_s3.new_bucket()}/a/b"
        with Job(url, storage_options=moto_s3.storage_options) as job:
            job.step({"x": 1.0})
        opened = create_trial(url)
        assert (type(opened), opened.name, opened.steps()) == (S3Trial, "b", [0])


class TestConfigurations:
    def test_json_is_text_and_dictionaries_are_read(self) -> None:
        config = smd.SaveConfig(save_interval=3)
        assert json.loads(config.to_json())["TRAIN"]["save_interval"] == 3
        assert smd.SaveConfig.from_dict(config.to_json_dict()) == config
        assert config.mode_save_configs[smd.modes.EVAL].to_json_dict()["save_interval"] == 3
        reductions = smd.ReductionConfig(reductions=["min"], norms=["l2"])
        assert smd.ReductionConfig.from_json(reductions.to_json()) == reductions

    def test_a_collection_takes_names(self, tmp_path: Path) -> None:
        collection = make_hook(tmp_path / "run").get_collection("mine")
        collection.add_tensor_name("x")
        assert collection.to_json_dict()["tensor_names"] == ["x"]
        assert isinstance(collection.to_json(), str)


class Large(Rule):
    def __init__(self, base_trial: Trial, threshold: str = "0.1") -> None:
        super().__init__(base_trial, action_str="", other_trials=None)
        self.threshold = float(threshold)

    def invoke_at_step(self, step: int) -> bool:
        value = self.base_trial.tensor("MSELoss_output_0").reduction_value(step, "max")
        self.report["Datapoints"] += 1
        self.report["Details"][step] = float(value)
        self.logger.warning("step %d: %s", step, value)
        return bool(value > self.threshold)


class TestRule:
    def test_report_is_a_dictionary_and_there_is_a_logger(self, trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
        rule = Large(trial, threshold="1e6")
        invoke_rule(rule)
        assert rule.report["Datapoints"] == 3
        assert list(rule.report["Details"]) == [0, 2, 4]
        assert isinstance(rule.logger, logging.Logger)
        assert len([each for each in caplog.messages if each.startswith("step ")]) == 3

    def test_findings_are_returned_and_report_can_be_called(self, trial: Trial) -> None:
        class Said(Large):
            def invoke_at_step(self, step: int) -> bool:
                self.report("it is large", tensor="x", observed=1.0)
                return step == 2

        (finding,) = invoke_rule(Said(trial), record=False)
        assert (finding.step, finding.sentence, finding.tensor) == (2, "it is large", "x")


def test_every_argument_may_be_passed_by_its_name_in_the_documents(tmp_path: Path) -> None:
    """As the tables of smdebug's hook, trial and tensor name them."""
    model, loss = nn.Linear(4, 1), nn.MSELoss()
    config = smd.SaveConfig(mode_save_configs=None, save_interval=1, start_step=0, end_step=None, save_steps=None)
    reductions = smd.ReductionConfig(
        reductions=["mean"], abs_reductions=["max"], norms=["l1"], abs_norms=["l2"], save_raw_tensor=True
    )
    hook = smd.Hook(
        out_dir=str(tmp_path / "run"),
        export_tensorboard=False,
        tensorboard_dir=None,
        dry_run=False,
        reduction_config=reductions,
        save_config=config,
        include_regex=["bias"],
        include_collections=["weights"],
        save_all=False,
        include_workers="one",
    )
    mine = hook.get_collection(name="mine")
    mine.include(regex="^mine")
    mine.add_module_tensors(module=model, inputs=True, outputs=True)
    hook.add_collection(collection=mine)
    hook.include_collections = ["mine"]
    hook.register_module(module=model)
    hook.register_loss(loss_module=loss)
    hook.set_mode(smd.modes.TRAIN)
    x = torch.arange(12.0).reshape(3, 4)
    output = model(x)
    loss(output, torch.ones(3, 1)).backward()
    hook.save_tensor(tensor_name="mine", tensor_value=np.arange(4.0), collections_to_write=["mine"])
    hook.save_scalar(name="acc", value=0.5, sm_metric=True)
    hook.record_tensor_value(tensor_name="recorded_loss", tensor_value=torch.tensor(3.0))
    hook.close()

    trial = create_trial(path=str(tmp_path / "run"), name="job", range_steps=(0, 10))
    train = smd.modes.TRAIN
    assert trial.has_tensor(tname="mine")
    found = trial.tensor_names(show_prefixed_tensors=False, step=0, mode=train, collection="mine")
    assert found == ["Linear_input_0", "Linear_output_0", "mine"]
    assert trial.tensor_names(regex="acc") == ["scalar/acc"]
    assert trial.steps(mode=train, show_incomplete_steps=False) == [0]
    assert trial.global_step(mode=train, mode_step=0) == trial.mode_step(global_step=0) == 0
    assert (trial.mode(global_step=0), trial.modes()) == (train, [train])
    assert trial.collection(coll_name="mine").name == "mine"
    trial.wait_for_steps(required_steps=[0], mode=train)
    assert trial.has_passed_step(step=0, mode=train).name == "AVAILABLE"

    tensor = trial.tensor(tname="mine")
    at = {"step_num": 0, "mode": train, "worker": "worker_0"}
    assert tensor.value(**at).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert trial.tensor(tname="Linear_input_0").value(**at).tolist() == x.tolist()
    assert np.array_equal(trial.tensor(tname="Linear_output_0").value(**at), output.detach().numpy())
    assert float(tensor.reduction_value(reduction_name="mean", abs=False, **at)) == 1.5
    assert {key: float(each) for key, each in tensor.reduction_values(**at).items()} == {
        ("mean", False): 1.5,
        ("max", True): 3.0,
        ("l1", False): 6.0,
        ("l2", True): pytest.approx(14**0.5),
    }
    assert tensor.shape(**at) == (4,)
    assert list(tensor.values(mode=train, worker="worker_0")) == [0]
    assert tensor.shapes(mode=train, worker="worker_0") == {0: (4,)}
    assert tensor.workers(step_num=0, mode=train) == ["worker_0"]
    assert tensor.prev_steps(step=0, n=2, mode=train) == [0]
    with no_refresh(trials=[trial]) as [inside]:
        assert inside is trial
    assert invoke_rule(rule_obj=Large(trial, threshold="1e9"), start_step=0, end_step=None, raise_eval_cond=False) == []
    assert trial.tensor(tname="recorded_loss_output_0").value(**at).item() == 3.0
