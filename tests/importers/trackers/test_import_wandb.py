"""Runs of Weights & Biases, from the .wandb files that wandb wrote here, offline."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

import tensortrial
from support.imported_runs import import_quietly, metadata, values
from tensortrial.errors import CorruptFile, RunNotFound
from tensortrial.importers.wandb import import_runs

PROGRAM = """
import time, numpy, wandb
started = time.time()
settings = wandb.Settings(x_disable_stats=False, console="off")
run = wandb.init(project="digits x", name="first", id="first1", config={"lr": 0.1, "opt": {"name": "adam"}}, tags=["a"],
                 notes="two words", group="g", job_type="train", settings=settings)
nan, inf = float("nan"), float("inf")
for step, loss in enumerate([3.0, nan, inf, -inf, 0.5]):
    run.log({"train/loss": loss, "val": {"acc": step, "top": {"k": 5}}, "text": "x", "ok": True, "large": 2**62})
run.log({"hist": wandb.Histogram(np_histogram=([1, 2, 3], [0.0, 0.5, 1.0, 2.0]))})
run.log({"table": wandb.Table(columns=["a"], data=[[1]])})
run.log({"late": 1}, step=20)
run.log({"late": 2}, step=20)  # the same step: wandb keeps the last
run.log({"late": 3}, step=5)   # an earlier step: wandb refuses it
run.config.update({"seed": 7})
run.finish(exit_code=3)

run = wandb.init(project="digits x", name="long", id="long1", settings=settings)
for step in range(3000):
    run.log({"loss": step / 2, "padding": "x" * 50})
run.finish()

run = wandb.init(project="digits x", id="empty1", settings=settings)
run.finish()
"""


@pytest.fixture(scope="module")
def written(write: Callable[..., Path]) -> Path:
    return write(PROGRAM) / "wandb"


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "wandb", symlinks=True))


def _file(folder: Path, run_id: str) -> Path:
    (path,) = folder.glob(f"offline-run-*/run-{run_id}.wandb")
    return path


def _beginnings(data: bytes) -> list[list[memoryview]]:
    """Return the first records of a file: none, one, two and so on."""
    from tensortrial.importers.wandb.log_file import records

    found = list(records(data, "x.wandb", lambda sentence: None))
    return [found[:count] for count in range(len(found) + 1)]


class TestRunsOfWandb:
    def test_become_a_run_each_that_logged_a_number(self, folder: Path, tmp_path: Path) -> None:
        runs, reported = import_quietly(import_runs, folder, tmp_path / "runs")
        assert sorted(Path(run).name for run in runs) == ["first1", "long1"]
        assert len(tensortrial.open_runs(tmp_path / "runs")) == 2
        assert sum("has no number that could be imported" in sentence for sentence in reported) == 1

    def test_keep_their_numbers_at_the_steps_of_wandb(self, written: Path, tmp_path: Path) -> None:
        (run,), reported = import_quietly(import_runs, _file(written, "first1"), tmp_path / "run")
        assert run == str(tmp_path / "run")
        loss = values(run, "train/loss")
        assert math.isnan(loss[1])
        assert [loss[step] for step in (0, 2, 3, 4)] == [3.0, math.inf, -math.inf, 0.5]
        assert values(run, "val.acc") == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
        assert values(run, "val.top.k")[4] == 5.0
        assert values(run, "ok")[0] == 1.0
        assert values(run, "large")[0] == 2.0**62
        assert values(run, "late") == {20: 2.0}
        names = tensortrial.create_trial(run).tensor_names()
        assert not {"_step", "_timestamp", "text", "table"} & set(names)
        (left,) = [sentence for sentence in reported if "values that are no numbers" in sentence]
        assert "6 values" in left
        assert "'text', 'table'" in left

    def test_keep_histograms(self, written: Path, tmp_path: Path) -> None:
        (run,), _ = import_quietly(import_runs, _file(written, "first1"), tmp_path / "run")
        rows = (
            tensortrial.create_trial(run)
            .sql("select global_step, histogram from tensors where name = 'hist'")
            .fetchall()
        )
        assert rows == [(5, {"edges": [0.0, 0.5, 1.0, 2.0], "counts": [1, 2, 3]})]

    def test_keep_configuration_times_and_what_is_known_about_them(self, written: Path, tmp_path: Path) -> None:
        (run,), _ = import_quietly(import_runs, _file(written, "first1"), tmp_path / "run", metadata={"owner": "ann"})
        found = metadata(run)
        assert (found["lr"], found["opt"], found["seed"], found["owner"]) == (0.1, {"name": "adam"}, 7, "ann")
        about = found["wandb"]
        assert (about["run_id"], about["project"], about["name"]) == ("first1", "digits x", "first")
        assert (about["group"], about["job_type"], about["notes"], about["tags"]) == ("g", "train", "two words", ["a"])
        assert about["exit_code"] == 3
        started = datetime.fromisoformat(about["started_at"]).timestamp()
        ((first,),) = tensortrial.create_trial(run).sql("select epoch_ms(min(saved_at)) from scalars").fetchall()
        assert 0 < first / 1000 - started < 120
        assert abs(datetime.fromisoformat(tensortrial.create_trial(run).info.started_at).timestamp() - first / 1000) < 1

    def test_agree_with_what_wandb_reads_itself(self, written: Path, tmp_path: Path) -> None:
        from wandb.proto import wandb_internal_pb2 as proto

        from tensortrial.importers.wandb.log_file import records

        path, damage = _file(written, "long1"), list[str]()
        expected = {}
        for body in records(path.read_bytes(), str(path), damage.append):
            record = proto.Record()
            record.ParseFromString(bytes(body))
            if record.WhichOneof("record_type") == "history":
                found = {
                    (item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item
                }
                expected[found["_step"]] = found["loss"]
        assert damage == []
        (run,), _ = import_quietly(import_runs, path, tmp_path / "run")
        assert values(run, "loss") == expected == {step: step / 2 for step in range(3000)}

    def test_continued_in_other_files_are_joined(
        self, folder: Path, tmp_path: Path, write: Callable[..., Path]
    ) -> None:
        program = """
import wandb
for attempt in range(2):
    run = wandb.init(id="same", config={f"attempt{attempt}": True}, settings=wandb.Settings(console="off"))
    for step in (0, 1) if attempt == 0 else (1, 2):
        run.log({"loss": 10.0 * attempt + step}, step=step)
    run.finish()
    import time; time.sleep(1.1)  # wandb names the folder by the second
"""
        (run,), _ = import_quietly(import_runs, write(program) / "wandb", tmp_path / "runs")
        assert values(run, "loss") == {0: 0.0, 1: 11.0, 2: 12.0}
        assert {"attempt0", "attempt1"} <= set(metadata(run))

    def test_that_went_back_keep_no_later_steps_of_before(self, tmp_path: Path, write: Callable[..., Path]) -> None:
        program = """
import time, wandb
def train(begin, end, **options):
    run = wandb.init(project="p", settings=wandb.Settings(console="off"), **options)
    for step in range(begin, end):
        run.log({"loss": step / 2, "hist": wandb.Histogram(np_histogram=([begin], [0.0, 1.0]))})
    run.finish()
    time.sleep(1.1)  # wandb names the folder by the second
train(0, 10, id="back")
train(5, 7, id="back", resume_from="back?_step=4")
train(5, 6, id="fork", fork_from="back?_step=4")
"""
        runs, reported = import_quietly(import_runs, write(program) / "wandb", tmp_path / "runs")
        back, fork = sorted(runs)
        assert values(back, "loss") == {step: step / 2 for step in range(7)}
        rows = tensortrial.create_trial(back).sql(
            "select global_step, histogram.counts[1] from tensors where name = 'hist' order by all"
        )
        assert rows.fetchall() == [(step, 0 if step < 5 else 5) for step in range(7)]
        assert any("earlier values after step 4, because the run went back" in sentence for sentence in reported)
        assert values(fork, "loss") == {5: 2.5}
        assert metadata(fork)["wandb"]["forked_from"] == {"run_id": "back", "step": 4}
        assert "forked_from" not in metadata(back)["wandb"]

    def test_keep_step_metrics_and_what_only_the_summary_has(self, tmp_path: Path, write: Callable[..., Path]) -> None:
        program = """
import numpy, wandb
run = wandb.init(id="metrics", settings=wandb.Settings(console="off"))
picture = wandb.Image(numpy.zeros((2, 2)))
run.define_metric("epoch")
run.define_metric("val/*", step_metric="epoch")
run.define_metric("loss", step_metric="batch", summary="min")
for step in range(4):
    run.log({"loss": 1 / (step + 1), "batch": 10 * step})
run.log({"val/acc": numpy.float32(0.5), "epoch": 3, "none": None, "list": [1, 2], "picture": picture})
run.summary["best"] = {"acc": 0.75}
run.summary["verdict"] = "good"
run.summary["gone"] = 1
del run.summary["gone"]
run.summary["picture of all"] = picture
run.finish()
"""
        (run,), reported = import_quietly(import_runs, write(program) / "wandb", tmp_path / "runs")
        assert values(run, "batch") == {0: 0.0, 1: 10.0, 2: 20.0, 3: 30.0}
        assert values(run, "val/acc") == {4: 0.5}
        assert values(run, "epoch") == {4: 3.0}
        about = metadata(run)["wandb"]
        assert about["step_metrics"] == {"val/*": "epoch", "loss": "batch"}
        assert about["summary"] == {"best": {"acc": 0.75}, "verdict": "good"}
        assert any("3 values that are no numbers" in sentence for sentence in reported)

    def test_imported_twice_change_nothing(self, folder: Path, tmp_path: Path) -> None:
        target = tmp_path / "runs"
        runs, _ = import_quietly(import_runs, folder, target)
        before = {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()}
        assert import_quietly(import_runs, folder, target)[0] == runs
        assert {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()} == before


class TestAFileOfWandb:
    def test_that_was_cut_gives_what_is_whole_and_later_the_rest(self, written: Path, tmp_path: Path) -> None:
        data = _file(written, "long1").read_bytes()
        path = tmp_path / "run-long1.wandb"
        path.write_bytes(data[: len(data) // 2])
        (run,), reported = import_quietly(import_runs, path, tmp_path / "run")
        kept = values(run, "loss")
        assert 1000 < len(kept) < 2000
        assert kept == {step: step / 2 for step in range(len(kept))}
        assert [sentence for sentence in reported if "its last record" in sentence and "incomplete" in sentence]
        path.write_bytes(data)
        import_quietly(import_runs, path, run)
        assert len(values(run, "loss")) == 3000

    def test_with_a_damaged_block_gives_the_others(self, written: Path, tmp_path: Path) -> None:
        data = bytearray(_file(written, "long1").read_bytes())
        data[3 * 32768 + 100] ^= 1
        path = tmp_path / "run-long1.wandb"
        path.write_bytes(data)
        (run,), reported = import_quietly(import_runs, path, tmp_path / "run")
        kept = values(run, "loss")
        assert 2000 < len(kept) < 3000
        assert kept == {step: step / 2 for step in kept}
        assert max(kept) == 2999
        assert any("the record at byte" in sentence and "is damaged" in sentence for sentence in reported)

    def test_with_any_damage_gives_a_named_error_or_true_numbers(self, written: Path, tmp_path: Path) -> None:
        whole = _file(written, "first1").read_bytes()
        (run,), _ = import_quietly(import_runs, _file(written, "first1"), tmp_path / "whole")
        expected = values(run, "val.acc")
        generator, refused = random.Random(0), list[bool]()
        for number in range(40):
            data = bytearray(whole)
            for _ in range(generator.randint(1, 3)):
                data[generator.randrange(len(data))] = generator.randrange(256)
            path = tmp_path / f"run-{number}.wandb"
            path.write_bytes(data[: generator.choice([len(data), generator.randrange(len(data))])])
            try:
                (run,), _ = import_quietly(import_runs, path, tmp_path / f"out{number}")
            except CorruptFile as exc:
                refused.append(str(path) in str(exc))
                continue
            if "val.acc" in tensortrial.create_trial(run).tensor_names():
                assert values(run, "val.acc").items() <= expected.items()
        assert refused
        assert all(refused)

    def test_that_was_cut_anywhere_is_incomplete(self, written: Path, tmp_path: Path) -> None:
        from tensortrial.importers.wandb.log_file import records

        data = _file(written, "first1").read_bytes()
        ends = {7 + sum(7 + len(body) for body in bodies) for bodies in _beginnings(data)}
        for end in range(7, 700):
            damage = list[str]()
            list(records(data[:end], "x.wandb", damage.append))
            assert [text for text in damage if "incomplete" in text] == ([] if end in ends else damage), end
            assert len(damage) == (end not in ends)

    @pytest.mark.parametrize(
        ("data", "sentence"),
        [
            (b"", "this .wandb file is empty"),
            (b":W&B", "this .wandb file is empty, or ends in its header"),
            (b"PK\3\4" * 100, "not a .wandb file"),
            (b":W&B\xe1\xbe\7" + bytes(100), "version 7, and only version 0 is known"),
            (b":W&B\xe1\xbe\0", "no number that could be imported"),
            (b":W&B\xe1\xbe\0abc", "no number that could be imported"),
        ],
    )
    def test_that_is_none_is_refused(self, tmp_path: Path, data: bytes, sentence: str) -> None:
        (tmp_path / "run-x.wandb").write_bytes(data)
        with pytest.raises(CorruptFile, match=sentence) as caught:
            import_runs(tmp_path / "run-x.wandb", tmp_path / "run")
        assert caught.value.path.endswith("run-x.wandb")
        assert not (tmp_path / "run").exists()

    def test_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(RunNotFound, match="no such file"):
            import_runs(tmp_path / "run-x.wandb", tmp_path / "run")

    @pytest.mark.parametrize("name", ["..", ".hidden", "index", "a b%2Fc"])
    def test_of_a_hostile_name_stays_below_the_target(self, written: Path, tmp_path: Path, name: str) -> None:
        for each in ("other", name):
            (tmp_path / "wandb/folder").mkdir(parents=True, exist_ok=True)
            shutil.copy(_file(written, "first1"), tmp_path / f"wandb/folder/run-{each}.wandb")
        runs, _ = import_quietly(import_runs, tmp_path / "wandb", tmp_path / "runs")
        assert {Path(run).resolve().parent for run in runs} == {tmp_path / "runs"}
        assert len(runs) == len(tensortrial.open_runs(tmp_path / "runs")) == 2
        assert sorted(os.listdir(tmp_path)) == ["runs", "wandb"]
