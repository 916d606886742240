"""The page of several runs in a real browser: the list at the side, the table, curves, and files of them."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import tensortrial
from support.browser import MARKS, picture, ready, serving, show, text
from tensortrial.cli.commands import main
from tensortrial.importers.csv import import_run
from tensortrial.pages.report import report

pytestmark = MARKS

RUNS = [f"run-{number:02d}" for number in range(10)]
VIEWS = ["runs", "scalars", "compare", "sql"]


def write(out: Path, number: int) -> None:
    """Write a run of numbers, whose learning rate and loss follow from a number."""
    metadata = {"lr": 10.0 ** -(1 + number % 4), "model": {"width": 32 * (1 + number % 2)}, "data": "digits"}
    with tensortrial.Run(out, metadata=metadata) as run:
        for step in range(20):
            with run.step(mode="TRAIN"):
                noise = 1 if step % 2 else -1
                run.log(
                    {"train/loss": number + 10 / (1 + step) + noise, "train/accuracy": step / 20, "setup/seed": 7.0}
                )
            if step % 5 == 4:
                with run.step(mode="EVAL"):
                    run.log({"train/loss": number + 1.0})
        run.log({"rare": math.pi}, step=100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    for number, name in enumerate(RUNS):
        write(folder / name, number)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


def listed(tab: Any) -> list[str]:
    """Return the runs of the list at the side, from top to bottom."""
    return [str(name) for name in tab.locator("#runs li a.name").all_inner_texts()]


def rows(tab: Any) -> list[str]:
    """Return the runs of the table, from top to bottom."""
    return [str(name) for name in tab.locator("tbody .runname a").all_inner_texts()]


def test_the_page_can_be_used_after_its_first_request_failed(url: str, tab: Any) -> None:
    tab.route("**/api/info*", lambda route: route.fulfill(status=400, json={"error": "no run can be read"}), times=1)
    tab.goto(url)
    tab.wait_for_selector("main .error")
    assert text(tab, "main .error") == "no run can be read"
    tab.get_by_label("Keyboard").click()
    assert tab.locator("#help").is_visible()
    tab.get_by_role("button", name="Close").click()
    tab.get_by_label("Light or dark").click()
    tab.wait_for_selector("html[data-theme=dark] tbody tr")  # what is chosen is loaded again


# The view that a run opens on.


def test_several_runs_open_on_their_table_and_numbers_on_their_curves(url: str, folder: Path, tab: Any) -> None:
    show(tab, url)
    assert text(tab, "nav a[aria-current]") == "Runs"
    assert [title.split(" (")[0] for title in tab.locator("nav a").all_inner_texts()] == [
        "Runs", "Overview", "Scalars", "Tensor", "Compare", "Findings", "SQL",
    ]  # fmt: skip
    ready(tab, lambda: tab.locator("tbody").get_by_role("link", name="run-03").click())
    assert text(tab, "nav a[aria-current]") == "Scalars"
    with serving(folder / "run-03") as alone:
        show(tab, alone)
        assert text(tab, "nav a[aria-current]") == "Scalars"
        assert tab.locator("#runs").is_hidden()


def test_a_run_of_tensors_opens_on_the_heat_map_under_its_diagnosis(tmp_path: Path, tab: Any) -> None:
    import numpy as np

    from support.plain_hook import Hook
    from tensortrial.config.reduction_config import ReductionConfig
    from tensortrial.config.save_config import SaveConfig

    hook = Hook(str(tmp_path / "nan"), save_config=SaveConfig(save_interval=1))
    hook.get_collection("all").reduction_config = ReductionConfig(["mean"], norms=["l2"])
    for step in range(30):
        with hook.step():
            for name in ("net.block.weight", "net.block.bias", "net.head.weight"):
                broken = step >= 20 and name == "net.head.weight"
                value = np.full(8, np.nan if broken else 1 + step % 3 / 10)
                hook.save_tensor(name, value, "all")
    hook.close()
    with serving(tmp_path / "nan") as url:
        show(tab, url)
        assert text(tab, "nav a[aria-current]") == "Overview"
        tab.wait_for_selector(".diagnosed b")
        assert "step 20" in text(tab, ".diagnosed")
        assert "net.head.weight" in text(tab, ".diagnosed")
        assert text(tab, ".worst li a") == "head.weight"  # all names begin with net.
        assert "NaN or infinity at step 20" in text(tab, ".worst li")
        assert "deviations from its own past" in text(tab, ".legend")
        assert "The names begin with net." in text(tab)
        ready(tab, lambda: tab.get_by_label("fold").select_option("2"))
        tab.focus("canvas.heatmap")
        tab.keyboard.press("Home")
        assert text(tab, "#tooltip .name") == "net"
        tab.keyboard.press("Escape")
        assert tab.locator("#tooltip").is_hidden()


def write_boosting(folder: Path) -> None:
    """Write a run of three trees, two metrics and ten importances."""
    from support.plain_hook import Hook
    from tensortrial.config.reduction_config import ReductionConfig
    from tensortrial.config.save_config import SaveConfig

    hook = Hook(str(folder), save_config=SaveConfig(save_interval=1))
    hook.get_collection("all").reduction_config = ReductionConfig(["mean"], norms=["l2"])
    for step in range(40):
        with hook.step():
            for name in ("trees/Gain", "trees/Cover", "trees/Node"):
                hook.save_tensor(name, np.full(8, 1 + step % 3 / 10), "all")
            hook.save_scalar("train-logloss", 1 / (1 + step))
            hook.save_scalar("validation-logloss", np.nan if step == 30 else 1 / (1 + step))
            for feature in range(10):
                hook.save_scalar(f"importance/f{feature}", feature * step)
    hook.close()


def test_a_run_of_few_tensors_and_more_numbers_opens_on_curves_under_its_diagnosis(tmp_path: Path, tab: Any) -> None:
    write_boosting(tmp_path / "boosting")
    with serving(tmp_path / "boosting") as url:
        show(tab, url)
        assert text(tab, "nav a[aria-current]") == "Scalars"
        tab.wait_for_selector(".diagnosed b")
        assert "step 30" in text(tab, ".diagnosed")
        assert text(tab, ".panel").startswith("logloss")
        ready(tab, lambda: tab.get_by_role("link", name="in the overview").click())
        assert text(tab, "nav a[aria-current]") == "Overview"


def test_the_bar_says_how_many_of_the_steps_were_saved(tmp_path: Path, tab: Any) -> None:
    from support.plain_hook import Hook

    hook = Hook(str(tmp_path / "sparse"))
    for step in range(40):
        with hook.step():
            if step % 2 == 0:
                hook.save_tensor("weight", np.arange(3.0))
    hook.close()
    with serving(tmp_path) as url:
        show(tab, url, "run=sparse")
        assert "20 of 40 steps saved" in text(tab, "#bar")
        tab.wait_for_selector(".diagnosed b")
        assert "20 of 40 steps" in text(tab, ".diagnosed")
    said = CliRunner().invoke(main, ["ls", str(tmp_path)]).output
    assert "20 of 40" in said


def test_sql_shows_an_answer_before_a_query_is_typed(url: str, folder: Path, tab: Any) -> None:
    show(tab, url, "view=sql")
    tab.wait_for_selector("tbody tr")
    assert tab.locator("tbody tr").count() == len(RUNS)
    assert "from runs" in tab.locator("textarea").input_value()
    assert tab.get_by_label("history").count() == 0
    with serving(folder / "run-03") as alone:
        show(tab, alone, "view=sql")
        tab.wait_for_selector("tbody tr")
        assert "loss" in text(tab, "tbody")


def test_a_table_of_very_many_rows_begins_with_the_first_of_them(url: str, tab: Any) -> None:
    show(tab, url, f"view=sql&sql={quote('select run, range from runs, range(50) order by range')}")
    assert tab.locator("tbody tr").count() == 301
    ready(tab, lambda: tab.get_by_role("button", name="show all 500 rows").click())
    assert tab.locator("tbody tr").count() == 500


def test_parameters_of_a_query_that_are_no_json_are_none(url: str, tab: Any) -> None:
    show(tab, url, "view=sql&query=loss_spikes&params=[")
    assert tab.get_by_label("named query").input_value() == "loss_spikes"
    assert tab.locator("main .error").count() == 0


def test_steps_and_rows_of_an_address_that_a_run_lacks_are_ignored(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(20):
            run.save_tensor("weight", np.ones(3), step=step)
    with serving(tmp_path / "run") as url:
        for wrong in ("from=x", "from=1.5&to=?", "from=500", "from=500&to=600", "from=9&to=3", "rows=x", "rows=50-60"):
            show(tab, url, f"view=overview&{wrong}")
            tab.locator("canvas.heatmap").hover(position={"x": 500, "y": 100})
            assert text(tab, "#tooltip .name") == "weight", wrong
            tab.mouse.move(0, 0)
        show(tab, url, "view=tensor&step=x&from=500&to=600")
        assert tab.get_by_label("step", exact=True).input_value() == "19"
        assert tab.locator(".uplot").count()


def test_whole_numbers_have_all_their_digits_in_metadata_and_answers(tmp_path: Path, tab: Any) -> None:
    for seed in (1234567, 1234568):
        with tensortrial.Run(tmp_path / f"run-{seed}", metadata={"seed": seed, "near": seed / 1e7}) as run:
            run.log({"loss": 1.0}, step=0)
    with serving(tmp_path) as url:
        show(tab, url, "view=runs&group=seed")
        assert tab.locator("#runs li.group").all_inner_texts() == ["seed = 1234567 (1)", "seed = 1234568 (1)"]
        assert "1234567" in text(tab, "tbody >> nth=0")
        show(tab, url, "view=sql&sql=select 12345678 as whole, 1e20 / 3 as broken")
        assert text(tab, "tbody").split() == ["12345678", "3.33e19"]
        show(tab, url, "view=compare&a=run-1234567&b=run-1234568")
        cells = tab.locator("table").first.locator("td").all_inner_texts()
        assert cells[:6] == ["seed", "1234567", "1234568", "near", "0.1234567", "0.1234568"]


def test_a_wrong_tolerance_is_named_below_its_field(url: str, tab: Any) -> None:
    show(tab, url, "view=compare&rtol=many")
    assert "rtol must be a number" in text(tab, "main .error")
    ready(tab, lambda: (tab.get_by_label("rtol").fill("1e-5"), tab.keyboard.press("Enter")))
    assert "First difference" in text(tab, "main .summary")


def test_the_keyboard_passes_over_the_list_of_runs_and_a_reader_of_screens_tells_charts_apart(
    url: str, tab: Any
) -> None:
    show(tab, url, "view=scalars")
    tab.keyboard.press("g")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.ariaLabel") == "find"
    tab.wait_for_selector(".uplot")
    names = tab.locator(".u-over").evaluate_all("charts => charts.map((each) => each.ariaLabel.split(':')[0])")
    assert names == tab.locator(".panel:has(.u-over) h3").all_inner_texts()


def test_a_query_that_is_being_typed_stays_when_other_runs_are_chosen(url: str, tab: Any) -> None:
    show(tab, url, "view=sql")
    tab.locator("textarea").fill("select 42 as mine")
    ready(tab, lambda: tab.get_by_label("of", exact=True).select_option("one"))
    assert tab.locator("textarea").input_value() == "select 42 as mine"
    ready(tab, lambda: tab.get_by_role("button", name="Run", exact=True).click())
    assert text(tab, "tbody") == "42"


def test_the_comparison_of_a_single_run_says_how_to_open_another(folder: Path, tab: Any) -> None:
    with serving(folder / "run-03") as alone:
        show(tab, alone, "view=compare")
        assert f"tensortrial page {folder}" in text(tab)


def test_long_titles_and_metadata_take_two_lines(tmp_path: Path, tab: Any) -> None:
    for name in ("a", "b"):
        with tensortrial.Run(tmp_path / name, metadata={"about": name * 60_000}) as run:
            run.log({"loss " + "x" * 300: 1.0}, step=0)
            run.log({"loss " + "x" * 300: 2.0}, step=1)
    with serving(tmp_path) as url:
        show(tab, url, "view=compare")
        row = tab.locator("tr", has_text="about").bounding_box()
        assert row["height"] < 60
        assert row["width"] < 1280
        assert tab.locator(".panel h3").first.bounding_box()["height"] < 60


def test_the_only_step_of_an_axis_has_a_mark(url: str, tab: Any) -> None:
    show(tab, url)
    program = "async () => (await import(new URL('static/format.js', document.baseURI))).ticks(7, 7, 5, 1)"
    assert tab.evaluate(program) == [7]


def test_a_chart_that_is_drawn_again_is_released(url: str, tab: Any) -> None:
    show(tab, url, "view=scalars")
    for _ in range(3):
        ready(tab, lambda: tab.evaluate("dispatchEvent(new PopStateEvent('popstate'))"))
    shown = tab.locator(".uplot").count()
    assert shown
    tab.wait_for_function("shown => uPlot.sync('scalars').plots.length === shown", arg=shown, timeout=10_000)


# The list at the side.


def test_a_long_run_that_saved_tensors_at_few_steps_is_diagnosed_unasked(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(3000):
            run.log({"loss": 1.0 / (1 + step)}, step=step)
            if step % 1000 == 0:
                for number in range(150):
                    run.save_tensor(f"layer{number}", np.ones(3), step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=overview")
        tab.wait_for_function("() => document.querySelector('.diagnosed b')?.innerText.includes('3,000 steps')")


def test_an_interval_that_is_no_multiple_of_a_column_leaves_no_column_empty(tmp_path: Path, tab: Any) -> None:
    statistics = tensortrial.ReductionConfig(norms=["l2"])
    with tensortrial.Run(tmp_path / "run", reduction_config=statistics, save_interval=50) as run:
        for step in range(0, 2001, 50):
            run.save_tensor("weight", np.full(3, 1.0 + step), step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=overview")
        assert "Each column spans about" in text(tab)
        assert "not saved" not in text(tab, ".legend")


def test_a_last_column_of_fewer_steps_is_not_unusual(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(3204):  # in columns of 8 steps, the last of which has 4
            run.save_tensor("weight", np.full(2, 2.0 + (step % 8) / 8), step=step)
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=overview")
        assert "about 8 steps" in text(tab)
        assert "Nothing unusual" in text(tab)


def test_a_late_fault_is_before_what_only_looks_unusual_after_few_steps(tmp_path: Path, tab: Any) -> None:
    random = np.random.default_rng(0)
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(60):
            for number in range(40):
                scale = 50 if (number, step > 40) == (23, True) else 1
                run.save_tensor(f"layer{number}", scale * random.normal(size=64), step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=overview")
        assert text(tab, ".worst li a") == "layer23"


def test_values_within_three_deviations_have_the_color_of_none(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(64):
            for name, value in (("calm", 10), ("wild", 100 if step == 40 else 10)):
                run.save_tensor(name, np.full(4, value + step % 5), step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=overview")
        tab.wait_for_function("() => document.querySelector('canvas.heatmap').dataset.left")
        calm, wild = tab.locator("canvas.heatmap").evaluate(ROWS)
        assert len(calm) == 1
        assert set(calm) < set(wild)
        assert text(tab, ".worst li a") == "wild"
        assert tab.locator(".worst li").count() == 1


# The colors along the middles of two rows.
ROWS = """canvas => [0.25, 0.75].map(place => {
    const left = Number(canvas.dataset.left) + 2;
    const y = 14 + Math.round(place * (canvas.height - 40));
    const { data } = canvas.getContext("2d").getImageData(left, y, canvas.width - left - 12, 1);
    return [...new Set(Array.from({ length: data.length / 4 }, (_, i) => [...data.slice(4 * i, 4 * i + 3)].join()))];
})"""


def test_of_tensors_that_become_nan_together_the_first_to_leave_its_past_is_first(tmp_path: Path, tab: Any) -> None:
    random = np.random.default_rng(0)
    names = [f"network.blocks.{number}.attention.projection.weight" for number in range(14)]
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(40):
            for number, name in enumerate(names):
                moved = {(9, 27): 30, (9, 28): 90, (9, 29): 300, (5, 29): 60, (3, 29): 11.9, (2, 29): 11.5}
                value = moved.get((number, step), random.uniform(9, 11))
                run.save_tensor(name, np.full(3, np.nan if step >= 30 else value), step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=overview")
        said = tab.locator(".worst li").all_inner_texts()
        numbers = [int(re.search(r"^(\d+)", each).group(1)) for each in said]  # type: ignore[union-attr]
        assert numbers[:4] == [9, 5, 3, 2]
        assert "left at 27; NaN or inf at 30" in said[0]
        list_of_them = tab.locator(".worst")
        assert list_of_them.evaluate("list => list.scrollHeight") <= list_of_them.evaluate("list => list.clientHeight")
        assert len(said) == 10


def test_a_tensor_that_began_with_nan_comes_after_those_that_left_their_past(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(40):
            run.save_tensor("split", np.array([np.nan, 1.0]), step=step)
            run.save_tensor("weight", np.full(3, 1000.0 if step > 30 else 1 + step % 3 / 10), step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=overview")
        assert tab.locator(".worst li a").all_inner_texts() == ["weight", "split"]


def test_the_list_of_runs_chooses_for_every_view(url: str, tab: Any) -> None:
    show(tab, url, "view=scalars")
    assert listed(tab) == RUNS[::-1]  # the newest first
    assert "10 of 10 are shown" in text(tab, "#runs summary")
    ready(tab, lambda: tab.locator("#runs").get_by_role("button", name="none").click())
    assert "No run is ticked" in text(tab)
    for name in ("run-02", "run-05"):
        ready(tab, lambda name=name: tab.get_by_label(f"show {name}").click())
    for view in VIEWS:
        ready(tab, lambda view=view: tab.locator(f"nav a[href*='view={view}']").click())
        ticked = tab.locator("#runs input[type=checkbox]:checked")
        assert [box.get_attribute("aria-label") for box in ticked.all()] == ["show run-05", "show run-02"], view
    tab.fill("textarea", "select distinct run from scalars order by run")
    ready(tab, lambda: tab.get_by_role("button", name="Run", exact=True).click())
    tab.wait_for_selector("tbody tr")
    assert tab.locator("tbody td").all_inner_texts() == ["run-02", "run-05"]
    ready(tab, lambda: tab.locator("#runs").get_by_role("button", name="all").click())
    assert "10 of 10 are shown" in text(tab, "#runs summary")


def test_a_query_that_is_typed_stays_when_the_view_is_shown_again(url: str, tab: Any) -> None:
    show(tab, url, "view=sql")
    tab.fill("textarea", "select 1")
    ready(tab, lambda: tab.evaluate("dispatchEvent(new PopStateEvent('popstate'))"))
    assert tab.locator("textarea").input_value() == "select 1"
    ready(tab, lambda: tab.get_by_label("named query").select_option("losses"))
    assert "scalars" in tab.locator("textarea").input_value()


def test_the_list_of_runs_says_which_of_them_run(tmp_path: Path, tab: Any) -> None:
    write(tmp_path / "ended", 0)
    run = tensortrial.Run(tmp_path / "living")
    run.log({"loss": 1.0})
    run.flush()
    with run, serving(tmp_path, looks_often=True) as url:
        show(tab, url, "view=scalars")
        living = tab.locator("#runs li:has(.status.live)")
        living.wait_for()
        assert living.locator("a.name").all_inner_texts() == ["living"]
        assert living.locator(".status").get_attribute("title") == "It may be running."
        run.close()
        living.wait_for(state="detached")


def test_an_address_of_many_ticked_runs_names_the_others(tmp_path: Path, tab: Any) -> None:
    for number in range(40):
        with tensortrial.Run(tmp_path / f"run-{number:02d}") as run:
            run.log({"loss": 1.0}, step=0)
    with serving(tmp_path) as served:
        show(tab, served, "view=scalars")
        ready(tab, lambda: tab.get_by_role("button", name="all", exact=True).click())
        assert "40 of 40" in text(tab, "#runs summary")
        ready(tab, lambda: tab.get_by_label("show run-07").uncheck())
        assert "39 of 40" in text(tab, "#runs summary")
        assert re.findall(r"run-\d\d", tab.url) == ["run-07"]
        address = tab.url
        show(tab, served, address.split("#")[1])
        assert not tab.get_by_label("show run-07").is_checked()
        assert tab.locator("#runs li input:checked").count() == 39


def test_the_list_searches_pins_and_groups(url: str, tab: Any) -> None:
    show(tab, url, "view=runs")
    ready(tab, lambda: tab.get_by_label("search runs").fill('"lr":0.1'))
    assert listed(tab) == ["run-08", "run-04", "run-00"]
    assert rows(tab) == ["run-08", "run-04", "run-00"]
    ready(tab, lambda: tab.get_by_label("search runs").fill(""))
    row = tab.locator("#runs li", has_text="run-01")
    row.hover()
    ready(tab, lambda: row.get_by_title("Keep at the top").click())
    assert listed(tab)[0] == "run-01"
    ready(tab, lambda: tab.get_by_label("group by").select_option("model.width"))
    assert tab.locator("#runs li.group").all_inner_texts() == ["model.width = 32 (5)", "model.width = 64 (5)"]
    assert tab.locator("tr.summary").count() == 2
    picture(tab, "runs-grouped")


def test_a_search_asks_the_server_for_nothing(url: str, tab: Any) -> None:
    show(tab, url)
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url) if "api/" in request.url else None)
    ready(tab, lambda: tab.get_by_label("search runs").fill("run-03"))
    assert rows(tab) == ["run-03"]
    assert "0.95" in tab.locator("tbody td").all_inner_texts()
    assert asked == []


def test_after_eight_colors_they_come_again_dashed(url: str, tab: Any) -> None:
    show(tab, url, "view=runs")
    lines = tab.locator("#runs li svg line").all()
    dashed = [bool(line.get_attribute("stroke-dasharray")) for line in lines]
    assert dashed == [True] * 2 + [False] * 8  # the newest first
    assert [line.get_attribute("stroke") for line in lines[:2]] == [line.get_attribute("stroke") for line in lines[8:]]


def test_a_run_that_begins_below_a_served_folder_appears_by_itself(tmp_path: Path, tab: Any) -> None:
    for number in range(2):
        write(tmp_path / f"run-{number}", number)
    with serving(tmp_path, looks_often=True) as url:
        show(tab, url)
        write(tmp_path / "late", 2)
        tab.wait_for_function("() => document.querySelector('#runs').innerText.includes('late')")
        tab.wait_for_function("() => document.querySelector('tbody').innerText.includes('late')")


# The table.


def test_a_run_that_is_deleted_on_the_screen_is_named_and_shown_again_once_it_is_back(tmp_path: Path, tab: Any) -> None:
    def write_run(steps: int) -> None:
        with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
            for step in range(steps):
                run.save_tensor("weight", np.ones(3), step=step)
                run.log({"loss": 1 / (1 + step)}, step=step)

    write_run(20)
    with serving(tmp_path / "run", looks_often=True) as served:
        show(tab, served, "view=overview")
        tab.wait_for_function("() => document.querySelector('.diagnosed b')?.innerText.includes('20 steps')")
        shutil.rmtree(tmp_path / "run")
        tab.wait_for_selector("main .error")
        assert "run" in text(tab, "main .error")
        assert "steps" not in text(tab, "#bar")
        tab.keyboard.press("3")
        tab.wait_for_function("() => location.hash.includes('view=scalars')")
        tab.wait_for_selector("main .error")
        assert "No scalars were saved" not in text(tab)
        tab.keyboard.press("2")
        write_run(7)
        tab.wait_for_function("() => document.querySelector('.diagnosed b')?.innerText.includes('7 steps')")
        assert "7 steps" in text(tab, "#bar")


def test_a_run_that_is_replaced_on_the_screen_is_diagnosed_again(tmp_path: Path, tab: Any) -> None:
    def write_run(name: str, steps: int) -> None:
        with tensortrial.Run(tmp_path / name) as run:
            for step in range(steps):
                run.log({"loss": 1 / (1 + step)}, step=step)

    write_run("kept", 9)
    write_run("run", 20)
    with serving(tmp_path, looks_often=True) as served:
        show(tab, served, "view=findings&run=run")
        tab.wait_for_function("() => document.querySelector('.diagnosis h3')?.innerText.includes('20 steps')")
        shutil.rmtree(tmp_path / "run")
        write_run("run", 6)
        tab.wait_for_function("() => document.querySelector('.diagnosis h3')?.innerText.includes('6 steps')")


def test_a_comparison_follows_a_run_that_is_replaced_and_one_that_is_deleted(tmp_path: Path, tab: Any) -> None:
    def write_run(name: str, loss: float) -> None:
        with tensortrial.Run(tmp_path / name) as run:
            run.log({"loss": loss}, step=0)

    write_run("a", 1.0)
    write_run("b", 2.0)
    with serving(tmp_path, looks_often=True) as served:
        show(tab, served, "view=compare&a=a&b=b")
        assert "First difference at step 0" in text(tab)
        shutil.rmtree(tmp_path / "b")
        write_run("b", 1.0)
        tab.wait_for_function("() => document.querySelector('main').innerText.includes('No difference')")
        shutil.rmtree(tmp_path / "b")
        tab.wait_for_function("() => document.querySelector('main').innerText.includes('Only one run is open')")
        assert "Not here: b" in text(tab, "#bar")


def test_the_table_of_runs_has_the_last_and_the_best_loss_and_metadata_that_differs(url: str, tab: Any) -> None:
    show(tab, url, "view=runs")
    titles = tab.locator("thead th").all_inner_texts()
    shown = {"train/loss · EVAL last", "train/loss · EVAL best", "train/accuracy best", "lr", "model.width"}
    assert shown <= set(titles)
    assert "data" not in titles  # the same in all runs
    ready(tab, lambda: tab.get_by_role("button", name="train/loss · EVAL best").click())
    assert rows(tab) == RUNS
    best = tab.locator("tbody tr").first.locator("td").nth(titles.index("train/loss · EVAL best")).inner_text()
    assert float(best) == 1.0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", text(tab, "tbody .date"))
    assert len(best) <= 7  # four digits
    assert text(tab, ".chooser summary").startswith("columns: ")
    tab.locator(".chooser summary").click()
    ready(tab, lambda: tab.get_by_label("data", exact=True).check())
    assert "data" in tab.locator("thead th").all_inner_texts()


def test_long_names_leave_the_table_of_runs_in_the_window(tmp_path: Path, tab: Any) -> None:
    for name in ("a-run-of-a-very-long-name-" * 4, "anotherrunwhosenamehasnoplacetobreakitinto" * 3):
        with tensortrial.Run(tmp_path / name, metadata={"lr": len(name)}) as run:
            run.log({"train/CrossEntropyLossOfTheWholeNetwork_output_0": 1.0, "x" * 60 + "accuracy": 0.5}, step=1)
    with serving(tmp_path) as served:
        show(tab, served, "view=runs")
        heads = tab.locator("thead th").all()
        titles = [each.inner_text().strip() for each in heads]
        assert {"started", "duration", "lr"} <= set(titles)
        boxes = [each.bounding_box() for each in heads[: titles.index("lr")]]
        assert all(box["x"] + box["width"] <= 1280 for box in boxes)
        picture(tab, "runs-of-long-names")


def test_the_name_of_a_run_is_on_one_line_in_a_table_of_1280_pixels(tmp_path: Path, tab: Any) -> None:
    for number in range(3):
        write(tmp_path / f"adamw-width256-lr3e-04-{number}", number)
    with serving(tmp_path) as served:
        show(tab, served, "view=runs")
        heights = tab.locator("tbody .runname a").evaluate_all("all => all.map(each => each.clientHeight)")
        assert max(heights) < 24


def test_a_narrow_table_of_runs_has_the_loss_instead_of_times(url: str, tab: Any) -> None:
    tab.set_viewport_size({"width": 390, "height": 844})
    show(tab, url, "view=runs")
    assert "started" not in tab.locator("thead th").all_inner_texts()
    box = tab.locator("thead th", has_text="loss · EVAL last").bounding_box()
    assert box["x"] + box["width"] < 390


def test_data_that_were_not_trained_on_are_the_first_metric_of_the_table(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(3):
            run.log(
                {"train-logloss": 1.0 / (1 + step), "validation-logloss": 2.0, "average_shap/area error": 0.1 * step}
            )
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=runs")
        metrics = [title for title in tab.locator("thead th").all_inner_texts() if title.endswith(("last", "best"))]
        assert metrics == ["validation-logloss last", "validation-logloss best"]


def test_the_table_of_runs_has_the_metric_of_most_runs(tmp_path: Path, tab: Any) -> None:
    for number, name in enumerate(["accuracy", "accuracy", "validation-error"]):
        with tensortrial.Run(tmp_path / f"run-{number}") as run:
            run.log({"loss": 1.0}, step=0)
            is_error = name == "validation-error"  # XGBoost's hook saves it as a loss
            run.save_tensor(name, np.array(0.5), step=0, collections_to_write="losses" if is_error else None)
    with serving(tmp_path) as served:
        show(tab, served, "view=runs")
        assert {"loss last", "accuracy last"} <= set(tab.locator("thead th").all_inner_texts())
        assert "validation-error last" not in tab.locator("thead th").all_inner_texts()


def test_the_best_value_of_a_loss_or_an_error_is_the_smallest(tmp_path: Path, tab: Any) -> None:
    best = {"acc": "3", "acc_loss": "1", "recall_error": "1", "score/rmse": "1", "mape": "1", "mAP": "3"}
    with tensortrial.Run(tmp_path / "run") as run:
        for value in (1.0, 3.0, 2.0):
            run.log(dict.fromkeys(best, value))
    with serving(tmp_path / "run") as served:
        show(tab, served, f"view=runs&cols={json.dumps([f'best {name}' for name in best])}")
        titles = tab.locator("thead th").all_inner_texts()
        assert dict(zip(titles[1:], tab.locator("td.number").all_inner_texts(), strict=True)) == {
            f"{name} best": value for name, value in best.items()
        }


def test_metadata_without_room_is_among_the_columns_to_choose(tmp_path: Path, tab: Any) -> None:
    for number in range(2):
        metadata = {f"key{key}": f"a long value of run {number}, {'x' * 30}" for key in range(8)}
        with tensortrial.Run(tmp_path / f"run-{number}", metadata=metadata) as run:
            run.log({"loss": 1.0, "accuracy": 0.5}, step=1)
    wider = "() => Math.max(...[...document.querySelectorAll('main .scroll')].map(e => e.scrollWidth - e.clientWidth))"
    with serving(tmp_path) as served:
        show(tab, served, "view=runs")
        assert tab.evaluate(wider) <= 0
        titles = tab.locator("thead th").all_inner_texts()
        assert "key0" in titles
        assert "key7" not in titles
        chosen = json.dumps(["steps", "last loss", *(f"meta key{key}" for key in range(8))])
        show(tab, served, f"view=runs&cols={chosen}")
        assert tab.evaluate(wider) <= 0
        assert "key7" in tab.locator("thead th").all_inner_texts()
        picture(tab, "runs-of-long-metadata")


def test_the_columns_of_the_table_of_runs_are_searched(url: str, tab: Any) -> None:
    show(tab, url)
    tab.get_by_text("columns:").click()
    boxes = tab.locator(".chooser .check:visible")
    everything = boxes.count()
    tab.get_by_label("search columns").fill("WIDTH")
    tab.wait_for_function("() => [...document.querySelectorAll('.chooser .check')].some(box => box.hidden)")
    assert boxes.all_inner_texts() == ["model.width"]
    assert "model.width" in tab.locator("thead th").all_inner_texts()
    ready(tab, lambda: boxes.locator("input").click())
    assert "model.width" not in tab.locator("thead th").all_inner_texts()
    assert boxes.all_inner_texts() == ["model.width"]  # it can be chosen again
    tab.get_by_label("search columns").fill("")
    tab.wait_for_function("() => [...document.querySelectorAll('.chooser .check')].every(box => !box.hidden)")
    assert boxes.count() == everything > 10


def test_ticked_runs_can_be_hidden_and_shown_again(url: str, tab: Any) -> None:
    show(tab, url, 'view=runs&runs=["run-01","run-02"]')
    ready(tab, lambda: tab.get_by_role("button", name="Hide the 2 ticked").click())
    assert len(rows(tab)) == 8
    assert len(listed(tab)) == 8
    ready(tab, lambda: tab.locator("#runs").get_by_role("button", name="show").click())
    assert len(rows(tab)) == 10


def test_notes_are_typed_into_the_table_and_archived_runs_are_in_no_list(tmp_path: Path, tab: Any) -> None:
    for number in range(3):
        write(tmp_path / f"run-{number}", number)
    with serving(tmp_path) as url:
        show(tab, url, "view=runs")
        assert not {"tags", "note"} & set(tab.locator("thead th").all_inner_texts())
        tab.locator(".chooser summary").click()
        for column in ("tags", "note"):
            ready(tab, lambda column=column: tab.get_by_label(column, exact=True).check())
        for label, typed in (("tags of run-1", "good, paper"), ("note of run-1", "the baseline")):
            tab.get_by_label(label).fill(typed)
            ready(tab, lambda label=label: tab.get_by_label(label).press("Enter"))
        assert tab.locator("#runs .tag").all_inner_texts() == ["good", "paper"]
        show(tab, url, "view=runs&rq=baseline")
        assert rows(tab) == ["run-1"]
        assert {"tags", "note"} <= set(tab.locator("thead th").all_inner_texts())
        show(tab, url, 'view=runs&runs=["run-0"]')
        ready(tab, lambda: tab.get_by_role("button", name="Archive the 1 ticked").click())
        tab.wait_for_function("() => document.querySelectorAll('tbody .runname').length === 2")
        picture(tab, "runs-noted")
        show(tab, url, "view=scalars")
        assert listed(tab) == ["run-2", "run-1"]
        ready(tab, lambda: tab.locator("#runs").get_by_role("button", name="show").click())
        assert listed(tab) == ["run-2", "run-1", "run-0"]
    assert tensortrial.annotate(tmp_path / "run-0").archived
    assert tensortrial.annotate(tmp_path / "run-1").note == "the baseline"


def test_a_run_of_the_scatter_is_opened_by_the_keyboard(url: str, tab: Any) -> None:
    show(tab, url, "view=runs&plot=scatter")
    tab.locator("figure circle.run").first.focus()
    assert text(tab, "#tooltip .name").startswith("run-")
    tab.keyboard.press("Tab")
    assert "lr" in text(tab, "#tooltip dl").split()
    ready(tab, lambda: tab.keyboard.press("Enter"))
    assert tab.locator("#tooltip").is_hidden()
    assert "run=run-" in tab.url


@pytest.mark.parametrize(("plot", "mark"), [("scatter", "circle"), ("parallel", "path")])
def test_hyperparameters_are_drawn_against_a_metric(url: str, tab: Any, plot: str, mark: str) -> None:
    show(tab, url, f"view=runs&plot={plot}")
    marks = tab.locator(f"figure {mark}.run")
    assert marks.count() == 10
    marks.first.dispatch_event("pointermove", {"clientX": 400, "clientY": 300})
    assert "lr" in text(tab, "#tooltip dl").split()
    picture(tab, f"runs-{plot}")
    ready(tab, lambda: marks.first.dispatch_event("click"))
    assert "run=run-" in tab.url


def test_a_metric_of_one_run_that_would_hide_the_others_is_logarithmic(tmp_path: Path, tab: Any) -> None:
    for number, loss in enumerate([0.3, 0.5, 12.0]):
        with tensortrial.Run(tmp_path / f"run-{number}", metadata={"width": 2 + number}) as run:
            run.log({"loss": loss})
    with serving(tmp_path) as served:
        show(tab, served, "view=runs&plot=scatter")
        assert tab.locator("figure text[text-anchor=end]").all_text_contents() == ["1", "10"]


def test_names_and_values_that_programs_use_themselves_are_shown_as_saved(tmp_path: Path, tab: Any) -> None:
    values = {"a": 10, "b": "auto", "c": 2, "d\x01": "5"}
    for number, (name, value) in enumerate(values.items()):
        metadata = {"lr": value} | ({"constructor": "c", "__proto__": "p"} if name == "a" else {})
        with tensortrial.Run(tmp_path / name, metadata=metadata) as run:
            for step in range(3):
                run.log({"loss": number + step}, step=step)
    with serving(tmp_path) as url:
        show(tab, url, "view=runs&group=constructor&plot=parallel")
        assert tab.locator("figure path.run").count() == 4
        assert tab.locator("#runs li.group").all_inner_texts() == ["constructor is missing (3)", "constructor = c (1)"]
        show(tab, url, "view=runs&sort=lr")
        assert rows(tab) == ["c", "d\\u0001", "a", "b"]
        show(tab, url, "view=compare&a=b&b=c")
        assert tab.locator("table").first.locator("td").all_inner_texts() == ["lr", "auto", "2"]
        show(tab, url, "view=scalars")
        tab.get_by_label("save loss").click()
        with tab.expect_download() as download:
            tab.get_by_role("button", name="SVG", exact=True).click()
        download.value.save_as(tmp_path / "chart.svg")
    titles = [each.text for each in ElementTree.parse(tmp_path / "chart.svg").iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["d\\u0001", "c", "b", "a"]


# The curves.


def test_curves_are_in_sections_and_constant_ones_are_folded(url: str, tab: Any) -> None:
    show(tab, url, "view=scalars")
    sections = tab.locator("details.section")
    assert [each.get_attribute("data-title") for each in sections.all()] == ["train", "Scalars", "Constant"]
    charts = tab.locator("details[data-title=train] h3").all_inner_texts()
    assert charts == ["train/loss · TRAIN", "train/loss · EVAL", "train/accuracy"]
    assert sections.nth(2).get_attribute("open") is None
    sections.nth(2).locator("summary").click()
    assert "setup/seed" in sections.nth(2).inner_text()
    assert "7" in sections.nth(2).locator("td.number").inner_text()
    ready(tab, lambda: tab.get_by_label("x axis").select_option("relative"))
    assert tab.locator("details[data-title=train] h3").all_inner_texts() == ["train/loss", "train/accuracy"]


def test_charts_that_are_alone_in_their_section_share_one(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(3):
            run.log(dict.fromkeys(["loss", "time/step", "train/accuracy", "train/lr"], 1.0 / (1 + step)), step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=scalars")
        sections = {
            each.get_attribute("data-title"): each.locator("h3").all_inner_texts()
            for each in tab.locator("details.section").all()
        }
    assert sections == {"Scalars": ["loss", "time/step"], "train": ["train/accuracy", "train/lr"]}


def test_the_tooltip_lists_the_curves_by_value_and_has_both_numbers_of_a_smooth_one(url: str, tab: Any) -> None:
    show(tab, url, 'view=scalars&runs=["run-00","run-04","run-09"]')
    chart = tab.locator(".uplot .u-over").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    terms = [term.strip() for term in tab.locator("#tooltip dt").all_inner_texts()]
    assert terms == ["run-09", "run-04", "run-00"]
    assert "saved" not in text(tab, "#tooltip")
    ready(tab, lambda: tab.evaluate("location.hash += '&smooth=0.9'"))
    tab.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + 20)
    tab.wait_for_function("() => document.querySelector('#tooltip').innerText.includes('saved:')")
    lines = tab.locator("details[data-title=train] .u-cursor-x").all()
    places = [line.evaluate("line => line.getBoundingClientRect().left") for line in lines[:3:2]]
    boxes = [over.bounding_box() for over in tab.locator("details[data-title=train] .u-over").all()[:3:2]]
    first, third = (at - box["x"] for at, box in zip(places, boxes, strict=True))
    assert first == pytest.approx(third, abs=2)  # the other chart follows


def test_a_metric_of_training_and_of_other_data_is_one_chart_with_a_line_for_each(tmp_path: Path, tab: Any) -> None:
    names = [
        ("validation-rmse", "train-rmse"), ("val_loss", "loss"), ("eval/acc", "train/acc"), ("f1/test", "f1/train"),
        ("validation_1-auc", "validation_0-auc"),
    ]  # fmt: skip
    for name in ("first", "second"):
        with tensortrial.Run(tmp_path / name) as run:
            for step in range(20):
                run.log({name: held + step for pair in names for held, name in enumerate(pair)}, step=step)
                run.log({"trained/x": step, "validity/x": step, "val": step}, step=step)
    with serving(tmp_path) as served:
        show(tab, served, "view=scalars&run=first")
        charts = tab.locator(".panel")
        assert sorted(charts.locator("h3").all_inner_texts()) == [
            "acc", "auc", "f1", "loss", "rmse", "trained/x", "val", "validity/x",
        ]  # fmt: skip
        of = {each.locator("h3").inner_text(): each.locator(".part").all_inner_texts() for each in charts.all()}
        assert {title: of[title] for title in ("acc", "auc", "f1", "loss", "rmse", "val")} == {
            "acc": ["train/acc", "eval/acc"],
            "auc": ["validation_0-auc", "validation_1-auc"],
            "f1": ["f1/train", "f1/test"],
            "loss": ["loss", "val_loss"],
            "rmse": ["train-rmse", "validation-rmse"],
            "val": [],
        }
        show(tab, served, "view=scalars&full=rmse")
        saved = tmp_path / "rmse"
        for kind in ("CSV", "SVG"):
            tab.get_by_label("save rmse").click()
            with tab.expect_download() as download:
                tab.get_by_role("button", name=kind, exact=True).click()
            download.value.save_as(saved.with_suffix(f".{kind.lower()}"))
        columns, first, *_ = csv.reader(saved.with_suffix(".csv").read_text(encoding="utf-8").splitlines())
        assert dict(zip(columns, first, strict=True)) == {
            "step": "0",
            "first train-rmse": "1", "second train-rmse": "1",
            "first validation-rmse": "0", "second validation-rmse": "0",
        }  # fmt: skip
        paths = ElementTree.parse(saved.with_suffix(".svg")).iter()
        lines = [path for path in paths if path.get("stroke-dasharray") is not None]
        drawn = {str(next(iter(line)).text): (line.get("stroke"), line.get("stroke-dasharray")) for line in lines}
        assert drawn["first train-rmse"][0] == drawn["first validation-rmse"][0] != drawn["second train-rmse"][0]
        assert drawn["first train-rmse"][1] == drawn["second train-rmse"][1] == ""
        assert drawn["first validation-rmse"][1] == drawn["second validation-rmse"][1] == "10 4"
        show(tab, served, 'view=scalars&full=rmse&runs=["first"]')
        assert tab.locator(".part").all_inner_texts() == ["train-rmse 20", "validation-rmse 19"]


def hold(tab: Any, requests: str) -> Callable[[], None]:
    """Hold back requests of a page. Return the function that lets them go on."""
    held: list[Any] | None = []
    tab.route(requests, lambda route: route.continue_() if held is None else held.append(route))

    def release() -> None:
        nonlocal held
        routes, held = held or [], None
        for route in routes:
            route.continue_()

    return release


def test_a_chart_is_a_skeleton_until_its_numbers_have_come(url: str, tab: Any) -> None:
    release = hold(tab, "**/api/scalars?*")
    tab.goto(f"{url}#view=scalars")
    tab.wait_for_selector(".panel .skeleton")
    assert tab.locator(".uplot").count() == 0
    release()
    tab.wait_for_selector(".panel .uplot")


@pytest.mark.parametrize(("view", "answer"), [("overview", "tiles"), ("tensor", "series")])
def test_a_view_of_tensors_is_a_skeleton_until_its_numbers_have_come(
    tmp_path: Path, tab: Any, view: str, answer: str
) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        run.save_tensor("w", np.arange(4.0), step=0)
    release = hold(tab, f"**/api/{answer}?*")
    with serving(tmp_path / "run") as served:
        tab.goto(f"{served}#view={view}")
        tab.wait_for_selector("main .skeleton")
        release()
        tab.wait_for_selector("main[data-ready]")
        assert tab.locator("main .skeleton").count() == 0


def test_a_curve_of_one_point_is_drawn(url: str, tab: Any) -> None:
    show(tab, url, 'view=scalars&q=rare&runs=["run-00"]')
    drawn = """() => {
        const canvas = document.querySelector(".uplot canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i + 2] - data[i] > 120 && data[i + 3] > 200) found++;
        return found > 8;
    }"""
    tab.wait_for_function(drawn)


def test_a_chart_is_pinned_shown_in_full_size_and_saved(url: str, tab: Any, tmp_path: Path) -> None:
    show(tab, url, "view=scalars")
    ready(tab, lambda: tab.get_by_label("pin train/accuracy").click())
    assert tab.locator("details.section").first.get_attribute("data-title") == "Pinned"
    ready(tab, lambda: tab.get_by_label("full size train/accuracy").click())
    assert tab.locator(".uplot").count() == 1
    assert tab.locator(".uplot canvas").bounding_box()["height"] > 400
    for kind in ("PNG", "SVG", "CSV"):
        tab.get_by_label("save train/accuracy").click()
        with tab.expect_download() as download:
            tab.get_by_role("button", name=kind, exact=True).click()
        download.value.save_as(tmp_path / f"chart.{kind}")
        assert download.value.suggested_filename == f"train_accuracy.{kind.lower()}"
    assert (tmp_path / "chart.PNG").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "chart.SVG").read_text(encoding="utf-8").count("<path") > 10
    table = list(csv.reader((tmp_path / "chart.CSV").read_text(encoding="utf-8").splitlines()))
    assert table[0] == ["step", *RUNS[::-1]]
    assert [float(row[1]) for row in table[1:]] == pytest.approx([step / 20 for step in range(20)])


def test_a_range_of_a_chart_is_shown_in_all_of_them_until_all_is_shown_again(
    url: str, tab: Any, tmp_path: Path
) -> None:
    tab.add_init_script(MARKS)
    show(tab, url, 'view=scalars&runs=["run-00"]')
    box = tab.locator(".panel", has_text="train/accuracy").locator(".u-over").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=4)
    tab.evaluate("window.marks = []")
    ready(tab, tab.mouse.up)
    assert "view=scalars" in tab.url
    marks = {
        each: set(tab.locator(".panel", has_text=each).locator("canvas").evaluate("window.marksOf"))
        for each in ("train/accuracy", "rare")
    }
    assert {"0", "19", "20"}.isdisjoint(marks["train/accuracy"])
    assert {"5", "6", "7", "8", "9"} & marks["train/accuracy"]
    assert "100" in marks["rare"]  # which has nothing in the range
    ready(tab, lambda: tab.get_by_role("button", name="Show all of x").click())
    assert "zoom" not in tab.url


def test_an_open_list_is_closed_by_a_click_beside_it_and_by_escape(url: str, tab: Any) -> None:
    show(tab, url)
    columns = tab.get_by_label("search columns")
    for close in (
        lambda: tab.mouse.click(900, 800),
        lambda: tab.keyboard.press("Escape"),
    ):
        tab.get_by_text("columns:").click()
        columns.click()
        assert columns.is_visible()
        close()
        assert columns.is_hidden()


def test_a_logarithmic_axis_begins_after_step_0(url: str, tab: Any, tmp_path: Path) -> None:
    show(tab, url, 'view=scalars&logx=1&q=accuracy&runs=["run-00"]')
    tab.get_by_label("save train/accuracy").click()
    with tab.expect_download() as download:
        tab.get_by_role("button", name="CSV", exact=True).click()
    download.value.save_as(tmp_path / "chart.csv")
    table = list(csv.reader((tmp_path / "chart.csv").read_text(encoding="utf-8").splitlines()))
    assert [row[0] for row in table] == ["step", *map(str, range(1, 20))]
    tab.locator(".u-over").hover()
    assert text(tab, "#tooltip").startswith("step 10")
    assert tab.locator(".uplot canvas").evaluate(COLORED)


COLORED = """canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i + 2] - data[i] > 120 && data[i + 3] > 200) found++;
    return found > 100;
}"""


def test_the_marks_of_steps_are_whole_numbers_inside_their_charts(url: str, tab: Any) -> None:
    tab.add_init_script(MARKS)
    for width, state in [(390, "scalars"), (1280, "scalars"), (2560, "scalars&q=rare"), (1280, "tensor&from=0&to=3")]:
        tab.set_viewport_size({"width": width, "height": 860})
        show(tab, url, f"view={state}&run=run-00")
        tab.wait_for_function("() => window.marks.length")
        marks = tab.evaluate("window.marks")
        assert {mark["text"] for mark in marks if not re.fullmatch("[0-9,]+", mark["text"])} == set(), state
        assert [mark for mark in marks if mark["left"] < 0 or mark["right"] > mark["width"]] == [], state


def test_times_of_an_axis_are_years_months_and_days(url: str, tab: Any) -> None:
    tab.add_init_script(MARKS)
    show(tab, url, "view=scalars&x=time&run=run-00")
    tab.wait_for_function("() => window.marks.length")
    marks = tab.evaluate("window.marks")
    assert [each for each in marks if not re.fullmatch(r"20\d\d-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?", each["text"])] == []
    assert [each for each in marks if each["left"] < 0 or each["right"] > each["width"]] == []


def test_relative_times_begin_with_each_run(tmp_path: Path, tab: Any) -> None:
    for number, begun in enumerate((1.7e9, 1.7e9 + 86400)):
        rows = "".join(f"{step},{number + step},{begun + 60 * step}\n" for step in range(11))
        (tmp_path / "log.csv").write_text(f"step,loss,time\n{rows}")
        import_run(tmp_path / "log.csv", tmp_path / "runs" / f"run-{number}", progress=False)
    tab.add_init_script(MARKS)
    with serving(tmp_path / "runs") as served:
        show(tab, served, "view=scalars&x=relative")
        marks = tab.locator("main .uplot canvas").evaluate_all("all => all.map(window.marksOf)")
        assert [each[0] for each in marks] == ["0 s"]
        assert marks[0][-1] == "10 min 0 s"
        tab.locator(".u-over").hover()
        assert text(tab, "#tooltip .name") == "5 min 0 s"
        assert [term.strip() for term in tab.locator("#tooltip dt").all_inner_texts()] == ["run-1", "run-0"]


MARKS = """
window.marks = [];
window.levels = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (this.textAlign === "center" && text) {
        const half = this.measureText(text).width / 2;
        window.marks.push({ text, left: x - half, right: x + half, width: this.canvas.width, canvas: this.canvas });
    }
    if (this.textAlign === "right" && text) window.levels.push({ y, canvas: this.canvas });
    fillText.call(this, text, x, y);
};
window.levelsOf = canvas =>
    [...new Set(window.levels.filter(each => each.canvas === canvas).map(each => each.y))].sort((a, b) => a - b);
// Each chart's own marks, which are drawn again when its size changes.
window.marksOf = canvas => [...new Set(window.marks.filter(mark => mark.canvas === canvas).map(mark => mark.text))];
"""


# Two of them.


@pytest.mark.parametrize("axis", ["", "&x=global"])
def test_charts_of_two_runs_have_equal_axes_of_steps(url: str, tab: Any, axis: str) -> None:
    tab.add_init_script(MARKS)
    show(tab, url, f"view=compare&a=run-03&b=run-04{axis}")
    marks = tab.locator("main .uplot canvas").evaluate_all("all => all.map(window.marksOf)")
    titles = tab.locator("main .panel h3").all_inner_texts()
    others = () if axis else ("train/loss · EVAL", "rare")  # of other modes
    compared = [each for each, title in zip(marks, titles, strict=True) if title not in others]
    assert len(compared) >= 2
    assert all(each == compared[0] and each for each in compared)


def test_charts_of_a_tensor_have_equal_axes_of_steps(tmp_path: Path, tab: Any) -> None:
    statistics = tensortrial.ReductionConfig(["mean"], norms=["l2"])
    with tensortrial.Run(tmp_path / "run", reduction_config=statistics) as run:
        for step in range(40):
            run.save_tensor("weight", np.full(5, 1.0 + step), step=step)
            if step < 11:
                run.save_tensor("gradient/weight", np.full(5, 1.0 + step), step=step)
    tab.add_init_script(MARKS)
    with serving(tmp_path / "run") as served:
        for zoomed in ("", "&from=4&to=24"):
            show(tab, served, f"view=tensor&name=weight{zoomed}")
            charts = tab.locator("main .panel:has(.uplot):has-text('norm')")  # of the tensor and of its gradient
            assert tab.get_by_text("L2 norm of its gradient").count() == 1
            marks = charts.locator("canvas").evaluate_all("all => all.map(window.marksOf)")
            assert len(marks) == 2
            assert marks[0] == marks[1]
            assert marks[0]
            others = tab.locator("main .panels.small").last.locator(".uplot canvas")
            marks = others.evaluate_all("all => all.map(window.marksOf)")
            assert len(marks) >= 2
            assert all(each == marks[0] and each for each in marks), (zoomed, marks)


def marks_of_y(
    folder: Path, tab: Any, values: list[float], options: str = "", of: Path | None = None
) -> list[str | None]:
    """Return the marks of the y axis in the SVG of a chart of these values, and of other runs in the folder `of`."""
    with tensortrial.Run(folder) as run:
        for step, value in enumerate(values):
            run.log({"loss": value}, step=step)
    with serving(of or folder) as served:
        show(tab, served, f"view=scalars{options}")
        tab.locator(".menu summary").click()
        with tab.expect_download() as saved:
            tab.get_by_role("button", name="SVG").click()
        return [each.text for each in ElementTree.parse(saved.value.path()).iter() if each.get("text-anchor") == "end"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([step * 150_000.0 for step in range(11)], ["0", "5e5", "1e6", "1.5e6"]),
        ([10.0**-step for step in range(9)], ["1e-8", "1e-6", "1e-4", "1e-2", "1"]),
        ([*[0.0] * 10, float("nan")], ["-1", "-0.5", "0", "0.5", "1"]),
    ],
)
def test_the_marks_of_an_axis_have_one_notation(
    tmp_path: Path, tab: Any, values: list[float], expected: list[str]
) -> None:
    assert marks_of_y(tmp_path / "run", tab, values) == expected


def test_the_tools_of_the_overview_are_on_one_line_of_1280_pixels(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for mode in ("TRAIN", "EVAL"):
            with run.step(mode=mode):
                run.save_tensor("w", np.arange(4.0), collections_to_write="moments of the optimizer")
                run.save_tensor("other", np.arange(4.0))
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=overview")
        heights = [tab.get_by_label(label, exact=True).bounding_box()["y"] for label in ("statistic", "mode", "find")]
        assert max(heights) - min(heights) < 5


def test_a_value_with_nan_says_so_once(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        run.save_tensor("w", np.array([1.0, np.nan, np.inf, 2.0]), step=0)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=tensor")
        value = tab.locator(".panel", has_text="Value at step 0").last.inner_text()
        assert value.count("2 elements") == 1
        assert "2 elements NaN or infinite, first NaN at [1]" in value


def test_the_ridges_of_two_values_are_inside_their_picture(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(24):
            run.save_tensor("labels", np.arange(143.0) % 2, step=step)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=tensor")
        first_row = tab.locator("canvas[aria-label^=Histograms]").evaluate(
            "each => [...each.getContext('2d').getImageData(0, 0, each.width, 1).data]"
        )
        assert not any(first_row)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_marks_of_many_decades_do_not_overlap(tmp_path: Path, tab: Any, sign: int) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(41):
            run.log({"loss": sign * 10.0 ** (step - 15)}, step=step * 10**8)
    tab.add_init_script(MARKS)
    with serving(tmp_path / "run") as served:
        for width in (390, 1280):
            tab.set_viewport_size({"width": width, "height": 860})
            show(tab, served, "view=scalars")
            tab.wait_for_function("() => window.marks.length")
            marks = tab.evaluate("window.marks")
            assert [mark for mark in marks if mark["left"] < 0 or mark["right"] > mark["width"]] == []
            levels = tab.evaluate("window.levelsOf(document.querySelector('.uplot canvas'))")
            assert len(levels) > 1
            assert min(high - low for low, high in pairwise(levels)) > 11


def test_two_runs_are_compared_with_the_metadata_that_differs_and_by_their_curves(url: str, tab: Any) -> None:
    show(tab, url, 'view=compare&runs=["run-03","run-04"]')
    about, scalars = tab.locator("table").nth(0), tab.locator("table").nth(1)
    assert about.locator("th").all_inner_texts() == ["", "run-03", "run-04"]
    assert about.locator("td").all_inner_texts()[:6] == ["lr", "1e-4", "0.1", "model.width", "64", "32"]
    assert ["train/accuracy", "0.95", "0.95"] in [
        row.locator("td").all_inner_texts() for row in scalars.locator("tbody tr").all()
    ]
    assert about.bounding_box()["y"] == scalars.bounding_box()["y"]  # next to each other
    charts = tab.locator(".panels.small .panel")
    assert charts.locator("h3").all_inner_texts() == [
        "train/loss · TRAIN",
        "train/loss · EVAL",
        "train/accuracy",
        "rare",
    ]
    charts.first.locator(".u-over").hover()
    assert {"run-03", "run-04"} <= set(text(tab, "#tooltip").split())
    assert "run-03 and run-04 are compared" in text(tab, "#runs summary")
    assert tab.locator("#runs li.chosen a.name").all_inner_texts() == ["run-04", "run-03"]
    picture(tab, "compare-scalars")
    ready(tab, lambda: tab.get_by_text("Scalars of both").click())
    assert len(tab.locator("#runs input[type=checkbox]:checked").all()) == 2


TRAINING = """
import sys, tensortrial
with tensortrial.Run(sys.argv[1], metadata=tensortrial.environment(), environment=False) as run:
    run.log({{"loss": {loss}}})
"""


def test_two_runs_are_compared_with_the_commit_the_command_and_the_packages_that_differ(
    tmp_path: Path, tab: Any
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    commits = []
    for version in ("1", "2"):
        (code / "train.py").write_text(TRAINING.format(loss=version))
        for arguments in ("init -q", "add -A", f"-c user.name=a -c user.email=a@b commit -qm {version}"):
            subprocess.run(["git", *arguments.split()], cwd=code, check=True)
        commits.append(subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=code, text=True).strip())
        packages = tmp_path / f"packages {version}"
        (packages / f"data_loader-{version}.0.dist-info").mkdir(parents=True)
        paths = os.pathsep.join([str(packages), *filter(None, map(os.path.abspath, sys.path))])
        command = [sys.executable, "train.py", str(tmp_path / "runs" / f"run-{version}"), f"--lr={version}"]
        subprocess.run(command, cwd=code, env={**os.environ, "PYTHONPATH": paths}, check=True)
    with serving(tmp_path / "runs") as served:
        show(tab, served, "view=compare&a=run-1&b=run-2")
        rows = [row.locator("td").all_inner_texts() for row in tab.locator("table").first.locator("tbody tr").all()]
    about = {name: values for name, *values in rows}
    assert about["git_commit"] == commits
    assert about["packages.data-loader"] == ["1.0", "2.0"]
    assert [json.loads(value)[-1] for value in about["command"]] == ["--lr=1", "--lr=2"]
    assert "working_directory" not in about  # both ran in the same folder


# SQL.


def test_sql_lists_columns_completes_them_and_saves_the_answer(url: str, tab: Any, tmp_path: Path) -> None:
    show(tab, url, "view=sql")
    tab.get_by_text("Views and their columns").click()
    assert "mode_step" in text(tab, ".schema")
    tab.fill("textarea", "")
    tab.type("textarea", "select run, max(value) as highest from scal")
    tab.wait_for_selector(".completions li")
    tab.keyboard.press("Tab")
    tab.keyboard.type(" where mode_st")
    tab.wait_for_selector(".completions li")
    tab.keyboard.press("Tab")
    tab.keyboard.type(" >= 0 and name = 'train/accuracy' group by run order by run")
    ready(tab, lambda: tab.keyboard.press("Control+Enter"))
    assert tab.locator(".completions").is_hidden()
    tab.wait_for_selector("tbody tr")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "answer.csv")
    saved = (tmp_path / "answer.csv").read_text(encoding="utf-8").splitlines()
    assert saved[:2] == ["run,highest", "run-00,0.95"]
    assert len(saved) == 11
    typeface = tab.locator("tbody td").first.evaluate("each => getComputedStyle(each).fontFamily")
    assert "monospace" in typeface
    show(tab, url, "view=sql")
    assert "max(value) as highest" in text(tab, "select[aria-label=history]")
    ready(tab, lambda: tab.get_by_label("history").select_option(index=1))
    assert tab.input_value("textarea").startswith("select run, max(value) as highest from scalars")
    assert tab.locator("tbody tr").count() == 10


# Screens.


def test_a_narrow_screen_shows_every_view(url: str, tab: Any) -> None:
    tab.set_viewport_size({"width": 390, "height": 844})
    for view in ["runs", "overview", "scalars", "tensor", "compare", "findings", "sql"]:
        show(tab, url, f"view={view}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, view
        picture(tab, f"{view}-narrow")
    assert len({each.bounding_box()["y"] for each in tab.locator("nav a").all()}) == 1


def test_the_eighth_view_is_seen_on_a_narrow_screen(tmp_path: Path, tab: Any) -> None:
    from support.plain_hook import WorkerHook

    workers = [WorkerHook(str(tmp_path / "run"), rank, 2) for rank in range(2)]
    for worker in workers:
        with worker.step():
            worker.save_scalar("loss", 1.0)
        worker.close()
    tab.set_viewport_size({"width": 390, "height": 844})
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=availability")
        box = tab.locator("nav a[aria-current]").bounding_box()
        assert box["x"] + box["width"] <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_a_contrast_of_at_least_4_5(url: str, tab: Any, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    for view in VIEWS:
        show(tab, url, f"view={view}")
        assert tab.evaluate(LOW_CONTRAST) == [], view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_of_a_run_of_tensors_has_a_contrast_of_at_least_4_5(tmp_path: Path, tab: Any, scheme: str) -> None:
    assert CliRunner().invoke(main, ["demo", str(tmp_path / "demo")]).exit_code == 0
    tab.emulate_media(color_scheme=scheme)
    with serving(tmp_path / "demo") as served:
        for view in ["overview", "tensor&name=layer1.weight&step=210", "findings"]:
            show(tab, served, f"view={view}")
            if "tensor" not in view:
                tab.wait_for_selector(".diagnosed b")
            assert tab.evaluate(LOW_CONTRAST) == [], view


LOW_CONTRAST = """() => {
    const canvas = document.createElement("canvas");
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const rgb = color => {
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = color;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map(each => each / 255)
        .map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
        .reduce((sum, each, i) => sum + each * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = element => {
        for (let at = element; at; at = at.parentElement) {
            const color = rgb(getComputedStyle(at).backgroundColor);
            if (color[3] === 255) return color;
        }
        return [255, 255, 255, 255];
    };
    const low = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.checkVisibility({ opacityProperty: true })) continue;
        if (element.closest(":disabled, svg, option")) continue;
        const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) low.push(`${element.tagName}.${element.className} ${element.textContent}`);
    }
    return low;
}"""


def test_the_answer_of_sql_is_drawn_without_another_query(url: str, tab: Any) -> None:
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url) if "api/sql" in request.url else None)
    show(tab, url, "view=sql&sql=select run, mode_step as at, value from scalars where name = 'train/accuracy'")
    tab.wait_for_selector("tbody tr")
    before = len(asked)
    ready(tab, lambda: tab.get_by_label("plot", exact=True).select_option("value"))
    tools = [tab.get_by_role("button", name="CSV", exact=True), *map(tab.get_by_label, ("plot", "over"))]
    assert len({round(each.first.bounding_box()["y"], -1) for each in tools}) == 1
    tab.locator(".plotted .u-over").hover()
    assert "value over at" in text(tab, ".plotted")
    assert {"run-00", "run-09"} <= set(text(tab, "#tooltip").split())
    ready(tab, lambda: tab.get_by_label("over", exact=True).select_option("value"))
    assert "value over value" in text(tab, ".plotted")
    picture(tab, "sql-plot")
    assert len(asked) == before
    with tab.expect_response("**/api/sql?*"):
        tab.get_by_role("button", name="Run", exact=True).click()
    tab.wait_for_selector(".plotted .uplot")
    assert len(asked) == before + 1


def test_the_plot_of_an_answer_names_the_nearest_value_however_far_it_is(url: str, tab: Any) -> None:
    show(tab, url, "view=sql&py=b&sql=select * from (values (1, 10), (2, 20)) as t(a, b)")
    box = tab.locator(".plotted .u-over").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 30)
    assert text(tab, "#tooltip").split() == ["2", "b", "20"]
    tab.mouse.move(0, 0)
    assert tab.locator("#tooltip").is_hidden()


def test_a_mode_is_named_only_if_a_scalar_has_several(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(5):
            for mode, name in (
                ("TRAIN", "train/loss"),
                ("EVAL", "val/loss"),
                ("TRAIN", "accuracy"),
                ("EVAL", "accuracy"),
            ):
                with run.step(mode=mode):
                    run.log({name: 1.0 / (1 + step)})
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=scalars")
        assert tab.locator(".panel h3").all_inner_texts() == [
            "train/loss", "val/loss", "accuracy · TRAIN", "accuracy · EVAL",
        ]  # fmt: skip
        show(tab, served, "view=scalars&x=global")
        parts = {
            each.locator("h3").inner_text(): each.locator(".part").all_inner_texts()
            for each in tab.locator(".panel").all()
        }
        assert parts == {"loss": ["train/loss 0.2", "val/loss 0.2"], "accuracy": ["TRAIN 0.2", "EVAL 0.2"]}
        show(tab, served, "view=runs")
        titles = tab.locator("thead th").all_inner_texts()
        assert {"val/loss last", "val/loss best", "accuracy · EVAL last"} <= set(titles)


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([0.0] * 5, ["-1", "-0.5", "0", "0.5", "1"]),
        ([1.0, 1e2, 1e4, 1e6], ["1", "10", "100", "1e3", "1e4", "1e5", "1e6"]),
    ],
)
def test_marks_of_y_are_short_numbers_near_the_values(
    tmp_path: Path, tab: Any, values: list[float], marks: list[str]
) -> None:
    assert marks_of_y(tmp_path / "run", tab, values, "&logy=1" if values[0] else "") == marks


@pytest.mark.parametrize(
    ("others", "marks"),
    [
        ((0.5, 10.0), ["1", "10", "100", "1000"]),
        ((0.0, 1.0), ["0", "50", "100", "150", "200"]),
        ((math.nan, math.nan), ["0", "50", "100", "150", "200"]),
    ],
)
def test_a_line_that_would_hide_the_others_makes_an_axis_logarithmic(
    tmp_path: Path, tab: Any, others: tuple[float, float], marks: list[str]
) -> None:
    for number, value in enumerate(others):
        with tensortrial.Run(tmp_path / f"run-{number}") as run:
            run.log({"loss": value}, step=0)
    assert marks_of_y(tmp_path / "run-9", tab, [2.0, 200.0], of=tmp_path) == marks


def test_the_axis_of_one_step_ends_at_the_next(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        run.log({"loss": 1.0}, step=7)
        run.log({"accuracy": 0.0}, step=0)
    tab.add_init_script(MARKS)
    with serving(tmp_path / "run") as served:
        show(tab, served, "view=scalars")
        tab.wait_for_function("() => window.marks.length")
        marks = tab.locator("main .uplot canvas").evaluate_all("all => all.map(window.marksOf)")
        assert marks == [["7", "8"], ["0", "1"]]


def test_the_keyboard_keeps_its_place_where_a_view_is_drawn_again(url: str, tab: Any) -> None:
    """A control that is drawn again keeps the focus; if it is gone, the view has it, and is framed."""
    for view, control in (
        ("runs", "nav a[href*='view=scalars']"),
        ("runs", "thead button[title='Sort by lr']"),
        ("runs", "#runs button:has-text('none')"),
        ("runs", "#runs li:nth-child(3) a.name"),
        ("scalars", "button[aria-label='pin train/accuracy']"),
        ("tensor", "button[title='The saved step before']"),
        ("tensor", ".u-over"),
        ("compare", "button:has-text('Swap')"),
        ("sql", "main button:text-is('Run')"),
    ):
        show(tab, url, f"view={view}")
        used = tab.locator(control).first
        used.focus()
        if control.endswith("u-over"):
            tab.keyboard.press("ArrowRight")
        ready(tab, lambda: tab.keyboard.press("Enter"))
        assert used.evaluate("control => control === document.activeElement"), (view, control)
    show(tab, url, "view=runs")
    tab.locator("tbody a").first.focus()
    ready(tab, lambda: tab.keyboard.press("Enter"))
    main = tab.locator("main:focus-visible")
    assert main.evaluate("main => getComputedStyle(main).outlineStyle") == "solid"
    tab.keyboard.press("Tab")
    assert tab.locator("main :focus").count() == 1
    show(tab, url, "view=runs")
    chooser = tab.locator(".chooser summary")
    chooser.focus()
    for key in ("Enter", "Tab", "Escape"):
        tab.keyboard.press(key)
    assert chooser.evaluate("chooser => chooser === document.activeElement")
    assert tab.get_by_label("search columns").is_hidden()


def test_a_report_of_many_runs_compares_any_two_of_them(tmp_path: Path, tab: Any) -> None:
    for number in range(6):
        with tensortrial.Run(tmp_path / f"run-{5 - number}") as run:  # the newest comes first in the alphabet
            for step in range(5):
                run.log({"loss": number + 1 / (1 + step)}, step=step)
                run.save_tensor("w", np.full(4, float(number)), step=step)
    report(tmp_path, tmp_path / "report.html")
    show(tab, (tmp_path / "report.html").as_uri(), "view=compare")
    assert "First difference at step 0" in text(tab)
    names = [str(name) for name in tab.locator("main select").evaluate_all("all => all.map((each) => each.value)")]
    assert sorted(names) == ["run-0", "run-1"]
    show(tab, (tmp_path / "report.html").as_uri(), "view=compare&a=run-5&b=run-0")
    assert "This report does not hold that" in text(tab, "p.summary")
    assert tab.locator(".panel canvas").count() == 1
    assert tab.locator(".error").count() == 0


def test_steps_without_a_finite_value_are_marked_in_a_chart(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(40):
            run.log({"loss": math.nan, "norm": math.inf if step >= 30 else step, "accuracy": step / 40}, step=step)
            run.save_tensor("w", np.full(4, np.nan if step >= 30 else 1.0), step=step)
    marked = """canvas => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const columns = new Set();
        for (let i = 0; i < data.length; i += 4)
            if (data[i] === 0xe6 && data[i + 1] === 0 && data[i + 2] === 0x7e) columns.add((i / 4) % canvas.width);
        return columns.size / canvas.width;
    }"""
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=scalars")
        shares, said = {}, {}
        for panel in tab.locator("main .panel").all():
            title = panel.locator("h3").inner_text()
            tab.wait_for_timeout(100)  # the canvas draws at the next frame
            shares[title], said[title] = panel.locator("canvas").evaluate(marked), panel.inner_text()
        assert shares["accuracy"] == 0
        assert shares["loss"] > 0.7
        assert 0.15 < shares["norm"] < 0.3
        assert "NaN or inf at 10 steps, first at 30" in said["norm"]
        assert "100" not in said["loss"]  # no number at an axis without values
        picture(tab, "nan-in-charts")
        show(tab, url, "view=tensor&name=w")
        assert "NaN or inf at 10 steps, first at 30" in text(tab, ".panel header")


def test_a_norm_is_one_chart_of_a_tensor(tmp_path: Path, tab: Any) -> None:
    form = tensortrial.ReductionConfig(["mean", "abs_mean"], norms=["l1", "l2"])
    with tensortrial.Run(tmp_path / "run", reduction_config=form) as run:
        for step in range(3):
            run.save_tensor("w", np.arange(4.0) + step, step=step)
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=tensor&name=w")
        titles = tab.locator(".panel h3").all_inner_texts()
        assert {"L2 norm", "L1 norm", "mean of |x|"} <= set(titles)
        assert not {"L2 norm of |x|", "L1 norm of |x|", "sum of |x|"} & set(titles)


def test_statistics_of_a_tensor_that_do_not_change_are_one_line(tmp_path: Path, tab: Any) -> None:
    form = tensortrial.ReductionConfig(["mean", "nan_count", "inf_count"], norms=["l2"])
    with tensortrial.Run(tmp_path / "run", reduction_config=form) as run:
        for step in range(3):
            run.save_tensor("w", np.arange(4.0) + step, step=step)
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=tensor&name=w")
        assert "Did not change: NaN count 0, infinity count 0" in text(tab)
        assert not {"NaN count", "infinity count"} & set(tab.locator(".panel h3").all_inner_texts())


@pytest.mark.parametrize("width", [1280, 2560])
def test_charts_of_a_row_are_equally_high(tmp_path: Path, tab: Any, width: int) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(12):
            value = np.random.default_rng(step).normal(size=64)
            run.save_tensors({"w": value, "gradient/w": value / 2}, step=step)
    tab.set_viewport_size({"width": width, "height": 1400})
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=tensor&name=w")
        height = "each.querySelector('.uplot, canvas').clientHeight"
        boxes = f"all => all.map((each) => [each.getBoundingClientRect().top, {height}])"
        rows: dict[float, set[float]] = {}
        for top, high in tab.locator(".panel:has(.uplot), .panel:has(canvas[role=img])").evaluate_all(boxes):
            rows.setdefault(top, set()).add(high)
        assert all(len(heights) == 1 for heights in rows.values()), rows


def test_the_overview_of_a_run_without_problems_has_its_first_remark(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(100):
            run.log({"train-loss": 1 / (1 + step), "validation-loss": 0.5 + step / 100}, step=step)
            run.save_tensor("w", np.arange(4.0), step=step)
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=overview")
        tab.wait_for_selector(".diagnosed b")
        assert text(tab, ".diagnosed").startswith("No problem in 100 steps")
        assert "validation-loss" in text(tab, ".diagnosed.remarked")


def test_a_report_says_which_step_a_histogram_is_of(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step, value in enumerate([np.arange(8.0), np.full(8, np.nan)]):
            run.save_tensor("w", value, step=step)
    report(tmp_path / "run", tmp_path / "report.html")
    show(tab, (tmp_path / "report.html").as_uri(), "view=tensor")
    assert "run at step 0" in text(tab, ".panel:has-text('Distribution at step 1')")


def test_a_report_counts_many_runs_without_a_problem(tmp_path: Path, tab: Any) -> None:
    for number in range(10):
        with tensortrial.Run(tmp_path / f"run-{number}") as run:
            run.log({"loss": 1.0}, step=0)
    report(tmp_path, tmp_path / "report.html")
    show(tab, (tmp_path / "report.html").as_uri())
    assert text(tab, ".diagnosed") == "No problem found in 10 runs"


def test_training_and_validation_of_one_run_have_different_colors(tmp_path: Path, tab: Any) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(20):
            run.log({"train-loss": 1 / (1 + step), "validation-loss": 2 / (1 + step)}, step=step)
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=scalars")
        lines = tab.locator(".part line")
        colors = {line.evaluate("line => getComputedStyle(line).stroke") for line in lines.all()}
        assert len(colors) == lines.count() == 2
        assert {line.get_attribute("stroke-dasharray") for line in lines.all()} == {""}


def test_steps_after_few_others_are_seldom_unusual(tmp_path: Path, tab: Any) -> None:
    random = np.random.default_rng(0)
    with tensortrial.Run(tmp_path / "run", reduction_config=tensortrial.ReductionConfig(norms=["l2"])) as run:
        for step in range(12):
            for number in range(100):
                run.save_tensor(f"layer{number}", np.full(4, random.normal(10)), step=step)
    with serving(tmp_path / "run") as url:
        show(tab, url, "view=overview")
        listed = tab.locator(".worst li").count()
        more = re.search(r"and (\d+) tensor", text(tab, ".worst"))
        # Of 700 values, 9 % would be, of a past of 5 to 11 values that is not counted less.
        assert listed + int(more[1] if more else 0) < 20
