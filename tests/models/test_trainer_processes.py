"""The callback for the Trainer in a job of two processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.programs import run_workers
from tensortrial import create_trial
from tensortrial.mode import modes

pytest.importorskip("transformers")

SCRIPT = """
import torch, transformers
from tensortrial.hooks.pytorch import SaveConfig
from tensortrial.hooks.transformers import TensorTrialCallback

torch.manual_seed(0)
torch.set_num_threads(1)
config = transformers.GPT2Config(
    vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2,
    embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
)
texts = [{"input_ids": each, "labels": each} for each in torch.randint(3, 64, (24, 8))]

for workers in ("one", "all"):
    arguments = transformers.TrainingArguments(
        output_dir="out", max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=1,
        save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
    )
    callback = TensorTrialCallback(
        workers, include_workers=workers, include_collections=["gradients"], include_regex="_input_",
        save_config=SaveConfig(save_interval=1),
    )
    transformers.Trainer(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=texts, callbacks=[callback]
    ).train()
    callback.close()
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs of a job that trains twice: its processes take longer to start than to train."""
    folder = tmp_path_factory.mktemp("processes")
    run_workers(SCRIPT, folder, "transformers.models.gpt2", "transformers.trainer", "tensortrial.hooks.transformers")
    return folder


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("include_workers", ["one", "all"])
def test_each_process_of_a_job_is_a_worker(folder: Path, include_workers: str) -> None:
    trial = create_trial(folder / include_workers)
    workers = ["worker_0", "worker_1"] if include_workers == "all" else ["worker_0"]
    assert trial.workers() == workers
    assert trial.loaded_all_steps
    assert trial.steps(modes.TRAIN) == [1, 2, 3]
    # Gradients are averaged over the processes, each of which has texts of its own.
    gradient = trial.tensor("gradient/GPT2LMHeadModel_transformer.wte.weight")
    found = [gradient.value(3, modes.TRAIN, worker=worker) for worker in workers]
    assert all(np.array_equal(found[0], each) for each in found)
    names = trial.tensor_names(regex="GPT2LMHeadModel_input_.*input_ids")
    assert names
    inputs = [trial.tensor(names[0]).value(3, modes.TRAIN, worker=worker) for worker in workers]
    assert len({each.tobytes() for each in inputs}) == len(workers)
