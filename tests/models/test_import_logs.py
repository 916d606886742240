"""The logs that Lightning's CSVLogger and the Trainer of transformers wrote here, imported."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from sklearn.datasets import load_digits

import tensortrial
from support.imported_runs import import_quietly, interrupt_import, metadata, values
from tensortrial.cli import main
from tensortrial.errors import CorruptFile, RunNotFound
from tensortrial.importers import lightning as csv_logs
from tensortrial.importers import transformers as trainer_logs

# Lightning's own, of small trainings on a processor.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
]


@pytest.fixture(scope="module")
def lightning_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions that CSVLogger wrote for real trainings."""
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    class Net(lightning.LightningModule):
        def __init__(self, width: int, sizes: tuple[int, ...]) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))

        def training_step(self, batch: Any, _: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train/loss", loss, on_step=True, on_epoch=True)
            self.log("odd", math.nan if self.global_step == 1 else math.inf)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val/loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    images, labels = load_digits(return_X_y=True)
    data = torch.utils.data.TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    folder = tmp_path_factory.mktemp("logs")
    for _ in range(2):
        trainer = lightning.Trainer(
            logger=CSVLogger(folder, flush_logs_every_n_steps=1),
            max_epochs=2,
            limit_train_batches=3,
            limit_val_batches=1,
            log_every_n_steps=1,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            num_sanity_val_steps=0,
        )
        loader = torch.utils.data.DataLoader(data, batch_size=32)
        trainer.fit(Net(8, (1, 2)), loader, loader)
    return folder / "lightning_logs"


class TestWhatCsvloggerWrote:
    def test_becomes_a_run_for_each_version(self, lightning_logs: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(csv_logs.import_runs, lightning_logs, tmp_path / "runs")
        assert [Path(run).name for run in runs] == ["version_0", "version_1"]
        found = tensortrial.open_runs(tmp_path / "runs")
        assert found.names == ["version_0", "version_1"]
        assert list(values(runs[0], "train/loss_step")) == [0, 1, 2, 3, 4, 5]
        assert list(values(runs[0], "val/loss")) == [2, 5]
        assert values(runs[0], "epoch") == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
        odd = values(runs[0], "odd")
        assert math.isnan(odd[1])
        assert odd[0] == math.inf

    def test_keeps_hyperparameters_of_which_no_object_is_made(self, lightning_logs: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(csv_logs.import_runs, lightning_logs, tmp_path / "runs")
        assert {key: metadata(runs[0])[key] for key in ("width", "sizes")} == {"width": 8, "sizes": [1, 2]}
        copy = Path(shutil.copytree(lightning_logs / "version_0", tmp_path / "hostile"))
        (copy / "hparams.yaml").write_text(f"a: !!python/object/apply:os.mkdir ['{tmp_path}/made']\nlr: .nan\n")
        (run,), _ = import_quietly(csv_logs.import_runs, copy, tmp_path / "run")
        assert metadata(run)["a"] == "object/apply:os.mkdir"
        assert metadata(run)["lr"] == "nan"
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("a: [", "this is not YAML"),
            ("&a [*a]", "this is not YAML: it contains itself"),
            ("- 1", "it must hold a mapping, and holds list"),
            ("[" * 5000, "this is not YAML"),
            ("a: " + "[" * 90 + "]" * 90, "nested more than 64 deep"),
            (
                "\n".join([f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else '1'] * 9)}]" for i in range(12)]),
                "repeat more than",
            ),
        ],
    )
    def test_is_imported_without_hyperparameters_that_are_damaged(
        self, lightning_logs: Path, tmp_path: Path, text: str, sentence: str
    ) -> None:
        copy = Path(shutil.copytree(lightning_logs / "version_0", tmp_path / "version_0"))
        (copy / "hparams.yaml").write_text(text)
        (run,), reported = import_quietly(csv_logs.import_runs, copy, tmp_path / "run")
        assert len(values(run, "train/loss_step")) == 6
        assert any(sentence in each and "hparams.yaml" in each for each in reported)

    def test_while_it_is_written_is_imported_but_for_its_last_line(self, lightning_logs: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(lightning_logs / "version_0", tmp_path / "version_0"))
        whole = (copy / "metrics.csv").read_bytes()
        (copy / "metrics.csv").write_bytes(whole[: whole.rstrip().rindex(b"\n") + 6])
        (run,), reported = import_quietly(csv_logs.import_runs, copy, tmp_path / "run")
        assert reported == [f"{copy}/metrics.csv: its last line, which is not written to its end"]
        assert list(values(run, "train/loss_step"))[:5] == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("", "it is empty: no metric was logged"),
            ("epoch,step", "it has no row"),
            ("epoch,step\n", "no number that could be imported"),
            ("epoch,loss\n0,1\n", "it has no column step, which CSVLogger writes"),
            ("epoch,step\n0,x\n", "column of steps holds string"),
            ("\0\n\0", "not text in UTF-8"),
        ],
    )
    def test_that_cannot_be_imported_is_refused(self, tmp_path: Path, text: str, sentence: str) -> None:
        (tmp_path / "log").mkdir()
        (tmp_path / "log/metrics.csv").write_text(text)
        with pytest.raises(CorruptFile, match=sentence) as caught:
            csv_logs.import_runs(tmp_path / "log", tmp_path / "run")
        assert str(tmp_path / "log") in str(caught.value)
        assert not (tmp_path / "run").exists()
        with pytest.raises(RunNotFound, match=r"no metrics\.csv"):
            csv_logs.import_runs(tmp_path / "nowhere", tmp_path / "run")

    def test_next_to_a_damaged_one_is_imported(self, lightning_logs: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(lightning_logs, tmp_path / "logs"))
        (copy / "version_0/metrics.csv").write_bytes(b"")
        runs, reported = import_quietly(csv_logs.import_runs, copy, tmp_path / "runs")
        assert [Path(run).name for run in runs] == ["version_1"]
        assert any("version_0/metrics.csv: it is empty" in sentence for sentence in reported)

    def test_continues_after_an_interruption(
        self, lightning_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            interrupt_import(patch, after=3)
            with pytest.raises(KeyboardInterrupt):
                import_quietly(csv_logs.import_runs, lightning_logs, tmp_path / "runs")
        assert not tensortrial.create_trial(str(tmp_path / "runs/version_0")).loaded_all_steps
        runs, _ = import_quietly(csv_logs.import_runs, lightning_logs, tmp_path / "runs")
        assert [len(values(run, "train/loss_step")) for run in runs] == [6, 6]

    def test_is_imported_by_the_command_line(self, lightning_logs: Path, tmp_path: Path) -> None:
        done = CliRunner().invoke(main, ["import", "lightning", str(lightning_logs), str(tmp_path / "runs")])
        assert done.exit_code == 0, done.output
        assert len(done.stdout.split()) == 2


@pytest.fixture(scope="module")
def output_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Trainer wrote in a real training, with two checkpoints."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    folder = tmp_path_factory.mktemp("trainer") / "output"
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "num_labels": 10,
    }
    model = BertForSequenceClassification(BertConfig(vocab_size=17, max_position_embeddings=64, **sizes))
    images, labels = load_digits(return_X_y=True)
    data = [
        {"input_ids": image.astype(np.int64), "labels": int(label)}
        for image, label in zip(images[:64], labels, strict=False)
    ]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=6,
        logging_steps=1,
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        per_device_train_batch_size=8,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:16]).train()
    return folder


class TestWhatTheTrainerWrote:
    def test_becomes_a_run_with_the_history_of_the_newest_checkpoint(self, output_dir: Path, tmp_path: Path) -> None:
        (run,), reported = import_quietly(
            trainer_logs.import_runs, output_dir, tmp_path / "run", metadata={"owner": "ann"}
        )
        assert run == str(tmp_path / "run")
        assert reported == []
        state = json.loads((output_dir / "checkpoint-6/trainer_state.json").read_text())
        logged = {entry["step"]: entry["loss"] for entry in state["log_history"] if "loss" in entry}
        assert values(run, "loss") == logged
        assert list(logged) == [1, 2, 3, 4, 5, 6]
        assert list(values(run, "eval_loss")) == [3, 6]
        assert {"learning_rate", "grad_norm", "epoch"} <= set(tensortrial.create_trial(run).tensor_names())
        about = metadata(run)
        assert about["trainer"]["max_steps"] == 6
        assert about["owner"] == "ann"

    def test_of_one_checkpoint_or_file_is_enough(self, output_dir: Path, tmp_path: Path) -> None:
        for number, source in enumerate([output_dir / "checkpoint-3", output_dir / "checkpoint-3/trainer_state.json"]):
            (run,), _ = import_quietly(trainer_logs.import_runs, source, tmp_path / str(number))
            assert list(values(run, "loss")) == [1, 2, 3]

    def test_of_several_trainings_is_a_run_each(self, output_dir: Path, tmp_path: Path) -> None:
        for name in ("a", "b/c"):
            shutil.copytree(output_dir, tmp_path / "all" / name)
        runs, _ = import_quietly(trainer_logs.import_runs, tmp_path / "all", tmp_path / "runs")
        assert runs == [str(tmp_path / "runs/a"), str(tmp_path / "runs/b/c")]

    def test_goes_on_with_a_later_checkpoint(self, output_dir: Path, tmp_path: Path) -> None:
        copy = tmp_path / "output"
        shutil.copytree(output_dir / "checkpoint-3", copy / "checkpoint-3")
        (run,), _ = import_quietly(trainer_logs.import_runs, copy, tmp_path / "run")
        shutil.copytree(output_dir / "checkpoint-6", copy / "checkpoint-6")
        import_quietly(trainer_logs.import_runs, copy, tmp_path / "run")
        assert list(values(run, "loss")) == [1, 2, 3, 4, 5, 6]

    def test_that_repeats_steps_or_holds_what_is_no_number_keeps_the_last(self, tmp_path: Path) -> None:
        history = [{"step": 2, "loss": math.nan}, {"step": 1, "loss": 3.0}, {"step": 1, "loss": 2.5, "note": "x"}]
        history += [
            {"loss": 1.0},
            {"step": -1, "loss": 1.0},
            {"step": 1.5, "loss": 1.0},
            {"step": [1], "loss": 10**400},
            5,
        ]
        (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "best_metric": math.nan}))
        (run,), reported = import_quietly(trainer_logs.import_runs, tmp_path, tmp_path / "run")
        loss = values(run, "loss")
        assert math.isnan(loss.pop(2))
        assert loss == {1: 2.5}
        assert len(reported) == 3
        assert metadata(run)["trainer"]["best_metric"] == "nan"

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("", "this is not JSON"),
            ('{"log_history": [{"step": 1, "lo', "this is not JSON"),
            ("[]", "lacks the list log_history"),
            ('{"log_history": {}}', "lacks the list log_history"),
            ('{"log_history": []}', "no number that could be imported"),
            ("[" * 100_000, "this is not JSON"),
        ],
    )
    def test_that_cannot_be_imported_is_refused(self, tmp_path: Path, text: str, sentence: str) -> None:
        (tmp_path / "trainer_state.json").write_text(text)
        with pytest.raises(CorruptFile, match=sentence):
            trainer_logs.import_runs(tmp_path, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        with pytest.raises(RunNotFound, match=r"no trainer_state\.json here"):
            trainer_logs.import_runs(tmp_path / "nowhere", tmp_path / "run")

    def test_is_imported_by_the_command_line(self, output_dir: Path, tmp_path: Path) -> None:
        done = CliRunner().invoke(main, ["import", "transformers", str(output_dir), str(tmp_path / "run")])
        assert done.exit_code == 0, done.output
        assert done.stdout.split() == [str(tmp_path / "run")]
