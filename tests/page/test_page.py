"""The page over real HTTP: who may read it, and what each request answers."""

from __future__ import annotations

import base64
import io
import json
import math
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensortrial
from support.commands import run_command
from support.pages import CLIENT, fetch
from support.queried_runs import write_runs
from support.runs import EPOCH, TRAIN, Job
from support.waiting import wait_until
from tensortrial.comparison import compare
from tensortrial.format.record import Plan, Record
from tensortrial.pages import Page, page
from tensortrial.pages.app import STATIC
from tensortrial.pages.findings import evaluate_rules, findings
from tensortrial.pages.open_run import OpenRun
from tensortrial.pages.overview import describe_run
from tensortrial.rules import invoke_rule, make_rule

HOSTILE = "<img src=x onerror=alert(1)>\"'\n\u202e\ud7ff</script>%00../日本"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder)
    return folder


def unpack(tiles: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Return most, least, mean, finite, nonfinite, each (rows, columns), as `pack` describes the bytes."""
    shape = len(tiles["names"]), len(tiles["starts"])
    planes = np.frombuffer(zlib.decompress(base64.b64decode(tiles["packed"])), "u1").reshape(-1, 2, *shape)
    halves = planes[:, 0].astype("u2") << 8 | planes[:, 1]
    floats = [halves[0], halves[0] + halves[1], halves[0] + halves[2]]
    return [*((each.astype("u4") << 16).view("f4") for each in floats), halves[3], halves[4]]


# Who may read.


def test_a_request_without_the_token_is_refused(served: Page) -> None:
    root = served.url.rsplit("/", 2)[0]
    for path in ("/", "/api/info", "/wrong/api/info", "/static/app.js"):
        response = CLIENT.get(root + path)
        assert response.status_code == 403
        assert "token" in response.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_a_request_of_another_site_is_refused(served: Page, headers: dict[str, str]) -> None:
    assert CLIENT.get(f"{served.url}api/info", headers=headers).status_code == 403


def test_a_request_of_the_page_itself_is_answered(served: Page) -> None:
    origin = served.url.rsplit("/", 2)[0]
    assert CLIENT.get(f"{served.url}api/info", headers={"Origin": origin}).status_code == 200


def test_every_answer_has_a_strict_policy(served: Page) -> None:
    for path in ("", "static/app.js", "api/info", "api/nothing", "static/nothing"):
        headers = CLIENT.get(served.url + path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_a_request_may_be_posted_if_it_is_too_long_for_an_address(served: Page) -> None:
    parameters = {"runs": json.dumps(["left"]), "sql": f"select 1 as one -- {'x' * 200_000}"}
    answer = CLIENT.post(f"{served.url}api/sql", data=parameters)
    assert answer.json()["rows"] == [[1]]
    assert CLIENT.post(f"{served.url}api/sql", data={"sql": "x" * 17_000_000}).status_code == 413
    assert CLIENT.post(f"{served.url}api/sql", data=parameters, headers={"Origin": "http://evil"}).status_code == 403
    assert CLIENT.post(served.url).status_code == 405


def test_no_file_outside_of_the_folder_is_served(served: Page) -> None:
    for path in ("static/../app.py", "static/%2e%2e/app.py", "static/..%2fapp.py"):
        assert CLIENT.get(served.url + path).status_code in (403, 404)


def test_the_pages_own_modules_are_small_and_need_no_build(served: Page) -> None:
    modules = [path for path in STATIC.rglob("*.js") if path.parent.name != "vendor"]
    for path in modules:
        response = CLIENT.get(f"{served.url}static/{path.relative_to(STATIC).as_posix()}")
        assert response.content == path.read_bytes()
    assert len(modules) > 20
    assert sum(path.stat().st_size for path in modules) < 200_000


# What is answered.


def test_info_describes_the_runs(served: Page) -> None:
    left, right = fetch(served, "info", run="left")["runs"]
    assert (left["name"], right["name"]) == ("left", "right")
    assert left["workers"] == ["worker_0", "worker_1"]
    assert left["ended"]
    assert {"mode": "TRAIN", "first": 0, "last": 8, "steps": 9} in left["modes"]
    assert {"l2", "abs_max", "value"} <= set(left["statistics"])


def test_tiles_hold_the_saved_statistics(served: Page) -> None:
    tiles = fetch(served, "tiles", run="right", statistic="value", mode="GLOBAL", columns=300)
    most, least, mean, finite, nonfinite = unpack(tiles)
    row = tiles["names"].index("loss")
    expected = [2 / (1 + step) for step in range(12)]
    assert most[row, :10] == pytest.approx(expected[:10], rel=0.01)
    assert np.array_equal(most[row, :10], least[row, :10])
    assert np.array_equal(most[row, :10], mean[row, :10])
    assert math.isnan(most[row, 10])
    assert (finite[row, 10], nonfinite[row, 10]) == (0, 1)


def test_a_series_has_nan_where_the_value_is(served: Page) -> None:
    answer = fetch(served, "series", run="right", name="loss", mode="GLOBAL", statistics="value", points=100)
    (value,) = answer["statistics"]
    assert answer["steps"] == list(range(12))
    assert value["mean"][10] == "NaN"
    assert value["nonfinite"] == 1


def test_the_difference_of_two_runs_is_that_of_compare(served: Page, folder: Path) -> None:
    answer = fetch(served, "difference", a="left", b="right")
    first, *rest = answer["rows"]
    assert first["first"]
    expected = compare(folder / "left", folder / "right")
    assert expected.first is not None
    assert (first["step"], first["name"]) == (0, expected.first.difference.name)
    assert first["what"] == str(expected.first.difference)
    assert not any(row["first"] for row in rest)
    assert len(rest) == len(expected.differences) - 1
    assert answer["sentence"] == expected.sentence
    assert any(line.startswith("only left has 1 worker: worker_1") for line in answer["lines"])
    assert fetch(served, "difference", a="left", b="left")["same"]


def test_the_difference_of_two_runs_has_a_tolerance(served: Page) -> None:
    exact = {row["name"] for row in fetch(served, "difference", a="left", b="right")["rows"]}
    within = {row["name"] for row in fetch(served, "difference", a="left", b="right", rtol=2.0, atol="1e3")["rows"]}
    assert within < exact
    response = CLIENT.get(f"{served.url}api/difference", params={"a": "left", "b": "right", "rtol": "some"})
    assert "rtol must be a number such as 1e-5, got 'some'" in response.json()["error"]


def test_availability_counts_steps_by_worker(served: Page) -> None:
    answer = fetch(served, "availability", run="left", mode="TRAIN", columns=100)
    assert [worker["saved"] for worker in answer["workers"]] == [[1] * 9, [1] * 9]


def test_the_times_of_a_curve_are_those_of_its_steps(served: Page) -> None:
    (curve,) = [
        each
        for each in fetch(served, "scalars", runs='["left"]', names='["loss"]', points=100)
        if each["mode"] == "TRAIN"
    ]
    query = (
        "select epoch_us(min(saved_at)) / 1000 from scalars where name = 'loss' and mode = 'TRAIN' "
        "group by mode_step order by mode_step"
    )
    rows = fetch(served, "sql", runs='["left"]', sql=query)["rows"]
    assert curve["times"] == [time for (time,) in rows]


def test_scalars_of_many_runs_are_curves(served: Page) -> None:
    curves = fetch(served, "scalars", runs='["left","right"]', names='["loss"]', points=100)
    assert {(curve["run"], curve["mode"]) for curve in curves} == {
        (run, mode) for run in ("left", "right") for mode in ("TRAIN", "EVAL")
    }


def test_sql_answers_of_one_run_or_of_several_and_lists_its_views(served: Page) -> None:
    query = "select count(*) from scalars where name = 'loss'"
    assert fetch(served, "sql", runs='["right"]', sql=query)["rows"] == [[12]]
    query = "select run, count(*) from scalars where name = 'loss' group by run order by run"
    assert fetch(served, "sql", runs='["left","right"]', sql=query)["rows"] == [["left", 24], ["right", 12]]
    assert len(fetch(served, "sql", sql=query)["rows"]) == len(fetch(served, "info")["runs"])
    views = {view["name"]: view["columns"] for view in fetch(served, "views", run="left")}
    assert {"run", "name", "value", "mode_step"} <= set(views["scalars"])


def test_sql_refuses_to_write(served: Page) -> None:
    for query in ("create table x (y int)", "copy (select 1) to '/tmp/x'", "select * from read_text('/etc/passwd')"):
        response = CLIENT.get(f"{served.url}api/sql", params={"runs": '["left"]', "sql": query})
        assert response.status_code == 400
        assert response.json()["error"]


def test_an_answer_of_sql_has_some_megabytes_at_most(served: Page) -> None:
    wide = ", ".join(f"repeat('x', 9000) as c{i}" for i in range(5))
    answer = fetch(served, "sql", runs='["left"]', sql=f"select {wide} from range(3000)")
    assert answer["more"]
    assert 8e6 < sum(len(value) for row in answer["rows"] for value in row) < 9e6
    assert len(fetch(served, "sql", runs='["left"]', sql="select range from range(3000)")["rows"]) == 2000


@pytest.mark.slow
def test_a_query_that_needs_too_much_memory_is_an_error_and_the_page_lives(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTRIAL_MEMORY_LIMIT", "256MB")
    with page(folder / "left") as served:
        for query in ("select list(range) from range(200000000)", "select repeat('x', 2000000000)"):
            response = CLIENT.get(f"{served.url}api/sql", params={"runs": '["left"]', "sql": query}, timeout=120)
            assert response.status_code == 400
            assert "needs more memory than the page allows" in response.json()["error"]
        assert fetch(served, "sql", runs='["left"]', sql="select 1 as one")["rows"] == [[1]]


def test_a_page_that_closes_ends_the_query_that_it_is_answering_without_a_word_of_it(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def children() -> set[str]:
        lists = Path("/proc/self/task").glob("*/children")
        return {number for each in lists for number in each.read_text().split()}

    before = children()
    endless = {"runs": '["left"]', "sql": "select count(*) from range(100_000_000_000_000)"}
    with ThreadPoolExecutor() as pool:
        with page(folder / "left") as served:
            asked = pool.submit(CLIENT.get, f"{served.url}api/sql", params=endless, timeout=120)
            wait_until(lambda: children() - before)
        wait_until(lambda: not children() - before)
    assert asked.exception() or asked.result().status_code == 500
    assert capfd.readouterr() == ("", "")


def test_a_named_query_takes_parameters(served: Page) -> None:
    answer = fetch(served, "query", run="left", query="gradient_norms", parameters='{"collection": "gradients"}')
    assert {row[0] for row in answer["rows"]} == {"left"}


def test_a_histogram_has_the_quantiles_of_the_values(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=20_000)
    with Job(tmp_path / "run") as job:
        job.step({"w": values})
    with page(tmp_path / "run") as served:
        (found,) = fetch(served, "histograms", run="run", name="w", mode="GLOBAL")
    assert found["quantiles"] == pytest.approx(np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]), abs=0.05)


def test_notes_are_written_next_to_what_the_job_wrote(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"w": np.ones(2)})
    with Job(tmp_path / "other") as job:
        job.step({"w": np.ones(2)})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    notes = {"run": "run", "change": '{"note": "good", "tags": ["b", "a"], "archived": true}'}
    with page(tmp_path) as served:
        response = CLIENT.post(f"{served.url}api/notes", params=notes)
        assert response.json() == {"note": "good", "tags": ["a", "b"], "archived": True}
        run = next(run for run in fetch(served, "info")["runs"] if run["name"] == "run")
        assert [run[key] for key in ("note", "tags", "archived")] == ["good", ["a", "b"], True]
        assert fetch(served, "info")["editable"]
        other = CLIENT.post(f"{served.url}api/notes", params={"run": "run", "change": '{"archived": false}'})
        assert other.json() == {"note": "good", "tags": ["a", "b"], "archived": False}
        for wrong in ("[]", '{"tags": "a"}'):
            refused = CLIENT.post(f"{served.url}api/notes", params={"run": "run", "change": wrong})
            assert refused.status_code == 400
    assert {path: path.read_bytes() for path in before} == before
    assert tensortrial.annotate(tmp_path / "run").tags == ["a", "b"]
    with page(tmp_path, token="") as served:
        assert not fetch(served, "info")["editable"]
        refused = CLIENT.post(f"{served.url}api/notes", params={**notes, "change": '{"note": "bad"}'})
        assert (refused.status_code, "a page without a token" in refused.text) == (400, True)
    assert tensortrial.annotate(tmp_path / "run").note == "good"


def test_a_value_of_more_than_two_dimensions_is_a_mosaic_of_its_slices(tmp_path: Path) -> None:
    filters = np.arange(4 * 2 * 3 * 3, dtype=np.float32).reshape(4, 2, 3, 3)
    with Job(tmp_path / "run") as job:
        job.step({"w": filters})
    at = {"run": "run", "name": "w", "mode": "GLOBAL", "step": 0}
    with page(tmp_path / "run") as served:
        value = fetch(served, "value", **at)
        across = value["tiles"]["across"]
        assert across % 2 == 0  # the channels of a filter are in one row
        grid = np.array(value["values"], object).reshape(value["rows"], value["columns"])
        for tile, expected in enumerate(filters.reshape(-1, 3, 3)):
            row, column = 4 * (tile // across), 4 * (tile % across)
            assert (grid[row : row + 3, column : column + 3] == expected).all()
        assert {grid[3, 0], grid[0, 3]} == {None}
        one = fetch(served, "value", slice="3, 1, :, :", **at)
        assert (one["values"], one["slice"]) == (filters[3, 1].ravel().tolist(), "3, 1, :, :")
        turned = fetch(served, "value", slice=":, 1, 2, :", **at)
        assert turned["values"] == filters[:, 1, 2, :].ravel().tolist()
        for wrong in ("9, 0, :, :", "0, :", "a, 0, :, :", ":, :, :, :"):
            assert fetch(served, "value", slice=wrong, **at)["tiles"]


@pytest.mark.parametrize("shape", [(6, 5, 3), (3, 6, 5), (6, 5, 1), (6, 5, 4)])
def test_an_array_of_bytes_of_three_dimensions_is_an_image(tmp_path: Path, shape: tuple[int, ...]) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    with Job(tmp_path / "run") as job:
        job.step({"image": pixels, "number": pixels.astype(np.int16)})
    at = {"run": "run", "mode": "GLOBAL", "step": 0}
    with page(tmp_path / "run") as served:
        address = fetch(served, "value", name="image", **at)["image"]
        assert fetch(served, "value", name="number", **at)["image"] is None
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,")))))
    expected = np.moveaxis(pixels, 0, -1) if shape[0] == 3 else pixels
    np.testing.assert_array_equal(shown, expected.squeeze())


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "float8_e5m2", "complex64", "i4,f8"])
def test_a_value_is_a_file_of_numpy(tmp_path: Path, dtype: str) -> None:
    value = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype, dtype))
    with Job(tmp_path / "run") as job:
        job.step({"w": value})
    with page(tmp_path / "run") as served:
        response = CLIENT.get(f"{served.url}api/npy", params={"run": "run", "name": "w", "step": 0})
        gone = CLIENT.get(f"{served.url}api/npy", params={"run": "run", "name": "w", "step": 7})
    loaded = np.load(io.BytesIO(response.content))
    assert loaded.dtype == ("float32" if hasattr(ml_dtypes, dtype) else dtype)
    np.testing.assert_array_equal(loaded, value.astype(loaded.dtype))
    assert gone.status_code == 400


def test_two_runs_are_compared_with_all_that_differs_besides_their_tensors(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        metadata = {"model": {"lr": rate, "width": 8}, "data": "digits", "decay": rate / 3}
        with tensortrial.Run(tmp_path / name, metadata=metadata) as run:
            run.log({"loss": rate}, step=0)
    with page(tmp_path) as served:
        about = fetch(served, "difference", a="a", b="b")["about"]
    assert ["model.lr", 0.1, 0.2] in about
    assert ["decay", 0.1 / 3, 0.2 / 3] in about
    assert not [row for row in about if row[0] in ("model.width", "data", "process_id")]


def test_what_a_rule_finds_again_and_again_is_one_finding_with_a_count(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(30):
            job.step(
                {"a": np.array([np.nan if step >= 3 else 1.0]), "b": np.array([np.nan if step in (10, 20) else 1.0])}
            )
    invoke_rule(make_rule("ExplodingTensor", tensortrial.create_trial(tmp_path / "run")))
    with page(tmp_path / "run") as served:
        found = fetch(served, "findings", run="run")
        assert fetch(served, "info")["runs"][0]["findings"] == 2
    assert [[each[key] for key in ("tensor", "step", "times", "last")] for each in found] == [
        ["a", 3, 27, 29],
        ["b", 10, 2, 20],
    ]


def test_findings_about_a_run_as_a_whole_come_last(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"w": np.array([np.nan])})
    assert run_command("watch", tmp_path / "run", "--rule", "LossNotDecreasing", "--rule", "ExplodingTensor", status=2)
    run_command("report", tmp_path / "run", "-o", tmp_path / "report.html", status=1)
    with page(tmp_path / "run") as served:
        found = fetch(served, "findings", run="run")
    assert [(each["rule"], each["step"], each["last"]) for each in found] == [
        ("ExplodingTensor", 0, 0),
        ("LossNotDecreasing", None, None),
    ]


def test_what_rules_have_written_into_the_run_is_found_once(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"w": np.array([1.0, np.nan])})
    trial = tensortrial.create_trial(tmp_path / "run")
    run = OpenRun(trial)
    for _ in range(2):
        evaluate_rules(run)
        assert len(findings(run)) == describe_run(run)["findings"] == 1
        invoke_rule(make_rule("ExplodingTensor", trial))


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("nothing", {}),
        ("tiles", {"run": "left", "mode": "NONE", "statistic": "l2"}),
        ("tiles", {"run": "other", "statistic": "l2"}),
        ("tiles", {"run": "left", "statistic": "l2); drop"}),
        ("tiles", {"run": "left", "statistic": "l2", "columns": "many"}),
        ("tiles", {"run": "left", "statistic": "l2", "from": str(2**70)}),
        ("histograms", {"run": "left", "name": "loss", "to": str(-(2**63))}),
        ("tensor", {"run": "left", "name": "no such"}),
        ("scalars", {"runs": "left", "names": "[]"}),
        ("scalars", {"names": "[]"}),
        ("value", {"run": "left", "name": "net.w"}),
    ],
)
def test_a_wrong_request_is_a_sentence(served: Page, path: str, parameters: dict[str, str]) -> None:
    response = CLIENT.get(f"{served.url}api/{path}", params=parameters)
    assert response.status_code == 400
    assert response.json()["error"]


# Runs of all kinds.


def write_step(job: Job, values: dict[str, Any], statistics: tuple[str, ...] = ("l2",)) -> None:
    step = job.begin(TRAIN)
    records = [Record(Plan(name, (), True, statistics), value, EPOCH) for name, value in values.items()]
    job.writer.put(step, records, closes=True)


def test_a_series_is_derived_where_another_statistic_was_saved_for_a_time(tmp_path: Path) -> None:
    for number, name in enumerate(("std", "variance", "std")):
        form = tensortrial.ReductionConfig(reductions=[name], save_shape=True)
        with tensortrial.Run(tmp_path / "run", reduction_config=form, resume=number > 0) as run:
            for step in range(10 * number, 10 * number + 10):
                run.save_tensor("w", np.array([0.0, 4.0]), step=step)
    with page(tmp_path / "run") as served:
        found = fetch(served, "series", run="run", name="w", mode="GLOBAL", statistics="std", points=1000)
    assert found["statistics"][0]["mean"] == [2.0] * 30


def test_only_statistics_are_listed_that_a_series_has(tmp_path: Path) -> None:
    form = tensortrial.ReductionConfig(reductions=["mean", "variance", "min"])
    with tensortrial.Run(tmp_path / "run", reduction_config=form) as run:
        run.save_tensor("w", np.arange(4.0), step=0)
        run.save_tensor("complex", np.ones(4, np.complex64), step=0)
    with page(tmp_path / "run") as served:
        for name in ("w", "complex"):
            listed = fetch(served, "tensor", run="run", name=name, mode="GLOBAL")["statistics"]
            found = fetch(served, "series", run="run", name=name, mode="GLOBAL", statistics=",".join(listed), points=10)
            assert [each["statistic"] for each in found["statistics"] if each["last"] is not None] == listed
        assert "l2" in fetch(served, "tensor", run="run", name="w", mode="GLOBAL")["statistics"]


def test_names_and_values_of_any_kind_are_answered(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    volume = np.arange(2 * 300 * 400, dtype=np.float32).reshape(2, 300, 400)
    volume[1, 299, 399] = np.nan
    write_step(
        job, {HOSTILE: volume, "empty": np.zeros((0, 3)), "text": np.array("a"), "line": np.array([1.0, np.inf])}
    )
    job.close()
    with page(tmp_path / "run") as served:
        assert HOSTILE in fetch(served, "names", run="run")
        at = {"run": "run", "mode": "TRAIN", "step": 0}
        value = fetch(served, "value", name=HOSTILE, slice="1, :, :", **at)
        assert value["values"][-1] == "NaN"
        assert value["extremes"]["nan"] == [1, 299, 399]
        assert len(value["values"]) == value["rows"] * value["columns"] <= 20_000
        assert fetch(served, "value", name="text", **at) is None
        assert fetch(served, "value", name="empty", **at)["values"] == []
        assert fetch(served, "value", name="line", **at)["values"] == [1.0, "Infinity"]
        assert fetch(served, "tensor", run="run", mode="TRAIN", name=HOSTILE)["steps"] == [0]


def test_a_spike_of_one_step_is_visible_at_every_zoom_level(tmp_path: Path) -> None:
    steps, spike = 2500, 1617  # more than the columns that are kept of a run
    job = Job(tmp_path / "run")
    for number in range(steps):
        write_step(job, {"x": np.float64(1000.0 if number == spike else 1.0)}, ())
    job.close()
    with page(tmp_path / "run") as served:
        for columns in (1, 7, 60, 200, 1000):
            tiles = fetch(served, "tiles", run="run", statistic="value", mode="TRAIN", columns=columns)
            most, least, *_ = unpack(tiles)
            assert len(tiles["starts"]) <= columns
            assert (most.max(), least.min()) == (1000.0, 1.0)
            (at,) = np.flatnonzero(most[0] == 1000)
            assert tiles["starts"][at] <= spike < [*tiles["starts"], tiles["end"]][at + 1]
        close = {"from": spike - 10, "to": spike + 10}
        tiles = fetch(served, "tiles", run="run", statistic="value", mode="TRAIN", columns=100, **close)
        assert tiles["starts"] == list(range(spike - 10, spike + 11))
        assert unpack(tiles)[0][0].tolist().index(1000.0) == 10


def test_a_run_that_grows_is_followed(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    write_step(job, {"x": np.array([1.0])})
    job.writer.flush()
    with page(tmp_path / "run") as served, CLIENT.stream("GET", f"{served.url}api/events", timeout=30) as events:
        lines = events.iter_lines()
        assert next(lines).startswith("retry")
        query = {"run": "run", "statistic": "l2", "mode": "TRAIN", "columns": 300}
        assert fetch(served, "tiles", **query)["starts"] == [0]
        write_step(job, {"x": np.array([2.0]), "y": np.array([3.0])})
        job.writer.flush()
        assert "data: grown" in lines
        tiles = fetch(served, "tiles", **query)
        assert (tiles["names"], tiles["starts"]) == (["x", "y"], [0, 1])
        job.close()
        assert "data: grown" in lines
        assert fetch(served, "info")["runs"][0]["ended"]


def test_a_run_whose_only_file_is_damaged_is_shown_without_it(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        write_step(job, {"x": np.array([1.0])})
    (file,) = (tmp_path / "run" / "index").rglob("*.parquet")
    data = file.read_bytes()
    file.write_bytes(data[:4] + bytes(40) + data[44:])
    with page(tmp_path / "run") as served:
        (run,) = fetch(served, "info")["runs"]
        assert run["statistics"] == []
        assert file.name in fetch(served, "availability", run="run", mode="TRAIN", columns=9)["damaged"][0]


def test_a_run_with_a_damaged_file_is_shown_without_it(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for _ in range(3):
        write_step(job, {"x": np.array([1.0])})
        job.writer.flush()
    job.close()
    files = sorted((tmp_path / "run" / "index").rglob("*.parquet"))
    files[1].write_bytes(files[1].read_bytes()[:-40])
    with page(tmp_path / "run") as served:
        tiles = fetch(served, "tiles", run="run", statistic="l2", mode="TRAIN", columns=300)
        assert tiles["starts"] == [0, 1, 2]
        assert unpack(tiles)[3].tolist() == [[1, 0, 1]]
        assert files[1].name in fetch(served, "availability", run="run", mode="TRAIN", columns=9)["damaged"][0]
        (damaged,) = fetch(served, "diagnosis", run="run")["damaged"]
        assert damaged["path"].endswith(files[1].name)
        assert damaged["reason"]


def test_the_view_of_a_tensor_begins_with_one_of_several_elements(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(3):
            run.log({"loss": 1.0}, step=step)
            run.save_tensor("w", np.ones(4), step=step)
    with page(tmp_path / "run") as served:
        assert fetch(served, "names", run="run") == ["w", "loss"]


def test_nan_is_not_marked_where_it_is_no_fault(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        run.save_tensor("trees/Split", np.array([1.0, np.nan]), "trees", step=0)
        run.save_tensor("w", np.array([1.0, np.nan]), step=0)
    with page(tmp_path / "run") as served:
        found = fetch(served, "tiles", run="run", statistic="l2", mode="GLOBAL")
    assert (found["names"], unpack(found)[4].tolist()) == (["trees/Split", "w"], [[0], [1]])


def test_hyperparameters_and_update_ratios_are_no_curves_that_a_page_opens_on(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        names = ("loss", "update_ratio/a", "update_ratio/b", "hyperparameters/SGD/group_0/lr")
        job.step({"a": np.ones(2), "b": np.ones(2), **dict.fromkeys(names, 0.5)}, statistics=("mean",))
    found = describe_run(OpenRun(tensortrial.create_trial(tmp_path / "run")))
    assert (found["tensors"], found["numbers"]) == (2, 1)
