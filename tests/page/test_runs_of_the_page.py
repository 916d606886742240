"""Where the runs of a page are, and what happens to them while it is open."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.browser import printed_url
from support.limits import set_limits
from support.pages import CLIENT, fetch, get
from support.runs import EVAL, TRAIN, Job
from support.servers import ObjectStore
from support.waiting import wait_until
from tensortrial.errors import ConfigurationError, RunNotFound
from tensortrial.maintenance.compaction import compact
from tensortrial.pages import Page, page

TILES = {"run": "run", "statistic": "l2", "mode": "TRAIN"}
LONG = "x" * 5000
NAMES = [
    "<b>a</b>",
    "a\nb",
    "</script>",
    "\u202e\x00",
    LONG,
    "../../etc",
    "日本",
    "a'; drop table tensors",
    "$name",
    "%s",
]
REQUESTS = ["info", "sizes", "names", "tiles", "availability", "findings", "scalar_table", "queries"]


def write(out: Any, steps: int = 3, *, close: bool = True, names: tuple[str, ...] = ("w",), **options: Any) -> Job:
    job = Job(out, **options)
    for number in range(steps):
        values = {name: np.full(4, number + 1.0) for name in names}
        job.publish({**values, "loss": 1.0}, TRAIN, statistics=("l2", "mean"))
    if close:
        job.close()
    return job


def answered(served: Page, run: str = "run") -> dict[str, int]:
    """Return the status of every request that a view makes by itself."""
    given = {**TILES, "run": run, "runs": json.dumps([run]), "columns": 50}
    return {path: get(served, path, **given).status_code for path in REQUESTS}


# Where they are.


def test_a_folder_and_a_pattern_show_the_runs_below_them(tmp_path: Path) -> None:
    for name in ("lr=1", "lr=2", "other"):
        write(tmp_path / "runs" / name)
    with page(tmp_path / "runs") as served:
        assert [run["name"] for run in fetch(served, "info")["runs"]] == ["lr=1", "lr=2", "other"]
        assert set(fetch(served, "sizes")) == {"lr=1", "lr=2", "other"}
    with page([str(tmp_path / "runs" / "lr=*"), tmp_path / "runs" / "lr=1"]) as served:
        assert [run["name"] for run in fetch(served, "info")["runs"]] == ["lr=1", "lr=2"]


def test_the_size_of_a_run_is_that_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "run")
    expected = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    with page(tmp_path / "run") as served:
        assert fetch(served, "sizes") == {"run": expected}


@pytest.mark.s3
def test_runs_in_an_object_store_are_shown(moto_s3: ObjectStore) -> None:
    url = f"{moto_s3.new_bucket()}/runs"
    write(f"{url}/run", storage_options=moto_s3.storage_options)
    with Page(url, storage_options=moto_s3.storage_options).start() as served:
        assert set(answered(served).values()) == {200}
        assert fetch(served, "tiles", **TILES)["starts"] == [0, 1, 2]
        assert fetch(served, "value", run="run", name="w", mode="TRAIN", step=1)["values"] == [2.0] * 4
        query = "select count(*) from tensors where name = 'w'"
        assert fetch(served, "sql", runs='["run"]', sql=query)["rows"] == [[3]]


@pytest.mark.slow
def test_two_dozen_runs_are_listed(tmp_path: Path) -> None:
    for number in range(24):
        write(tmp_path / f"run-{number:02}", 1)
    with page(tmp_path) as served:
        assert len(fetch(served, "info")["runs"]) == 24
        names = json.dumps([f"run-{number:02}" for number in range(24)])
        assert len(fetch(served, "scalars", runs=names, names='["loss"]')) == 24


def test_what_cannot_be_opened_is_named_next_to_the_others(tmp_path: Path) -> None:
    write(tmp_path / "whole")
    write(tmp_path / "torn")
    (tmp_path / "torn" / "run.json").write_text("{")
    with page(tmp_path) as served:
        info = fetch(served, "info")
        assert [run["name"] for run in info["runs"]] == ["whole"]
        assert "torn" in info["damaged"][0]


def test_a_run_whose_file_is_damaged_after_it_was_shown_is_one_marked_row(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        with tensortrial.Run(tmp_path / name) as run:
            for step in range(5):
                run.log({"loss": 1.0}, step=step)
    with page(tmp_path) as served:
        assert {row["run"] for row in fetch(served, "scalar_table")} == {"a", "b", "c"}
        fetch(served, "names", run="b")
        (file,) = (tmp_path / "b" / "index").rglob("*.parquet")
        file.write_bytes(file.read_bytes()[:-40])
        assert {row["run"] for row in fetch(served, "scalar_table")} == {"a", "c"}
        assert fetch(served, "names", run="b") == []
        damaged = {run["name"]: run["damaged"] for run in fetch(served, "info")["runs"]}
        assert file.name in damaged.pop("b")[0]
        assert damaged == {"a": [], "c": []}


@pytest.mark.parametrize("place", ["nothing", "empty"])
def test_a_place_without_runs_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunNotFound, match=place):
        page(tmp_path / place)


def test_an_empty_list_of_runs_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="the list is empty"):
        page([])


# What is in them.


def test_a_run_without_a_step_is_shown_and_followed(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    with page(tmp_path / "run") as served:
        (run,) = fetch(served, "info")["runs"]
        assert (run["steps"], run["modes"], run["statistics"]) == (0, [], [])
        statuses = answered(served)
        assert statuses.pop("tiles") == 400  # there is no statistic; the page does not ask for one
        assert set(statuses.values()) == {200}
        job.publish({"w": np.ones(3)}, TRAIN, statistics=("l2",))
        (run,) = fetch(served, "info")["runs"]
        assert run["steps"] == 1
        assert fetch(served, "tiles", **TILES)["names"] == ["w"]
    job.close()


@pytest.mark.slow
def test_names_that_are_markup_sql_or_very_long_are_answered(tmp_path: Path) -> None:
    write(tmp_path / "run", names=tuple(NAMES))
    with page(tmp_path / "run") as served:
        assert set(answered(served).values()) == {200}
        assert set(fetch(served, "tiles", **TILES)["names"]) == set(NAMES)
        for name in NAMES:
            at = {"run": "run", "name": name, "mode": "TRAIN"}
            assert fetch(served, "tensor", **at)["steps"] == [0, 1, 2]
            assert fetch(served, "series", statistics="l2", **at)["statistics"][0]["mean"] == [2.0, 4.0, 6.0]
            assert fetch(served, "value", step=0, **at)["values"] == [1.0] * 4


def test_a_run_of_nan_and_infinity_is_answered(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for value in (np.nan, np.inf, -np.inf):
        job.step(
            {"w": np.full(4, value), "loss": value}, TRAIN, statistics=("l2", "mean", "std", "min"), histogram=True
        )
    job.close()
    with page(tmp_path / "run") as served:
        assert set(answered(served).values()) == {200}
        at = {"run": "run", "name": "w", "mode": "TRAIN"}
        assert fetch(served, "value", step=1, **at)["values"] == ["Infinity"] * 4
        assert fetch(served, "value", step=0, **at)["extremes"]["nanCount"] == 4
        series = fetch(served, "series", statistics="l2", **at)["statistics"][0]
        assert series["nonfinite"] == 3
        assert isinstance(fetch(served, "histograms", **at), list)
        assert fetch(served, "scalars", runs='["run"]', names='["loss"]')[0]["nonfinite"] == 3


# What happens to them.


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Job, Page]]:
    """A run of five steps that is still open, and its page, which has shown it."""
    job = write(tmp_path / "run", 5, close=False)
    with page(tmp_path / "run") as served:
        assert set(answered(served).values()) == {200}
        yield job, served


def test_a_run_that_is_deleted_is_an_error_that_names_it(tmp_path: Path, watched: tuple[Job, Page]) -> None:
    job, served = watched
    job.close()
    shutil.rmtree(tmp_path / "run")
    assert set(answered(served).values()) <= {200, 400}
    wait_until(lambda: get(served, "info").status_code == 400)
    assert get(served, "names", run="run").json()["error"] == "the run 'run' was deleted; no run is left"
    response = get(served, "value", run="run", name="w", mode="TRAIN", step=1)
    assert response.status_code in (200, 400)
    if response.status_code == 400:
        assert response.json()["error"]


def test_a_deleted_run_is_named_and_the_others_are_answered(tmp_path: Path) -> None:
    for name in "abcd":
        write(tmp_path / name, 2)
    scalars = {"runs": json.dumps(["a", "b", "c", "d"]), "names": '["loss"]'}
    with page(tmp_path) as served:
        assert get(served, "tiles", **{**TILES, "run": "b"}).status_code == 200
        shutil.rmtree(tmp_path / "b")  # a view has shown it
        shutil.rmtree(tmp_path / "c")  # none has
        assert [curve["run"] for curve in fetch(served, "scalars", **scalars)] == ["a", "d"]
        info = fetch(served, "info")
        assert [run["name"] for run in info["runs"]] == ["a", "d"]
        sentence = "it was deleted while the page was open"
        assert sorted(info["damaged"]) == [f"{tmp_path / name}: {sentence}" for name in "bc"]
        assert set(answered(served, "a").values()) == {200}
        for name in "bc":
            assert "was deleted" in get(served, "names", run=name).json()["error"]


def test_a_run_that_is_replaced_is_shown_as_it_is_now(tmp_path: Path) -> None:
    write(tmp_path / "run", 5, names=("old",))
    with page(tmp_path / "run") as served:
        assert fetch(served, "tiles", **TILES)["names"] == ["old"]
        shutil.rmtree(tmp_path / "run")
        write(tmp_path / "run", 3, names=("new",))
        wait_until(lambda: "new" in get(served, "names", run="run").text)
        tiles = fetch(served, "tiles", **TILES)
    assert (tiles["names"], tiles["starts"]) == (["new"], [0, 1, 2])
    with page(tmp_path / "run") as served:
        assert fetch(served, "tiles", **TILES) == tiles


@pytest.mark.parametrize("shown", ["", "a"])
def test_a_run_whose_files_are_called_as_those_of_the_run_before_it_is_shown_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    set_limits(monkeypatch, seconds_between_searches=0.0, share_of_searches=0)

    def log(name: str, value: float, **options: Any) -> None:
        with tensortrial.Run(tmp_path / name, metadata={"value": value}, **options) as run:
            for step in range(4):
                run.log({"loss": value, f"only {value}": value}, step=step)

    def described() -> dict[str, Any]:
        return {run["name"]: run["metadata"]["value"] for run in fetch(served, "info", run=shown)["runs"]}

    def lasts() -> set[tuple[str, str, float]]:
        return {(row["run"], row["name"], row["last"]["value"]) for row in fetch(served, "scalar_table")}

    log("a", 1)
    log("b", 2)
    with page(tmp_path) as served:
        assert described() == {"a": 1, "b": 2}
        assert lasts() == {("a", "loss", 1), ("a", "only 1", 1), ("b", "loss", 2), ("b", "only 2", 2)}
        log("a", 3, on_exists="replace")
        shutil.rmtree(tmp_path / "b")
        log("b", 4)
        wait_until(lambda: described() == {"a": 3, "b": 4})
        assert lasts() == {("a", "loss", 3), ("a", "only 3", 3), ("b", "loss", 4), ("b", "only 4", 4)}


def test_a_run_that_begins_below_a_served_folder_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, seconds_between_searches=0.0, share_of_searches=0, polls_of_ended_runs=1)
    write(tmp_path / "first")
    with page(tmp_path) as served, CLIENT.stream("GET", f"{served.url}api/events", timeout=30) as events:
        lines = events.iter_lines()
        next(lines)
        job = write(tmp_path / "second", 2, close=False)
        assert "data: grown" in lines
        assert [(run["name"], run["steps"]) for run in fetch(served, "info")["runs"]] == [("first", 3), ("second", 2)]
        job.step({"w": np.ones(4)}, TRAIN)
        job.close()
        assert "data: grown" in lines
        assert [run["steps"] for run in fetch(served, "info")["runs"]] == [3, 3]


def test_a_run_is_opened_once_a_view_shows_it(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / f"run-{number}", number)
    said = ["name", "path", "ended", "steps", "saved", "workers", "findings", "started", "framework", "metadata"]
    with page(tmp_path) as served:
        before = fetch(served, "info", run="run-2")["runs"]
        assert [run["opened"] for run in before[1:]] == [False, True, False]
        assert [run["steps"] for run in before] == [0, 1, 2, 3]
        after = [fetch(served, "info", run=f"run-{number}")["runs"][number] for number in range(4)]
        assert all(run["opened"] for run in after)
        assert [[run[key] for key in said] for run in before] == [[run[key] for key in said] for run in after]


def test_opening_a_run_is_no_news_but_what_changed_meanwhile_is(tmp_path: Path) -> None:
    write(tmp_path / "ended")
    write(tmp_path / "replaced")
    job = write(tmp_path / "grows", close=False)
    with page(tmp_path) as served:
        state, _ = served.runs.state()
        fetch(served, "info", run="ended")
        assert served.runs.state() == (state, True)
        served.runs.search()
        assert served.runs.state() == (state, True)

        shutil.rmtree(tmp_path / "replaced")
        write(tmp_path / "replaced")  # its files are called as those of the other one
        fetch(served, "info", run="replaced")
        replaced, _ = served.runs.state()
        assert replaced != state

        fetch(served, "info", run="grows")
        assert served.runs.state() == (replaced, False)
        job.publish({"w": np.ones(4)}, TRAIN)
        grown, _ = served.runs.state()
        assert grown != replaced
        job.close()
        assert served.runs.state() not in [(grown, True), (grown, False)]


def test_other_choices_of_runs_and_runs_that_grow_are_answered_as_they_are_now(tmp_path: Path) -> None:
    folders = ["one/lr=1", "one/lr=2", "two/lr=1", "two/lr=3"]
    jobs = [write(tmp_path / folder, number + 1, close=number != 3) for number, folder in enumerate(folders)]
    names = ["one/lr=1", "lr=2", "two/lr=1", "lr=3"]

    def last_steps(served: Page, chosen: list[str]) -> dict[str, int]:
        rows = fetch(served, "scalar_table", runs=json.dumps(chosen))
        return {row["run"]: row["last"]["step"] for row in rows}

    with page(tmp_path) as served:
        assert {run["name"]: run["steps"] for run in fetch(served, "info")["runs"]} == {
            name: number + 1 for number, name in enumerate(names)
        }
        assert last_steps(served, names) == {name: number for number, name in enumerate(names)}
        # Alone, these two need no longer names than those of their folders.
        assert last_steps(served, [names[0], names[3]]) == {names[0]: 0, names[3]: 3}
        jobs[3].publish({"loss": 1.0}, TRAIN)
        assert last_steps(served, [names[1], names[3]]) == {names[1]: 1, names[3]: 4}
        shutil.rmtree(tmp_path / folders[0])
        assert last_steps(served, names) == {names[1]: 1, names[2]: 2, names[3]: 4}
        write(tmp_path / folders[0], 7)
        served.runs.search()
        assert last_steps(served, names) == {names[0]: 6, names[1]: 1, names[2]: 2, names[3]: 4}
    jobs[3].close()


def test_curves_of_very_many_runs_need_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORTRIAL_MEMORY_LIMIT", "256MB")
    with tensortrial.Run(tmp_path / "run-0") as run:
        for step in range(100):
            run.log(dict.fromkeys(("loss", "accuracy", "norm"), 0.5), step=step)
    for number in range(1, 150):
        shutil.copytree(tmp_path / "run-0", tmp_path / f"run-{number}")
    with page(tmp_path) as served:
        curves = fetch(served, "scalars", runs=json.dumps(served.runs.names), names='["loss", "accuracy", "norm"]')
    assert [curve["steps"] for curve in curves] == [list(range(100))] * 450


def test_a_run_that_is_read_alone_meanwhile_keeps_its_name_among_several(tmp_path: Path) -> None:
    names = ["one/lr=1", "two/lr=1"]
    jobs = [write(tmp_path / name, close=False) for name in names]

    def grow() -> None:
        jobs[0].publish({"loss": 1.0}, TRAIN)

    with page(tmp_path) as served:
        fetch(served, "info")
        grow()
        for steps in (4, 4):
            rows = fetch(served, "scalar_table", runs=json.dumps(names))
            assert {row["run"]: row["steps"] for row in rows} == dict(zip(names, (steps, 3), strict=True))
            served.runs.search()
            fetch(served, "info")  # reads the run that has grown, alone
    for job in jobs:
        job.close()


def test_a_run_that_is_compacted_has_the_same_tiles(tmp_path: Path, watched: tuple[Job, Page]) -> None:
    job, served = watched
    before = fetch(served, "tiles", **TILES)
    job.close()
    compact(tmp_path / "run", delete_older_than=0)
    assert fetch(served, "tiles", **TILES) == before
    zoomed = fetch(served, "tiles", **TILES, **{"from": 1, "to": 3})
    assert zoomed["starts"] == [1, 2, 3]
    assert fetch(served, "value", run="run", name="w", mode="TRAIN", step=1)["values"] == [2.0] * 4


def test_a_worker_that_has_died_is_named_as_late(tmp_path: Path) -> None:
    jobs = [Job(tmp_path / "run", f"worker_{number}", 2) for number in range(2)]
    for number in range(6):
        for job in jobs[: 2 if number < 3 else 1]:
            job.publish({"w": np.ones(3)}, TRAIN, statistics=("l2",))
    with page(tmp_path / "run") as served:
        answer = fetch(served, "availability", run="run", mode="TRAIN", columns=50)
        assert [worker["last"] for worker in answer["workers"]] == [5, 2]
        assert "worker_1" in answer["sentence"]
    for job in jobs:
        job.close()


def test_two_tabs_are_told_of_each_step_and_one_may_leave(watched: tuple[Job, Page]) -> None:
    job, served = watched
    with CLIENT.stream("GET", f"{served.url}api/events", timeout=30) as first:
        left = first.iter_lines()
        next(left)
        with CLIENT.stream("GET", f"{served.url}api/events", timeout=30) as second:
            right = second.iter_lines()
            next(right)
            job.publish({"w": np.ones(3)}, EVAL)
            assert "data: grown" in right
        assert "data: grown" in left
        job.publish({"w": np.ones(3)}, EVAL)
        assert "data: grown" in left
    job.close()


def test_many_requests_at_once_are_answered_alike(watched: tuple[Job, Page]) -> None:
    job, served = watched
    found: list[str] = []

    def request(columns: int) -> None:
        found.append(get(served, "tiles", **TILES, columns=columns).text)

    threads = [threading.Thread(target=request, args=(100,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert len(set(found)) == 1
    job.close()


# The server.


def test_a_port_in_use_is_an_error_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}"):
            page(tmp_path / "run", port=port)


@pytest.mark.parametrize(("name", "value"), [("port", "x"), ("port", None), ("host", 5)])
def test_an_address_that_is_none_is_an_error_that_names_it(tmp_path: Path, name: str, value: Any) -> None:
    write(tmp_path / "run")
    with pytest.raises(ConfigurationError, match=f"cannot listen on .*{value}.*; pass another one"):
        page(tmp_path / "run", **{name: value})


@pytest.mark.parametrize("token", ["a/b", "a?b", "a b", "é", "\udcff", 5])
def test_a_token_that_an_address_cannot_have_is_refused(tmp_path: Path, token: Any) -> None:
    write(tmp_path / "run")
    with pytest.raises(ConfigurationError, match="token must be a text of letters, digits"):
        page(tmp_path / "run", token=token)


def test_a_page_that_cannot_open_its_runs_leaves_the_port_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(RunNotFound):
        page(tmp_path / "nothing", port=port)
    socket.create_server(("127.0.0.1", port)).close()


def test_on_all_addresses_a_page_is_known_by_each_of_them_and_by_no_domain(tmp_path: Path) -> None:
    write(tmp_path / "run")
    with page(tmp_path / "run", host="0.0.0.0") as served:
        assert served.url.startswith("http://127.0.0.1:")
        port = served.url.split(":")[2].split("/")[0]
        for host, status in (
            (f"127.0.0.1:{port}", 200),
            (f"192.168.1.17:{port}", 200),
            (f"{socket.gethostname()}:{port}", 200),
            (f"evil.example:{port}", 403),
            ("192.168.1.17.evil.example", 403),
        ):
            response = CLIENT.get(f"{served.url}api/info", headers={"Host": host})
            assert (host, response.status_code) == (host, status)
        assert CLIENT.get(f"http://127.0.0.1:{port}/api/info").status_code == 403
        wrong = {"Host": f"192.168.1.17:{port}", "Origin": f"http://192.168.1.18:{port}"}
        assert CLIENT.get(f"{served.url}api/info", headers=wrong).status_code == 403


def test_a_page_behind_a_proxy_is_known_by_the_names_that_are_allowed(tmp_path: Path) -> None:
    write(tmp_path / "run")
    with page(tmp_path / "run", allowed_hosts=["Train.example"]) as served:
        address = served.url.split("/")[2]
        for headers, status in (
            ({"Host": "train.example", "Origin": "https://train.example"}, 200),
            ({"Host": "train.example:8443"}, 200),
            ({"Host": address, "Origin": "https://train.example"}, 200),  # of a proxy that writes its own Host
            ({"Host": address, "Origin": "https://evil.example"}, 403),
            ({"Host": "evil.example", "Origin": "https://train.example"}, 403),
            ({"Host": "train.example.evil.example"}, 403),
        ):
            assert (headers, CLIENT.get(f"{served.url}api/info", headers=headers).status_code) == (headers, status)


@pytest.mark.slow
def test_ctrl_c_ends_a_page_that_a_tab_follows_without_a_word_of_it(tmp_path: Path) -> None:
    for number in range(12):  # described in a thread of their own, which must end before Python does
        write(tmp_path / f"run{number}")
    command = [sys.executable, "-m", "tensortrial", "page", str(tmp_path), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with CLIENT.stream("GET", f"{printed_url(process)}api/events", timeout=60) as events:
        next(events.iter_lines())
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert said == "Interrupted\n"
    assert process.returncode == 130


def test_a_token_of_another_length_or_in_another_place_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "run")
    with page(tmp_path / "run", token="secret") as served:
        root = served.url.removesuffix("secret/")
        assert CLIENT.get(f"{root}secret/api/info").status_code == 200
        for path in ("secre/api/info", "secrets/api/info", "api/info?token=secret", "x/secret/api/info", "secret"):
            assert CLIENT.get(root + path).status_code == 403
    with page(tmp_path / "run", token="") as served:
        assert CLIENT.get(f"{served.url}api/info").status_code == 200
