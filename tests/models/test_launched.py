"""Trainings by transformers and Lightning in scripts that know nothing of hooks: `python -m tensortrial run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.lightning_training import SCRIPT
from support.programs import run_training
from tensortrial import create_trial
from tensortrial.mode import modes

pytest.importorskip("transformers")
pytest.importorskip("lightning")

TRAINER = """
import torch, transformers
CALLBACKS = []

def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2
    )
    texts = [{"input_ids": each, "labels": each} for each in torch.randint(3, 64, (24, 8))]
    arguments = transformers.TrainingArguments(
        output_dir="out", max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=3,
        eval_strategy="steps", eval_steps=2, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True,
        disable_tqdm=True, dataloader_pin_memory=False,
    )
    transformers.Trainer(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=texts, eval_dataset=texts[:8],
        callbacks=CALLBACKS,
    ).train()

main()
"""
LIGHTNING = f"CALLBACKS = []\n{SCRIPT.replace('OPTIONS', 'callbacks=CALLBACKS')}"
OWN = {
    TRAINER: 'import tensortrial.hooks.transformers as tt\nCALLBACKS += [tt.TensorTrialCallback("own")]',
    LIGHTNING: 'from tensortrial.hooks.lightning import Callback\nCALLBACKS += [Callback("own")]',
}


def run(folder: Path, script: str, *options: str) -> None:
    run_training(script, folder, by=["-m", "tensortrial", "run", *options])


def test_a_trainer_is_saved_as_by_its_callback(tmp_path: Path) -> None:
    run(tmp_path, TRAINER)
    trial = create_trial(str(tmp_path / "out" / "tensortrial"))
    assert trial.steps(modes.TRAIN) == [1, 2, 3, 4]
    assert trial.tensor("loss").steps(modes.TRAIN) == [1, 2, 3, 4]
    assert len(trial.steps(modes.EVAL)) == 2
    assert trial.tensor("gradient/GPT2LMHeadModel_transformer.wte.weight").reduction_value(1, "l2", modes.TRAIN) > 0
    assert trial.loaded_all_steps
    assert [path.name for path in tmp_path.rglob("run.json")] == ["run.json"]


def test_a_module_of_lightning_is_saved_as_by_its_callback(tmp_path: Path) -> None:
    (tmp_path / "hook.json").write_text(json.dumps({"out_dir": "run", "include_collections": ["gradients"]}))
    run(tmp_path, LIGHTNING, "--config", "hook.json")
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(modes.TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("gradient/Net_layer.weight").value(3, modes.TRAIN).shape == (1, 4)
    assert trial.tensor("loss").steps(modes.TRAIN) == [0, 1, 2, 3]


@pytest.mark.parametrize("script", OWN, ids=["trainer", "lightning"])
def test_a_callback_of_the_script_s_own_is_the_only_one(tmp_path: Path, script: str) -> None:
    run(tmp_path, script.replace("CALLBACKS = []", f"CALLBACKS = []\n{OWN[script]}"))
    assert create_trial(str(tmp_path / "own")).steps(modes.TRAIN)
    assert [path.parent.name for path in tmp_path.rglob("run.json")] == ["own"]
