"""Runs made of event files: of PyTorch's SummaryWriter, of a hook's own, and of what nobody should write."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tensortrial
from support.event_folders import read_by_tensorboard
from support.imported_runs import interrupt_import
from tensortrial import modes
from tensortrial.cli import main
from tensortrial.errors import ConfigurationError, CorruptFile, RunExists, RunNotFound
from tensortrial.importers.tensorboard import import_runs
from tensortrial.importers.tensorboard.values import histogram_of
from tensortrial.storage.open import open_storage
from tensortrial.tfevents import summary
from tensortrial.tfevents.tfrecord import framed
from tensortrial.tfevents.wire import bytes_field, double_field, doubles_field, float_field, single, varint_field

NAME = "events.out.tfevents.1700000000.host"


def write(folder: Path, events: Sequence[bytes], name: str = NAME, rest: bytes = b"") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(framed([summary.first_event(1.0), *events]) + rest)
    return path


def numbers(tag: str, values: Mapping[int, float], begin: float = 1000.0) -> list[bytes]:
    return [summary.event(begin + step, step, summary.scalar(tag, value)) for step, value in values.items()]


def array(tag: str, step: int, value: float, begin: float = 1000.0) -> bytes:
    """Return an event with a tensor of one float64."""
    tensor = varint_field(1, 2) + bytes_field(4, struct.pack("<d", value))
    return summary.event(begin + step, step, bytes_field(1, tag.encode()) + bytes_field(8, tensor))


def import_one(source: Path, target: Path, **options: Any) -> Any:
    (path,) = import_runs(source, target, progress=False, **options)
    return tensortrial.create_trial(path)


def values(trial: Any, name: str, mode: Any = modes.GLOBAL) -> dict[int, float]:
    return {step: float(value) for step, value in trial.tensor(name).values(mode).items()}


def test_what_tensorboard_has_forgotten_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    write(source / "train", [*numbers("loss", dict.fromkeys(range(6), 1.0)), *numbers("lr", {2: 0.1, 5: 0.2})])
    again = [summary.session_start(2000.0, 3), *numbers("loss", {3: 2.0, 4: 2.0}, 2000.0)]
    write(source / "train", again, f"{NAME}.1")
    write(source / "eval", numbers("loss", {5: 3.0}))
    trial = import_one(source, tmp_path / "run")
    shown = read_by_tensorboard(source / "train")
    for name in ("loss", "lr"):
        expected = {each.step: pytest.approx(each.value) for each in shown.Scalars(name)}
        assert values(trial, name, modes.TRAIN) == expected
    assert values(trial, "loss", modes.EVAL) == {5: 3.0}


@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_many_layouts_are_those_that_tensorboard_reads(tmp_path: Path, seed: int) -> None:
    drawn, source = np.random.default_rng(seed), tmp_path / "logs"
    tags = ["a", "b", "a\0", "a\0b", "tensor", "loss/train", "zahl größer", "x" * 200]
    special = [0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 1e-45, 2.0]
    events = []
    for _ in range(3000):
        tag, step = tags[drawn.integers(len(tags))].encode(), int(drawn.integers(0, 1 << int(drawn.integers(1, 34))))
        value = float(drawn.choice(special) if drawn.random() < 0.5 else drawn.normal())
        begin = double_field(1, 1.7e9 + int(drawn.integers(0, 1 << 20)) / 8)
        number, name = float_field(2, value), bytes_field(1, tag)
        if tag == b"tensor":  # the form in which TensorFlow 2 writes numbers
            plugin = bytes_field(9, bytes_field(1, bytes_field(1, b"scalars")))
            number = bytes_field(8, varint_field(1, 1) + bytes_field(2, b"") + bytes_field(4, single(value))) + plugin
        body = name + number if drawn.random() < 0.7 else number + name
        at = varint_field(2, step) if step or drawn.random() < 0.5 else b""
        events.append(begin + at + bytes_field(5, bytes_field(1, body)))
    write(source, events[:2000])
    write(source, events[2000:], f"{NAME}.1")
    trial, shown = import_one(source, tmp_path / "run"), read_by_tensorboard(source)
    assert set(trial.tensor_names()) == set(tags)
    for tag in tags:
        points = shown.Tensors(tag) if tag == "tensor" else shown.Scalars(tag)
        last = {each.step: (repr(_number(each)), each.wall_time) for each in points}
        query = "select global_step, value, epoch_us(saved_at) / 1e6 from scalars where name = $name"
        rows = trial.sql(query, {"name": tag}).fetchall()
        assert {step: (repr(value), time) for step, value, time in rows} == last
    counts = trial.sql("select global_step, count(*) from tensors group by all order by all").fetchall()
    assert trial.sql("select global_step, num_tensors from steps order by all").fetchall() == counts
    for step, count in counts[:50]:
        assert len(trial.tensor_names(step=step)) == count
    assert trial.verify().is_whole


def _number(point: Any) -> float:
    if hasattr(point, "value"):
        return float(point.value)
    return float(np.frombuffer(point.tensor_proto.tensor_content, "<f4")[0])


@pytest.mark.parametrize("later", [{}, {5: 2.0}, {3: 2.0, 7: 2.0}], ids=["no value yet", "after", "at it"])
def test_what_tensorboard_forgets_after_an_import_is_set_aside_by_the_next(
    tmp_path: Path, later: Mapping[int, float]
) -> None:
    source, reported = tmp_path / "logs", list[str]()
    write(source, [*numbers("loss", dict.fromkeys(range(6), 1.0)), *numbers("lr", {2: 0.1, 4: 0.2})])
    run = import_one(source, tmp_path / "run")
    write(source, [summary.session_start(2000.0, 3), *numbers("loss", later, 2000.0)], f"{NAME}.1")
    again = import_one(source, tmp_path / "run", report=reported.append)
    run.refresh()
    shown = read_by_tensorboard(source)
    for trial in (run, again):
        for name in ("loss", "lr"):
            assert values(trial, name) == {each.step: pytest.approx(each.value) for each in shown.Scalars(name)}
        assert trial.loaded_all_steps
        assert trial.verify().is_whole
    (sentence,) = reported
    assert "from step 3 on, which the source no longer has, are superseded" in sentence
    before = sorted((tmp_path / "run").rglob("*.parquet"))
    import_one(source, tmp_path / "run", report=reported.append)
    assert sorted((tmp_path / "run").rglob("*.parquet")) == before
    assert len(reported) == 1


class TestWhatPyTorchWrites:
    @pytest.fixture
    def writer(self, tmp_path: Path) -> Any:
        pytest.importorskip("tensorboard")
        pytest.importorskip("torch")
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(tmp_path / "logs")) as writer:
            yield writer

    def test_numbers_and_their_times(self, writer: Any, tmp_path: Path) -> None:
        for step in range(300):
            writer.add_scalar("train/loss", 1 / (step + 1), step, walltime=1_700_000_000.125 + step)
        writer.add_scalar("accuracy", 0.5, 299)
        writer.close()
        trial = import_one(tmp_path / "logs", tmp_path / "run")
        assert values(trial, "train/loss") == {step: float(np.float32(1 / (step + 1))) for step in range(300)}
        assert trial.tensor_names(collection="losses") == ["train/loss"]
        assert trial.tensor_names(collection="metrics") == ["accuracy"]
        query = "select epoch_us(saved_at) from scalars where name = 'train/loss' and global_step = 7"
        ((time,),) = trial.sql(query).fetchall()
        assert time == 1_700_000_007_125_000
        assert trial.loaded_all_steps

    def test_histograms(self, writer: Any, tmp_path: Path) -> None:
        data = np.random.default_rng(0).normal(size=1000).astype(np.float32)
        writer.add_histogram("weights", data, 3)
        writer.add_histogram("one value", np.full(5, 2.0), 3)
        writer.close()
        tensor = import_one(tmp_path / "logs", tmp_path / "run").tensor("weights")
        edges, counts = tensor.histogram(3)
        assert counts.sum() == 1000
        assert (np.diff(edges) > 0).all()
        assert (edges[0], edges[-1]) == (data.min(), data.max())
        # A bin of PyTorch has its right edge, one of numpy the left one.
        np.testing.assert_array_equal(np.cumsum(counts), [(data <= edge).sum() for edge in edges[1:]])
        assert tensor.reduction_value(3, "mean") == pytest.approx(data.mean(), abs=1e-6)
        assert tensor.reduction_value(3, "l2") == pytest.approx(np.linalg.norm(data), rel=1e-6)
        same = tensortrial.create_trial(tmp_path / "run").tensor("one value").histogram(3)
        assert same[1].sum() == 5
        assert same[0][0] < 2.0 < same[0][-1]

    def test_texts_and_tensors_are_kept_and_images_counted(self, writer: Any, tmp_path: Path) -> None:
        writer.add_text("note", "learning rate lowered", 2)
        writer.add_pr_curve("curve", np.array([0, 1, 1]), np.array([0.1, 0.6, 0.9]), 2, num_thresholds=5)
        writer.add_image("digit", np.zeros((1, 8, 8), np.uint8), 2)
        writer.close()
        reported: list[str] = []
        trial = import_one(tmp_path / "logs", tmp_path / "run", report=reported.append)
        assert trial.tensor("note/text_summary").value(2).tolist() == ["learning rate lowered"]
        assert trial.tensor("curve").value(2).shape == (6, 5)
        assert reported == [f"{tmp_path / 'logs'}: 1 images"]

    def test_hyperparameters_and_runs_below(self, writer: Any, tmp_path: Path) -> None:
        writer.add_scalar("loss", 1.0, 0)
        writer.add_hparams({"lr": 0.1, "layers": 3, "name": "net", "flag": True}, {"best": 0.9}, run_name="trial")
        writer.close()
        paths = import_runs(tmp_path / "logs", tmp_path / "runs", progress=False)
        assert paths == [str(tmp_path / "runs" / "logs"), str(tmp_path / "runs" / "trial")]
        runs = tensortrial.open_runs(tmp_path / "runs")
        ((found,),) = runs.sql("select metadata from runs where run like '%trial'").fetchall()
        for part in ('"lr": 0.1', '"layers": 3.0', '"name": "net"', '"flag": 1.0'):
            assert part in found
        assert values(tensortrial.create_trial(paths[1]), "best") == {0: pytest.approx(0.9)}

    def test_hyperparameters_that_are_not_finite_are_texts_of_a_readable_run(self, writer: Any, tmp_path: Path) -> None:
        writer.add_hparams({"lr": math.nan, "clip": -math.inf}, {"best": 0.9}, run_name=".")
        writer.close()
        trial = import_one(tmp_path / "logs", tmp_path / "run")
        assert {key: trial.info.metadata[key] for key in ("lr", "clip")} == {"lr": "nan", "clip": "-inf"}


class TestModes:
    def test_folders_of_modes_are_one_run_in_the_order_of_its_steps(self, tmp_path: Path) -> None:
        training = [*numbers("loss", {0: 1, 100: 0.5, 200: 0.25}), *numbers("epoch", {0: 7, 1: 8})]
        write(tmp_path / "logs" / "train", training)
        write(tmp_path / "logs" / "validation", numbers("loss", {100: 0.75, 200: 0.5}))
        trial = import_one(tmp_path / "logs", tmp_path / "run")
        assert values(trial, "loss", modes.TRAIN) == {0: 1, 100: 0.5, 200: 0.25}
        assert values(trial, "loss", modes.EVAL) == {100: 0.75, 200: 0.5}
        assert trial.steps(modes.TRAIN) == [0, 1, 100, 200]
        assert trial.steps() == [0, 2, 200, 201, 400, 401]
        assert trial.mode(401) is modes.EVAL

    def test_an_estimators_own_files_are_of_training(self, tmp_path: Path) -> None:
        write(tmp_path / "logs", numbers("loss", {1: 1}))
        write(tmp_path / "logs" / "eval", numbers("loss", {1: 2}))
        trial = import_one(tmp_path / "logs", tmp_path / "run")
        assert (values(trial, "loss", modes.TRAIN), values(trial, "loss", modes.EVAL)) == ({1: 1}, {1: 2})

    def test_two_folders_of_a_mode_keep_apart(self, tmp_path: Path) -> None:
        write(tmp_path / "logs" / "test", numbers("loss", {1: 3}))
        write(tmp_path / "logs" / "Validation", numbers("loss", {1: 2}))
        trial = import_one(tmp_path / "logs", tmp_path / "run")
        assert values(trial, "loss", modes.EVAL) == {1: 2}
        assert values(trial, "test/loss", modes.EVAL) == {1: 3}

    def test_runs_in_folders(self, tmp_path: Path) -> None:
        write(tmp_path / "logs" / "a" / "train", numbers("loss", {0: 1}))
        write(tmp_path / "logs" / "b", numbers("loss", {0: 2}))
        assert import_runs(tmp_path / "logs", tmp_path / "runs", progress=False) == [
            str(tmp_path / "runs" / "a"),
            str(tmp_path / "runs" / "b"),
        ]
        found = tensortrial.open_runs(tmp_path / "runs").sql("select value from scalars order by value").fetchall()
        assert found == [(1.0,), (2.0,)]

    def test_of_different_intervals_do_not_count_as_steps_that_were_not_saved(self, tmp_path: Path) -> None:
        write(tmp_path / "logs" / "train", numbers("loss", dict.fromkeys(range(100), 1)))
        write(tmp_path / "logs" / "validation", numbers("loss", dict.fromkeys(range(9, 100, 10), 1)))
        import_one(tmp_path / "logs", tmp_path / "run")
        assert "no problem in 110 steps" in tensortrial.diagnose(tmp_path / "run").summary

    def test_of_runs_in_the_folders_of_others_each_is_found(self, tmp_path: Path) -> None:
        for number, folder in enumerate(("", "a", "a/b", "a/b/c", "d/e", "logs")):
            write(tmp_path / "logs" / folder, numbers("loss", {0: number}))
        paths = import_runs(tmp_path / "logs", tmp_path / "runs", progress=False)
        assert {str(Path(path).relative_to(tmp_path / "runs")) for path in paths} == {
            *("logs_", "a", "a%2Fb", "a%2Fb%2Fc", "d/e", "logs")
        }
        runs = tensortrial.open_runs(tmp_path / "runs")
        assert runs.sql("select value from scalars order by value").fetchall() == [(each,) for each in range(6)]
        assert import_runs(tmp_path / "logs", tmp_path / "runs", progress=False) == paths

    def test_that_came_after_the_import_of_the_run_above_need_another_target(self, tmp_path: Path) -> None:
        write(tmp_path / "logs", numbers("loss", {0: 1}))
        import_runs(tmp_path / "logs", tmp_path / "run", progress=False)
        write(tmp_path / "logs" / "below", numbers("best", {0: 2}))
        with pytest.raises(RunExists, match="readers look for no other runs: choose another target"):
            import_runs(tmp_path / "logs", tmp_path / "run", progress=False)
        import_runs(tmp_path / "logs", tmp_path / "runs", progress=False)
        assert len(tensortrial.open_runs(tmp_path / "runs")) == 2

    def test_that_would_go_below_a_run_of_another_source_need_another_target(self, tmp_path: Path) -> None:
        write(tmp_path / "logs" / "a", numbers("loss", {0: 1}))
        write(tmp_path / "others" / "a" / "b", numbers("loss", {0: 2}))
        for folder in ("logs", "others"):
            write(tmp_path / folder / "c" / folder, numbers("loss", {0: 3}))
        import_runs(tmp_path / "logs", tmp_path / "runs", progress=False)
        with pytest.raises(RunExists, match="runs/a: holds a run, in which readers look for no other runs"):
            import_runs(tmp_path / "others", tmp_path / "runs", progress=False)

    def test_one_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "logs", numbers("loss", {0: 1}))
        write(tmp_path / "logs", numbers("loss", {0: 2}), "events.out.tfevents.1700000001.host")
        assert values(import_one(path, tmp_path / "run"), "loss") == {0: 1}


class TestAHooksOwn:
    def test_comes_back(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        import tensortrial.hooks.pytorch as tt

        model, loss = torch.nn.Linear(64, 10), torch.nn.CrossEntropyLoss()
        every = tt.SaveConfig(save_interval=1)
        hook = tt.Hook(tmp_path / "run", export_tensorboard=True, include_collections=["weights"], save_config=every)
        hook.register_module(model)
        hook.register_loss(loss)
        for mode in (tt.modes.TRAIN, tt.modes.EVAL, tt.modes.TRAIN):
            hook.set_mode(mode)
            for _ in range(3):
                loss(model(torch.randn(4, 64)), torch.randint(10, (4,)))
        hook.close()
        old, new = (
            tensortrial.create_trial(tmp_path / "run"),
            import_one(tmp_path / "run" / "tensorboard", tmp_path / "new"),
        )
        for mode in (modes.TRAIN, modes.EVAL):
            expected = values(old, "CrossEntropyLoss_output_0", mode)
            assert values(new, "CrossEntropyLoss_output_0", mode) == pytest.approx(expected)
            assert new.steps(mode) == old.steps(mode)
            for step in old.steps(mode):
                before, after = (trial.tensor("Linear_weight").histogram(step, mode) for trial in (old, new))
                np.testing.assert_array_equal(before[0], after[0])
                np.testing.assert_array_equal(before[1], after[1])


class TestAgain:
    def test_values_of_imported_steps_are_added_and_replace_others(self, tmp_path: Path) -> None:
        first = [*numbers("loss", {0: 1, 5: 2}), array("size", 5, 7)]
        write(tmp_path / "logs", first)
        run = import_one(tmp_path / "logs", tmp_path / "run")
        write(tmp_path / "logs", [*first, *numbers("val", {3: 4}), array("size", 5, 8, begin=1100.0)])
        again = import_one(tmp_path / "logs", tmp_path / "run")
        run.refresh()
        for trial in (run, again):
            assert values(trial, "loss") == {0: 1, 5: 2}
            assert values(trial, "val") == {3: 4}
            assert values(trial, "size") == {5: 8}
            assert trial.loaded_all_steps
            assert trial.verify().is_whole

    def test_a_value_that_no_run_can_hold_is_left_out_again(self, tmp_path: Path) -> None:
        message = doubles_field(6, [1]) + doubles_field(7, [1, 1]) + double_field(3, 2)
        bad = summary.event(1, 0, bytes_field(1, b"bad") + bytes_field(5, message))
        write(tmp_path / "logs", [bad, *numbers("loss", {0: 1, 1: 2}), array("size", 1, 7)])
        import_one(tmp_path / "logs", tmp_path / "run")
        before = sorted((tmp_path / "run").rglob("*.parquet"))
        import_one(tmp_path / "logs", tmp_path / "run")
        assert sorted((tmp_path / "run").rglob("*.parquet")) == before

    def test_an_interrupted_import_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "logs", numbers("loss", {step: step for step in range(100)}))
        with monkeypatch.context() as patch:
            interrupt_import(patch, after=40)
            with pytest.raises(KeyboardInterrupt):
                import_one(tmp_path / "logs", tmp_path / "run")
        half = tensortrial.create_trial(tmp_path / "run")
        assert len(half.tensor("loss").steps()) == 40
        assert not half.loaded_all_steps
        with monkeypatch.context() as patch:
            interrupt_import(patch, after=60)  # nothing is written again
            trial = import_one(tmp_path / "logs", tmp_path / "run")
        assert values(trial, "loss") == {step: step for step in range(100)}
        assert trial.loaded_all_steps

    def test_a_mode_that_comes_later_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path / "logs" / "train", numbers("loss", {0: 1}))
        import_one(tmp_path / "logs", tmp_path / "run")
        write(tmp_path / "logs" / "eval", numbers("loss", {0: 1}))
        with pytest.raises(ConfigurationError, match=r"no steps of EVAL.*choose another target"):
            import_one(tmp_path / "logs", tmp_path / "run")

    def test_another_run_is_not_overwritten(self, tmp_path: Path) -> None:
        write(tmp_path / "a", numbers("loss", {0: 1}))
        write(tmp_path / "b", numbers("loss", {0: 1}))
        import_one(tmp_path / "a", tmp_path / "run")
        with pytest.raises(RunExists, match="choose another target"):
            import_one(tmp_path / "b", tmp_path / "run")


class TestBadInput:
    def test_the_incomplete_end_of_a_killed_job_is_reported(self, tmp_path: Path) -> None:
        path = write(tmp_path / "logs", numbers("loss", {0: 1, 1: 2}), rest=framed(numbers("loss", {2: 3}))[:-7])
        reported: list[str] = []
        trial = import_one(tmp_path / "logs", tmp_path / "run", report=reported.append)
        assert values(trial, "loss") == {0: 1, 1: 2}
        (sentence,) = reported
        assert sentence.startswith(f"{path}, the record at byte ")
        assert "the file ends within a record" in sentence

    def test_an_import_that_another_one_overtakes_says_so(self, tmp_path: Path) -> None:
        write(tmp_path / "logs", numbers("loss", {0: 1, 1: 2}), rest=b"\x10\x00")

        def overtake(sentence: str) -> None:
            import_one(tmp_path / "logs", tmp_path / "run", report=lambda sentence: None)

        with pytest.raises(RunExists, match="another import into it is under way; import again once it is done"):
            import_one(tmp_path / "logs", tmp_path / "run", report=overtake)
        assert values(import_one(tmp_path / "logs", tmp_path / "run"), "loss") == {0: 1, 1: 2}

    def test_a_record_that_was_changed_leaves_the_others(self, tmp_path: Path) -> None:
        path = write(tmp_path / "logs", numbers("loss", {0: 1, 1: 2, 2: 3}))
        data = bytearray(path.read_bytes())
        data[data.index(numbers("loss", {1: 2})[0]) + 3] ^= 1
        path.write_bytes(data)
        reported: list[str] = []
        assert values(import_one(tmp_path / "logs", tmp_path / "run", report=reported.append), "loss") == {0: 1, 2: 3}
        assert "does not match its checksum" in reported[0]

    def test_a_scalar_in_an_event_that_also_starts_a_session_is_no_model_for_others(self, tmp_path: Path) -> None:
        begins = bytes_field(7, varint_field(1, 1))
        events = [each + begins for each in numbers("loss", {0: 1, 5: 2, 9: 3, 3: 4})]
        trial = import_one(write(tmp_path / "logs", events).parent, tmp_path / "run")
        assert values(trial, "loss") == {0: 1, 3: 4}

    @pytest.mark.parametrize("step", [10**12, 1 << 40, 1 << 62])
    def test_steps_that_no_run_has(self, tmp_path: Path, step: int) -> None:
        write(tmp_path / "logs" / "train", numbers("loss", {0: 1, 7: 3}))
        write(tmp_path / "logs" / "eval", numbers("loss", {0: 1, 7: 2, step: 3}))
        reported: list[str] = []
        trial = import_one(tmp_path / "logs", tmp_path / "run", report=reported.append)
        assert values(trial, "loss", modes.EVAL) == {0: 1, 7: 2}
        assert "1 values at steps from 2.5e+11 on" in reported[0]

    @pytest.mark.parametrize(
        ("event", "words"),
        [
            (b"\xff" * 20, "a number has no end"),
            (b"\x10" + b"\xff" * 9 + b"\x02" + bytes_field(5, b""), "more than 64 bits"),
            (double_field(1, 1.0) + bytes_field(5, b"\x0a\x50"), "longer than its message"),
            (summary.event(1, 1, bytes_field(1, b"\xff") + bytes_field(5, b"")), "utf-8"),
            (summary.event(1, 1, bytes_field(1, b"t") + varint_field(2, 3)), "a number where a message should be"),
        ],
    )
    def test_events_that_make_no_sense(self, tmp_path: Path, event: bytes, words: str) -> None:
        write(tmp_path / "logs", [event, *numbers("loss", {0: 1})])
        reported: list[str] = []
        assert values(import_one(tmp_path / "logs", tmp_path / "run", report=reported.append), "loss") == {0: 1}
        assert words in reported[0]

    def test_histograms_that_make_no_sense(self, tmp_path: Path) -> None:
        def drawn(*limits: float) -> bytes:
            message = doubles_field(6, limits) + doubles_field(7, [1, 1]) + double_field(3, 2) + double_field(2, 9)
            return summary.event(1, 5, bytes_field(1, b"bad") + bytes_field(5, message))

        write(tmp_path / "logs", [drawn(2, 1), drawn(1), *numbers("loss", {0: 1})])
        reported: list[str] = []
        trial = import_one(tmp_path / "logs", tmp_path / "run", report=reported.append)
        assert trial.tensor_names() == ["loss"]
        assert "1 limits for 2 buckets" in reported[0]

    def test_steps_below_0(self, tmp_path: Path) -> None:
        write(tmp_path / "logs", numbers("loss", {-1: 9, 0: 1, -2: 3, 5: 6}))
        reported: list[str] = []
        trial = import_one(tmp_path / "logs", tmp_path / "run", report=reported.append)
        assert values(trial, "loss") == {0: 1, 5: 6}
        assert reported == [f"{tmp_path / 'logs'}: 2 values at steps below 0"]

    def test_no_event_files(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("tfevents are elsewhere")
        with pytest.raises(RunNotFound, match="no event file here"):
            import_one(tmp_path, tmp_path / "run")
        with pytest.raises(RunNotFound):
            import_one(tmp_path / "nowhere", tmp_path / "run")

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / NAME).write_bytes(b"a text that only has the name of an event file")
        reported: list[str] = []
        with pytest.raises(CorruptFile, match="its event files have nothing"):
            import_one(tmp_path / "logs", tmp_path / "run", report=reported.append)
        assert "the length of a record does not match its checksum" in reported[0]
        assert not (tmp_path / "run").exists()

    def test_an_empty_run_is_left_out_and_others_are_imported(self, tmp_path: Path) -> None:
        write(tmp_path / "logs/a", numbers("loss", {0: 1}))
        write(tmp_path / "logs/b", [])
        reported: list[str] = []
        assert import_runs(tmp_path / "logs", tmp_path / "runs", progress=False, report=reported.append) == [
            str(tmp_path / "runs/a")
        ]
        assert reported == [f"{tmp_path}/logs/b: its event files have nothing that could be imported"]

    def test_into_itself(self, tmp_path: Path) -> None:
        write(tmp_path / "logs", numbers("loss", {0: 1}))
        with pytest.raises(ConfigurationError, match="into itself"):
            import_one(tmp_path / "logs", tmp_path / "logs")


def test_a_tag_of_two_kinds_is_two_tensors(tmp_path: Path) -> None:
    drawn = summary.event(1, 0, summary.histogram("w", [0.0, 1.0], [3]))
    write(tmp_path / "logs", [*numbers("w", {0: 1}), drawn])
    trial = import_one(tmp_path / "logs", tmp_path / "run")
    assert values(trial, "w") == {0: 1}
    assert trial.tensor("w/histogram").histogram(0)[1].tolist() == [3]


@pytest.mark.parametrize("value", [bytes_field(2, b""), bytes_field(5, bytes_field(1, b"") + bytes_field(3, b"1"))])
def test_a_number_in_too_few_bytes_is_reported(tmp_path: Path, value: bytes) -> None:
    bad = summary.event(1000.0, 7, bytes_field(1, b"bad") + value)
    write(tmp_path / "logs", [*numbers("loss", {0: 1.0, 1: 2.0}), bad])
    reported = list[str]()
    trial = import_one(tmp_path / "logs", tmp_path / "run", report=reported.append)
    assert values(trial, "loss") == {0: 1.0, 1: 2.0}
    assert len(reported) == 1


def test_unknown_times_are_those_of_the_import(tmp_path: Path) -> None:
    loss = summary.scalar("loss", 1)
    write(tmp_path / "logs", [summary.event(time, step, loss) for step, time in enumerate((math.nan, -5, 1e300))])
    assert values(import_one(tmp_path / "logs", tmp_path / "run"), "loss") == {0: 1, 1: 1, 2: 1}


def test_from_and_to_an_object_store(tmp_path: Path) -> None:
    drawn = summary.event(1, 5, summary.histogram("w", [0.0, 1.0], [3]))
    path = write(tmp_path, [*numbers("loss", {0: 1, 5: 2}), drawn])
    storage = open_storage("memory://event-files-of-a-test/logs")
    storage.replace(f"train/{NAME}", path.read_bytes())
    (run,) = import_runs("memory://event-files-of-a-test/logs", "memory://event-files-of-a-test/run", progress=False)
    trial = tensortrial.create_trial(run)
    assert values(trial, "loss", modes.TRAIN) == {0: 1, 5: 2}
    assert trial.tensor("w").histogram(5, modes.TRAIN)[1].tolist() == [3]


def test_at_the_command_line(tmp_path: Path) -> None:
    write(tmp_path / "logs", numbers("loss", {0: 1}), rest=b"xyz")
    arguments = ["import", "tensorboard", str(tmp_path / "logs"), str(tmp_path / "run"), "--metadata", "lr=0.1"]
    done = CliRunner().invoke(main, [*arguments, "--no-progress"])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path / 'run'}\n"
    assert "skipped: " in done.stderr
    assert "the file ends within the header of a record" in done.stderr


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5)), min_size=1, max_size=20), st.floats(-100, 100))
def test_no_value_of_a_histogram_is_lost(buckets: list[tuple[float, int]], begin: float) -> None:
    edges = begin + np.cumsum([0.0, *(width for width, _ in buckets)])
    counts = [count for _, count in buckets]
    rows = np.column_stack([edges[:-1], edges[1:], counts]).ravel().tolist()
    shape = b"".join(bytes_field(2, varint_field(1, size)) for size in (len(counts), 3))
    proto = varint_field(1, 2) + bytes_field(2, shape) + doubles_field(6, rows)
    found = histogram_of({8: memoryview(proto)})
    if not sum(counts):
        assert found is None
        return
    assert found is not None
    assert sum(found.counts) == sum(counts)
    assert (np.diff(found.edges) > 0).all()
