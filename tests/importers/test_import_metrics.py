"""Runs made of metrics that something else kept: CSV, the exports of Weights & Biases, the exports of Neptune."""

from __future__ import annotations

import csv
import json
import math
import socket
import struct
import zlib
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tensortrial
from support.imported_runs import values as _values
from tensortrial.cli import main
from tensortrial.errors import ConfigurationError, CorruptFile, RunNotFound
from tensortrial.importers import neptune, wandb
from tensortrial.importers.csv import import_run
from tensortrial.tfevents.wire import bytes_field

_NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _imported(folder: Path, text: str, **options: Any) -> tuple[str, list[str]]:
    """Import a table of CSV. Return the run, and what is reported of the table."""
    source, reported = _write(folder / "log.csv", text), list[str]()
    run = import_run(source, folder / "run", progress=False, report=reported.append, **options)
    return run, [sentence.removeprefix(f"{source}: ") for sentence in reported]


class TestATableOfCsv:
    def test_becomes_a_scalar_for_each_column_of_numbers(self, tmp_path: Path) -> None:
        run, reported = _imported(tmp_path, "step,train loss,accuracy,ok,note\n0,2.5,,true,a\n10,1.5,0.25,false,b\n")
        trial = tensortrial.create_trial(run)
        assert trial.tensor_names() == ["accuracy", "ok", "train loss"]
        assert trial.tensor_names(collection="losses") == ["train loss"]
        assert _values(run, "train loss") == {0: 2.5, 10: 1.5}
        assert _values(run, "accuracy") == {10: 0.25}
        assert _values(run, "ok") == {0: 1.0, 10: 0.0}
        assert trial.loaded_all_steps
        assert reported == ["columns that hold no numbers: 'note'"]

    def test_keeps_numbers_that_are_no_finite_ones(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "log.csv", "step,loss\n0,nan\n1,inf\n2,-inf\n3,\n")
        values = _values(import_run(source, tmp_path / "run", progress=False), "loss")
        assert list(values) == [0, 1, 2]
        assert np.isnan(values[0])
        assert values[1] == np.inf
        assert values[2] == -np.inf

    def test_keeps_times(self, tmp_path: Path) -> None:
        run, _ = _imported(tmp_path, f"step,loss,timestamp\n0,1,{_NOON.timestamp()}\n1,2,\n")
        trial = tensortrial.create_trial(run)
        assert datetime.fromisoformat(trial.info.started_at) == _NOON
        ((first,),) = trial.sql("select saved_at from scalars where global_step = 0").fetchall()
        assert first == _NOON

    @pytest.mark.parametrize("times", ["1600-01-01T00:00:00", "9999-12-31", "-1e12", "1e300"])
    def test_with_a_time_that_no_training_had_is_imported_without_it(self, tmp_path: Path, times: str) -> None:
        run, reported = _imported(tmp_path, f"step,loss,timestamp\n0,1,{times}\n1,2,\n")
        trial = tensortrial.create_trial(run)
        assert trial.verify().is_whole
        assert datetime.fromisoformat(trial.info.started_at) > _NOON
        assert reported == ["1 times of 'timestamp' that are not between 1973 and 2200"]

    @pytest.mark.parametrize("unit", [1, 1e3, 1e6, 1e9])
    def test_keeps_times_in_any_unit(self, tmp_path: Path, unit: float) -> None:
        source = _write(tmp_path / "log.csv", f"step,loss,time\n0,1,{int(_NOON.timestamp() * unit)}\n")
        trial = tensortrial.create_trial(import_run(source, tmp_path / "run", progress=False))
        assert datetime.fromisoformat(trial.info.started_at) == _NOON

    def test_with_whole_numbers_that_a_double_does_not_hold_says_so(self, tmp_path: Path) -> None:
        run, reported = _imported(tmp_path, "step,tokens\n0,9007199254740993\n1,9007199254740994\n2,\n3,-7\n")
        assert _values(run, "tokens") == {0: 2.0**53, 1: 2.0**53 + 2, 3: -7.0}
        sentence = "the last digits of 1 whole numbers above 2**53, which a double does not hold, of 'tokens'"
        assert reported == [sentence]

    def test_with_whole_numbers_beyond_64_bits_says_which_are_rounded(self, tmp_path: Path) -> None:
        cells = [
            "0,18446744073709551617,1e300,1",
            "1,18446744073709551616,0.5,inf",
            "2,,,",
            "3,-5,2,36893488147419103233",
            f"4,{2**120},2,1",
            f"5,{(large := 224046155588585099028866455121835541)},2,1",
        ]
        run, reported = _imported(tmp_path, "\n".join(["step,tokens,loss,mixed", *cells, ""]))
        assert _values(run, "tokens") == {0: 2.0**64, 1: 2.0**64, 3: -5.0, 4: 2.0**120, 5: float(large)}
        assert _values(run, "loss") == {0: 1e300, 1: 0.5, 3: 2.0, 4: 2.0, 5: 2.0}
        assert _values(run, "mixed") == {0: 1.0, 1: math.inf, 3: 2.0**65, 4: 1.0, 5: 1.0}
        sentence = "the last digits of 2 whole numbers above 2**53, which a double does not hold, of 'tokens'"
        assert reported == [sentence]

    def test_with_several_rows_of_a_step_says_that_the_last_counts(self, tmp_path: Path) -> None:
        run, reported = _imported(tmp_path, "seed,step,loss\n1,0,5\n1,1,4\n2,0,3\n2,1,4\n")
        assert _values(run, "loss") == {0: 3.0, 1: 4.0}
        assert reported == ["3 numbers, because later ones have the same name and step"]

    def test_that_is_still_written_is_imported_up_to_its_last_whole_line(self, tmp_path: Path) -> None:
        run, reported = _imported(tmp_path, "step,loss,accuracy\n0,1,0.5\n1,2,0.75\n2,3")
        assert _values(run, "loss") == {0: 1.0, 1: 2.0}
        assert reported == ["its last line, which is not written to its end"]

    def test_with_seconds_since_the_start_is_imported_without_times(self, tmp_path: Path) -> None:
        run, reported = _imported(tmp_path, "step,time,loss\n0,1.5,2\n1,3.25,1\n")
        assert datetime.fromisoformat(tensortrial.create_trial(run).info.started_at) > _NOON
        assert reported == ["2 times of 'time' that are not between 1973 and 2200"]

    def test_takes_a_plus_before_numbers(self, tmp_path: Path) -> None:
        run, _ = _imported(tmp_path, "step,loss\n0,+1.5\n1,+inf\n2,-2\n3,n/a\n")
        assert _values(run, "loss") == {0: 1.5, 1: np.inf, 2: -2.0}

    def test_in_long_form_becomes_a_scalar_for_each_name(self, tmp_path: Path) -> None:
        run, _ = _imported(
            tmp_path, "when,what,number\n3,a,1\n3,b,2\n4,a,3\n4,a,5\n", step="when", name="what", value="number"
        )
        assert _values(run, "a") == {3: 1.0, 4: 5.0}
        assert _values(run, "b") == {3: 2.0}

    def test_without_steps_counts_rows(self, tmp_path: Path) -> None:
        run = import_run(_write(tmp_path / "log.csv", "loss\n5\n4\n3\n"), tmp_path / "run", progress=False)
        assert _values(run, "loss") == {0: 5.0, 1: 4.0, 2: 3.0}

    def test_of_a_folder_is_put_together_by_steps(self, tmp_path: Path) -> None:
        _write(tmp_path / "logs/a.csv", "step,loss\n0,1\n5,2\n")
        pq.write_table(pa.table({"step": [0, 7], "accuracy": [0.5, 0.75]}), tmp_path / "logs/b.parquet")
        run = import_run(tmp_path / "logs", tmp_path / "run", progress=False, metadata={"lr": 0.1})
        trial = tensortrial.create_trial(run)
        assert trial.steps() == [0, 5, 7]
        assert trial.info.metadata["lr"] == 0.1
        assert _values(run, "accuracy") == {0: 0.5, 7: 0.75}

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("step,loss\n0.5,1\n", "0.5 is no step.*step_multiplier"),
            ("step,loss\n-1,1\n", "-1 is no step"),
            ("step,loss\n1e20,1\n", "1e\\+20 is no step, which is a whole number from 0 to 1e12$"),
            ("step,loss\none,1\n", "column of steps holds string"),
            ("step,note\n0,good\n", "no number that could be imported"),
            ("step,loss\n", "no number that could be imported"),
            ("0,2.5\n1,2.0\n", "first line must name the columns, and holds the numbers 0, 2.5"),
            ("st\0ep,loss\n0,1\n", "not text in UTF-8"),
            ("step,loss,loss\n0,1,1\n", "several columns of the name 'loss'"),
            ("", "not a table of metrics"),
            ("step,loss\n0,1,2,3\n", "not a table of metrics"),
        ],
    )
    def test_that_cannot_be_imported_is_refused(self, tmp_path: Path, text: str, sentence: str) -> None:
        with pytest.raises(CorruptFile, match=sentence) as caught:
            import_run(_write(tmp_path / "log.csv", text), tmp_path / "run", progress=False)
        assert caught.value.path.endswith("log.csv")
        assert not (tmp_path / "run").exists()

    def test_in_another_encoding_is_refused(self, tmp_path: Path) -> None:
        for encoding in ("latin-1", "utf-16"):
            (tmp_path / "log.csv").write_bytes("step,verlust é\n0,1\n".encode(encoding))
            with pytest.raises(CorruptFile, match="not text in UTF-8"):
                import_run(tmp_path / "log.csv", tmp_path / "run", progress=False)

    def test_keeps_the_numbers_of_a_column_with_some_texts(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "log.csv", "step,loss\n0,n/a\n1, 2.5\n2,-1e-3\n3,\n4,nan\n5,.5\n")
        reported = list[str]()
        values = _values(import_run(source, tmp_path / "run", progress=False, report=reported.append), "loss")
        assert list(values) == [1, 2, 4, 5]
        assert (values[1], values[2], values[5]) == (2.5, -0.001, 0.5)
        assert reported == [f"{source}: 1 cells of 'loss' that hold no number, such as 'n/a'"]

    @pytest.mark.parametrize("sign", [";", "\t"])
    def test_takes_other_signs_between_cells(self, tmp_path: Path, sign: str) -> None:
        source = _write(tmp_path / "log.csv", "step,loss,note\n0,1,a\n1,2,b\n".replace(",", sign))
        assert _values(import_run(source, tmp_path / "run", progress=False), "loss") == {0: 1.0, 1: 2.0}

    @pytest.mark.parametrize("cells", [("1,5", "0,25"), ('"1,5"', '"0,25"'), ("1,5e+00", "2,5E-1"), ("+1,5", ",25")])
    def test_takes_commas_in_numbers(self, tmp_path: Path, cells: tuple[str, str]) -> None:
        source = _write(tmp_path / "log.csv", "step;loss\n0;{}\n1;{}\n".format(*cells))
        assert _values(import_run(source, tmp_path / "run", progress=False), "loss") == {0: 1.5, 1: 0.25}

    def test_takes_points_in_numbers_with_an_exponent_next_to_commas_in_texts(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "log.csv", "step;note;loss\n0;1,5;1.5e0\n1;1,5;2.5e-1\n")
        assert _values(import_run(source, tmp_path / "run", progress=False), "loss") == {0: 1.5, 1: 0.25}

    def test_takes_commas_in_numbers_of_later_rows_and_in_names(self, tmp_path: Path) -> None:
        run, _ = _imported(tmp_path, 'step;"loss, mean";note\n0;1;begun.\n1;2,5;at 10.5\n')
        assert _values(run, "loss, mean") == {0: 1.0, 1: 2.5}

    def test_refuses_invalid_multipliers_and_metadata(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "log.csv", "step,loss\n5,1\n")
        wrong: dict[str, list[Any]] = {"step_multiplier": [0, 1.5, "3", None], "metadata": [5]}
        for option, value in ((option, value) for option, values in wrong.items() for value in values):
            with pytest.raises(ConfigurationError, match=rf"{option}.*got {value!r}"):
                import_run(source, tmp_path / "run", progress=False, **{option: value})
        assert not (tmp_path / "run").exists()

    def test_keeps_no_blanks_around_names(self, tmp_path: Path) -> None:
        run, _ = _imported(tmp_path, '   epoch, train loss ," acc"\n 0, 2.5 ,1\n 10, 1.5 ,2\n')
        assert tensortrial.create_trial(run).tensor_names() == ["acc", "train loss"]
        assert _values(run, "train loss") == {0: 2.5, 10: 1.5}
        long = _write(tmp_path / "long.csv", "step, name, value\n0, loss,1\n1,loss ,2\n")
        run = import_run(long, tmp_path / "long", name=" name", value="value", progress=False)
        assert _values(run, "loss") == {0: 1.0, 1: 2.0}

    def test_with_invalid_times_is_imported_without_them(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "log.csv", "step,time,loss\n0,yesterday,1\n")
        reported = list[str]()
        import_run(source, tmp_path / "run", progress=False, report=reported.append)
        assert reported == [f"{source}: the times, because its column 'time' holds string"]

    def test_takes_fractions_of_steps_multiplied(self, tmp_path: Path) -> None:
        run, _ = _imported(tmp_path, "epoch,loss\n0.25,1\n0.5,2\n", step_multiplier=100)
        assert _values(run, "loss") == {25: 1.0, 50: 2.0}

    def test_without_a_wanted_column_names_its_columns(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "log.csv", "step,loss\n0,1\n")
        with pytest.raises(
            ConfigurationError, match=r"unknown column 'stp' for the step in .*Known columns: 'step', 'loss'"
        ):
            import_run(source, tmp_path / "run", step="stp", progress=False)
        with pytest.raises(ConfigurationError, match="unknown column 3 for the time"):
            import_run(source, tmp_path / "run", time=3, progress=False)
        with pytest.raises(ConfigurationError, match="must be set together"):
            import_run(source, tmp_path / "run", name="loss", progress=False)
        with pytest.raises(RunNotFound):
            import_run(tmp_path / "none.csv", tmp_path / "run", progress=False)
        with pytest.raises(RunNotFound, match=r"no file here that ends with \.csv or \.parquet"):
            import_run(tmp_path / "nowhere", tmp_path / "run", progress=False)

    def test_of_a_million_numbers_comes_whole(self, tmp_path: Path) -> None:
        steps, names = 20_000, 10
        values = np.random.default_rng(0).normal(size=(steps, names))
        columns = {f"m{i}": values[:, i] for i in range(names)}
        pq.write_table(pa.table({"step": np.arange(steps), **columns}), tmp_path / "log.parquet")
        run = import_run(tmp_path / "log.parquet", tmp_path / "run", progress=False)
        found = tensortrial.create_trial(run).sql("select count(*), sum(value) from scalars").fetchall()
        assert found == [(steps * names, pytest.approx(values.sum()))]


def _history(path: Path, steps: range, **columns: list[float | str | None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    times = [_NOON.timestamp() + step for step in steps]
    pq.write_table(pa.table({"_step": list(steps), "_timestamp": times, **columns}), path)
    return path


class TestHistoriesOfWandb:
    def test_of_one_folder_are_one_run(self, tmp_path: Path) -> None:
        folder = tmp_path / "run-ab-history:v0"
        _history(folder / "0000.parquet", range(2), loss=[3.0, None], media=["x", None])
        _history(folder / "0001.parquet", range(2, 4), loss=[2.0, 1.0], **{"val/acc": [0.5, None]})
        reported = list[str]()
        runs = wandb.import_runs(folder, tmp_path / "run", progress=False, report=reported.append)
        assert runs == [str(tmp_path / "run")]
        trial = tensortrial.create_trial(runs[0])
        assert trial.info.framework == "wandb"
        assert datetime.fromisoformat(trial.info.started_at) == _NOON
        assert trial.tensor_names() == ["loss", "val/acc"]
        assert _values(runs[0], "loss") == {0: 3.0, 2: 2.0, 3: 1.0}
        assert reported == [f"{folder}/0000.parquet: columns that hold no numbers: 'media'"]

    def test_of_folders_below_are_runs_in_folders(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            _history(tmp_path / f"exports/{name}/0000.parquet", range(1), loss=[1.0])
        runs = wandb.import_runs(tmp_path / "exports", tmp_path / "runs", progress=False)
        assert tensortrial.open_runs(tmp_path / "runs").names == ["one", "two"]
        assert runs == [str(tmp_path / "runs/one"), str(tmp_path / "runs/two")]

    def test_keep_histograms(self, tmp_path: Path) -> None:
        drawn = [
            {"_type": "histogram", "values": [1, 2], "bins": [0.0, 0.5, 2.0], "packedBins": None},
            {
                "_type": "histogram",
                "values": [3, 0],
                "bins": None,
                "packedBins": {"min": -1.0, "size": 0.5, "count": 2},
            },
            None,
            {"_type": "histogram", "values": [3, 0], "bins": [1.0], "packedBins": None},
        ]
        table = pa.table({"_step": [0, 1, 2, 3], "gradients/fc": drawn, "loss": [1.0, None, 3.0, None]})
        pq.write_table(table, tmp_path / "0000.parquet")
        (run,) = wandb.import_runs(tmp_path / "0000.parquet", tmp_path / "run", progress=False)
        trial = tensortrial.create_trial(run)
        assert trial.steps() == [0, 1, 2]
        rows = trial.sql(
            "select global_step, histogram from tensors where name = 'gradients/fc' order by all"
        ).fetchall()
        assert rows == [
            (0, {"edges": [0.0, 0.5, 2.0], "counts": [1, 2]}),
            (1, {"edges": [-1.0, -0.5, 0.0], "counts": [3, 0]}),
        ]
        assert _values(run, "loss") == {0: 1.0, 2: 3.0}

    def test_as_csv_of_pandas_are_read_too(self, tmp_path: Path) -> None:
        source = _write(
            tmp_path / "history.csv", ",_step,_timestamp,loss\n0,0,1740830400.5,3\n1,5,1740830401,\n2,6,,1\n"
        )
        (run,) = wandb.import_runs(source, tmp_path / "run", progress=False)
        assert tensortrial.create_trial(run).tensor_names() == ["loss"]
        assert _values(run, "loss") == {0: 3.0, 6: 1.0}

    def test_as_the_csv_of_a_chart_are_a_run_for_each_line(self, tmp_path: Path) -> None:
        head = ["Step", *(f"{run} - loss{end}" for run in ("a/b - 1", "c") for end in ("", "__MIN", "__MAX"))]
        with (tmp_path / "chart.csv").open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([head, [0, 1, 0, 2, "", "", ""], [1, 2, 2, 2, 3, 3, 3]])
        runs = wandb.import_runs(tmp_path / "chart.csv", tmp_path / "runs", progress=False)
        assert [_values(run, "loss") for run in runs] == [{0: 1.0, 1: 2.0}, {1: 3.0}]
        assert len(tensortrial.open_runs(tmp_path / "runs")) == 2

    def test_of_a_run_in_the_folder_of_another_is_found(self, tmp_path: Path) -> None:
        _write(tmp_path / "export" / "history.csv", "_step,loss\n0,1\n")
        _write(tmp_path / "export" / "chart.csv", "Step,a - loss,a/b - loss\n0,2,3\n")
        wandb.import_runs(tmp_path / "export", tmp_path / "runs", progress=False)
        runs = tensortrial.open_runs(tmp_path / "runs")
        found = runs.sql("select run, value from scalars order by value").fetchall()
        assert found == [("export", 1.0), ("a", 2.0), ("a%2Fb", 3.0)]

    def test_that_are_none_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CorruptFile, match=r"neither the history of a run.*nor a chart"):
            wandb.import_runs(_write(tmp_path / "log.csv", "step,loss\n0,1\n"), tmp_path / "run", progress=False)
        with pytest.raises(RunNotFound, match=r"no file here that ends with \.wandb, \.csv or \.parquet"):
            wandb.import_runs(tmp_path / "nowhere", tmp_path / "run", progress=False)


def _wandb_record(*items: bytes) -> bytes:
    record = bytes_field(2, b"".join(bytes_field(1, item) for item in items))
    return struct.pack("<IHB", zlib.crc32(b"\1" + record), len(record), 1) + record


def _wandb_file(path: Path, run_id: str, loss: dict[int, float]) -> None:
    """Write the file of a run as wandb does, with nothing but its history."""
    data = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    for step, value in loss.items():
        items = [("_step", step), ("loss", value)]
        texts = [bytes_field(1, name.encode()) + bytes_field(16, json.dumps(each).encode()) for name, each in items]
        data += _wandb_record(*texts)
    path.mkdir(parents=True)
    (path / f"run-{run_id}.wandb").write_bytes(data)


def test_a_run_that_wandb_continued_offline_has_its_last_values(tmp_path: Path) -> None:
    folder = tmp_path / "wandb"
    _wandb_file(folder / "run-20250301_120000-ab", "ab", {0: 1.0, 1: 2.0})
    _wandb_file(folder / "offline-run-20250302_110000-ab", "ab", {1: 20.0, 2: 30.0})
    (run,) = wandb.import_runs(folder, tmp_path / "runs", progress=False)
    assert _values(run, "loss") == {0: 1.0, 1: 20.0, 2: 30.0}
    _wandb_file(folder / "run-20250303_100000-ab", "ab", {2: 300.0})
    wandb.import_runs(folder, tmp_path / "runs", progress=False)
    assert _values(run, "loss") == {0: 1.0, 1: 20.0, 2: 300.0}


@pytest.mark.parametrize("field", [4, 5, 6], ids=["bool", "integer", "double"])
def test_a_number_of_wandb_in_too_few_bytes_is_reported_and_the_others_are_imported(tmp_path: Path, field: int) -> None:
    _wandb_file(tmp_path / "wandb", "ab", {0: 1.0, 1: 2.0})
    with (tmp_path / "wandb/run-ab.wandb").open("ab") as file:
        file.write(_wandb_record(bytes_field(1, b"loss") + bytes_field(field, b"abc")))
    reported = list[str]()
    (run,) = wandb.import_runs(tmp_path / "wandb", tmp_path / "run", progress=False, report=reported.append)
    assert _values(run, "loss") == {0: 1.0, 1: 2.0}
    assert len(reported) == 1


def _exported(path: Path) -> Path:
    """As the documentation of neptune-exporter describes its files."""
    rows = [
        ("R-1", "metrics/loss", "float_series", Decimal("0.5"), _NOON, 2.0, None),
        ("R-1", "metrics/loss", "float_series", Decimal("1.0"), _NOON, 1.0, None),
        ("R-1", "parameters/lr", "float", None, None, 0.1, None),
        ("R-1", "sys/owner", "string", None, None, None, "ann"),
        ("R-1", "logs/out", "string_series", Decimal("1.0"), _NOON, None, "text"),
        ("R-1", "weights", "histogram_series", Decimal("1.0"), _NOON, None, None),
        ("R-1", "weights", "histogram_series", Decimal("2.0"), _NOON, None, None),
        ("R-2", "metrics/loss", "float_series", Decimal("3.0"), _NOON, 7.0, None),
    ]
    drawn = {
        ("weights", Decimal("1.0")): {"type": "COUNTING", "edges": [0.0, 1.0, 2.0], "values": [4.0, 5.0]},
        ("weights", Decimal("2.0")): {"type": "DENSITY", "edges": [0.0, 1.0, 2.0], "values": [0.4, 0.6]},
    }
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {
            "project_id": ["ann/work"] * len(rows),
            "run_id": columns[0],
            "attribute_path": columns[1],
            "attribute_type": columns[2],
            "step": pa.array(columns[3], pa.decimal128(18, 6)),
            "timestamp": pa.array(columns[4], pa.timestamp("ms", "UTC")),
            "int_value": pa.nulls(len(rows), pa.int64()),
            "float_value": pa.array(columns[5], pa.float64()),
            "string_value": columns[6],
            "bool_value": pa.nulls(len(rows), pa.bool_()),
            "datetime_value": pa.nulls(len(rows), pa.timestamp("ms", "UTC")),
            "histogram_value": [drawn.get(row[1:4:2]) for row in rows],
            "string_set_value": pa.nulls(len(rows), pa.list_(pa.string())),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="snappy")
    return path


class TestExportsOfNeptune:
    def test_of_its_exporter_are_runs_with_their_parameters(self, tmp_path: Path) -> None:
        _exported(tmp_path / "data/ann_work_1a2b/R-1_part_0.parquet")
        reported = list[str]()
        runs = neptune.import_runs(
            tmp_path / "data", tmp_path / "runs", step_multiplier=10, progress=False, report=reported.append
        )
        assert [Path(run).name for run in runs] == ["R-1", "R-2"]
        assert _values(runs[0], "metrics/loss") == {5: 2.0, 10: 1.0}
        assert _values(runs[1], "metrics/loss") == {30: 7.0}
        metadata = tensortrial.create_trial(runs[0]).info.metadata
        assert metadata["parameters/lr"] == 0.1
        assert metadata["sys/owner"] == "ann"
        assert [sentence.rpartition(": ")[2] for sentence in reported] == [
            "1 rows of string_series",
            "1 rows of histogram_series",
        ]
        sql = "select global_step, histogram from tensors where name = 'weights'"
        drawn = tensortrial.create_trial(runs[0]).sql(sql).fetchall()
        assert drawn == [(10, {"edges": [0.0, 1.0, 2.0], "counts": [4, 5]})]

    def test_with_fractional_steps_need_a_multiplier(self, tmp_path: Path) -> None:
        with pytest.raises(CorruptFile, match=r"0\.5 is no step.*step_multiplier"):
            neptune.import_runs(_exported(tmp_path / "x.parquet"), tmp_path / "runs", progress=False)

    def test_as_a_table_of_metrics_are_runs(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "m.csv", "run,step,metrics/loss\nR-1,0,2\nR-1,1,1\nR-2,0,5\n")
        runs = neptune.import_runs(source, tmp_path / "runs", progress=False)
        assert [_values(run, "metrics/loss") for run in runs] == [{0: 2.0, 1: 1.0}, {0: 5.0}]

    def test_of_runs_with_names_like_paths_go_to_folders_of_their_own(self, tmp_path: Path) -> None:
        names = ["a/b", "a//b", "a/../b", "..", "../../c", "/d", "."]
        rows = "".join(f"{name},0,{number}\n" for number, name in enumerate(names))
        source = _write(tmp_path / "m.csv", f"run,step,loss\n{rows}")
        runs = neptune.import_runs(source, tmp_path / "runs", progress=False)
        assert [_values(run, "loss") for run in runs] == [{0: number} for number in range(len(names))]
        assert Path(runs[0]) == tmp_path / "runs/a/b"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.csv", "runs"]
        assert not (tmp_path / "runs/run.json").exists()

    def test_as_series_are_one_run(self, tmp_path: Path) -> None:
        for name in ("train/loss", "train/accuracy"):
            _write(
                tmp_path / f"series/{name}.csv",
                f"step,value,timestamp\n0,1,{_NOON.isoformat()}\n1,2,{_NOON.isoformat()}\n",
            )
        (run,) = neptune.import_runs(tmp_path / "series", tmp_path / "run", progress=False)
        assert tensortrial.create_trial(run).tensor_names() == ["train/accuracy", "train/loss"]
        assert datetime.fromisoformat(tensortrial.create_trial(run).info.started_at) == _NOON

    def test_that_are_none_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CorruptFile, match="neither a file of neptune-exporter"):
            neptune.import_runs(_write(tmp_path / "log.csv", "a,b\n0,1\n"), tmp_path / "run", progress=False)


class TestTheCommandLine:
    def test_imports_and_says_where_and_what_was_left_out(self, tmp_path: Path) -> None:
        source = _write(tmp_path / "log.csv", "step,loss,note\n0,1,a\n")
        done = CliRunner().invoke(main, ["import", "csv", str(source), str(tmp_path / "run"), "--metadata", "lr=0.1"])
        assert done.exit_code == 0, done.output
        assert done.stdout.strip() == str(tmp_path / "run")
        assert "skipped:" in done.stderr
        assert tensortrial.create_trial(tmp_path / "run").info.metadata["lr"] == "0.1"

    def test_imports_wandb_and_neptune(self, tmp_path: Path) -> None:
        history = _history(tmp_path / "h/0.parquet", range(1), loss=[1.0])
        exported = _exported(tmp_path / "n/0.parquet")
        for command in (
            ["wandb", str(history), str(tmp_path / "w")],
            ["neptune", str(exported), str(tmp_path / "e"), "--step-multiplier", "10"],
        ):
            done = CliRunner().invoke(main, ["import", *command])
            assert done.exit_code == 0, done.output
        assert len(tensortrial.open_runs([tmp_path / "w", tmp_path / "e"])) == 3


@pytest.mark.parametrize("kind", ["csv", "smdebug", "tensorboard"])
def test_a_url_that_cannot_be_reached_is_named(tmp_path: Path, kind: str) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # it does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/folder"
        done = CliRunner().invoke(main, ["import", kind, url, str(tmp_path / "run")])
        assert done.exit_code == 1
        assert url in done.output
