"""The life of a hook, from its constructor to the end of its process."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support import warm  # noqa: E402
from support.memory import resident_bytes  # noqa: E402
from support.programs import run, run_cold, start  # noqa: E402
from support.training import batches, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402

LOSS = "CrossEntropyLoss_output_0"

BEGINNING = """
    import os, signal, sys, time
    import torch
    from torch import nn
    from support.training import seeded, train
    import tensortrial.hooks.pytorch as tt

    torch.set_num_threads(1)

    def begin(**options):
        options.setdefault("save_config", tt.SaveConfig(save_interval=1))
        hook = tt.Hook("run", **options)
        net, loss = seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        return hook, net, loss

    def go_on():
        for step in range(10**9):
            if step == 5:
                print("ready", flush=True)
            time.sleep(0.01)
            train(net, 1, loss)
"""


def until_ready(process: warm.Process) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate(timeout=30)[1]


def end_of(run: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run / "end" / "worker_0.json").read_bytes())
    return document


class TestTheRunIsClosed:
    @pytest.mark.parametrize(
        ("ending", "status"),
        [
            ("pass", 0),
            ("raise RuntimeError('of the user')", 1),
            ("sys.exit(3)", 3),
            # Nothing holds the hook any more.
            ("del hook, net, loss; tt.set_hook(None); import gc; gc.collect()", 0),
        ],
        ids=["end", "exception", "exit", "forgotten"],
    )
    def test_the_run_is_closed_at_exit(self, tmp_path: Path, ending: str, status: int) -> None:
        program = f"""{BEGINNING}
    hook, net, loss = begin(flush_seconds=1000)
    train(net, 3, loss)
    {ending}
    """
        # One real process destroys its modules. To import PyTorch in each would take longer than all else.
        done = (run_cold if ending == "pass" else run)(program, tmp_path)
        assert done.returncode == status, done.stderr
        trial = create_trial(tmp_path / "run")
        assert trial.tensor(LOSS).steps() == [0, 1, 2]
        assert trial.loaded_all_steps
        assert end_of(tmp_path / "run")["failure"] is None
        assert ("of the user" in done.stderr) == (status == 1)

    def test_the_run_is_closed_by_sigterm_which_still_ends_the_process(self, tmp_path: Path) -> None:
        program = f"""{BEGINNING}
    hook, net, loss = begin(flush_seconds=1000)
    train(net, 3, loss)
    go_on()
    """
        with start(program, tmp_path) as process:
            until_ready(process)
            process.terminate()
            _, err = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGTERM, err
        assert err == ""
        trial = create_trial(tmp_path / "run")
        assert trial.loaded_all_steps
        assert len(trial.tensor(LOSS).steps()) >= 3 + 5


class TestWithoutAnEnd:
    @pytest.mark.slow
    def test_forked_children_never_write(self, tmp_path: Path) -> None:
        program = f"""{BEGINNING}
    from torch.utils.data import DataLoader, Dataset

    hook, net, loss = begin(save_all=True)
    train(net, 1, loss)

    class Images(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            train(net, 1, loss)
            tt.get_hook().save_scalar("from_a_child", i)
            tt.get_hook().close()
            return torch.rand(64)

    for images in DataLoader(Images(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
        net(images)
    child = os.fork()
    if not child:
        train(net, 1, loss)
        sys.exit(5)  # with all that happens at exit
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    train(net, 1, loss)
    """
        done = run(program, tmp_path)
        assert done.returncode == 0, done.stderr
        trial = create_trial(tmp_path / "run")
        assert trial.tensor(LOSS).steps() == [0, 5]
        assert trial.tensor("Net_output_0").steps() == [0, 1, 2, 3, 4, 5]
        assert not trial.has_tensor("from_a_child")
        assert trial.workers() == ["worker_0"]


@pytest.mark.usefixtures("lenient")
class TestFailures:
    """Errors inside a hook, which do not reach training."""

    def hooked(self, out: Path, **options: Any) -> tuple[Any, Any, Any]:
        options.setdefault("save_config", tt.SaveConfig(save_interval=1))
        hook, net, loss = tt.Hook(out, flush_seconds=0, **options), seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        return hook, net, loss

    def test_a_full_disk_does_not_reach_training(self, small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
        hook, net, loss = self.hooked(small_disk / "run")
        train(net, 3, loss)
        hook.flush()  # the first two: the third is still open, and may be published together with later ones
        losses = []
        for _ in range(20):
            hook.save_tensor("big", torch.zeros(100_000))
            losses += train(net, 1, loss)
        hook.close()
        assert len(losses) == 20
        assert not hook.recorder.active
        assert len(caplog.records) == 1
        assert "training is not affected" in caplog.text
        assert "No space left" in caplog.text
        assert "Traceback" in caplog.text
        assert create_trial(small_disk / "run").tensor(LOSS).steps(show_incomplete_steps=True)[:2] == [0, 1]

    def test_a_folder_that_becomes_unwritable_is_logged_at_the_end(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net, loss = self.hooked(tmp_path / "run", save_all=True)
        train(net, 2, loss)
        hook.flush()
        tensors = tmp_path / "run" / "tensors"
        tensors.rename(tmp_path / "elsewhere")
        tensors.write_text("in the way")
        assert train(net, 20, loss) == train(net_like(2), 20, loss)
        hook.close()
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        failure = end_of(tmp_path / "run")["failure"]
        assert failure is not None
        assert "Error" in failure
        (tmp_path / "run" / "tensors").unlink()
        (tmp_path / "elsewhere").rename(tensors)
        trial = create_trial(tmp_path / "run")
        assert trial.loaded_all_steps
        assert trial.tensor("Net_output_0").value(0).shape == (32, 10)
        # The traceback in it keeps this frame, and so the trial, beyond the end of DuckDB.
        caplog.clear()

    def test_strict_mode_raises_an_error_inside_a_hook(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TENSORTRIAL_STRICT", "1")
        hook, net, loss = self.hooked(tmp_path / "run")
        train(net, 1, loss)
        (tmp_path / "run" / "index").mkdir(exist_ok=True)
        (tmp_path / "run" / "index").rename(tmp_path / "elsewhere")
        (tmp_path / "run" / "index").write_text("in the way")
        train(net, 1, loss)
        with pytest.raises(OSError, match="index"):
            hook.close()
        hook.close()

    def test_one_tensor_that_cannot_be_captured_does_not_stop_the_others(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net, loss = self.hooked(tmp_path / "run", include_regex="_output_")
        for _ in range(2):
            train(net, 1, loss)
            hook.record_tensor_value("meta_output", torch.ones(2, device="meta"))
        hook.close()
        assert [record.args[0] for record in caplog.records] == ["meta_output_output_0"]
        trial = create_trial(tmp_path / "run")
        assert trial.tensor("Net_output_0").steps() == [0, 1]
        assert not trial.has_tensor("meta_output_output_0")
        assert end_of(tmp_path / "run")["failure"] is None

    def test_a_model_that_never_runs_is_logged_at_the_end(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, *_ = self.hooked(tmp_path / "run")
        hook.save_scalar("x", 1)
        hook.close()
        assert "nothing of Net was saved" in caplog.text
        assert len(caplog.records) == 1


def net_like(steps: int) -> Any:
    """Return a model that was trained for some steps."""
    net = seeded()
    train(net, steps)
    return net


class TestMemory:
    @pytest.mark.parametrize(
        "options", [{}, pytest.param({"save_all": True}, marks=pytest.mark.slow)], ids=["losses", "save_all"]
    )
    def test_memory_does_not_grow_with_the_steps(self, tmp_path: Path, options: Any) -> None:
        hook = tt.Hook(tmp_path / "run", save_config=tt.SaveConfig(save_interval=1), **options)
        net, loss = seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        train(net, 100, loss)
        hook.flush()
        before = resident_bytes()
        for _ in range(10):
            train(net, 50, loss)
            hook.save_scalar("x", 1)
        hook.flush()
        hook.close()
        assert resident_bytes() - before < 64e6
        assert len(batches(1)) == 1
