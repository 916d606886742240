"""The page in a real browser, Debian's chromium, on runs of a real network of which one layer goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.browser import MARKS, ROOT, in_python, picture, ready, serving, show, text
from support.limits import set_limits
from support.plain_hook import Hook
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig
from tensortrial.diagnosis import diagnose
from tensortrial.pages import page
from tensortrial.pages.report import report

pytest.importorskip("torch")
pytestmark = MARKS

BROKEN = "MLP_blocks.2.linear.weight"  # of the layer whose learning rate explodes
HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202e<script>document.title='owned'</script>"
VIEWS = ["runs", "overview", "scalars", "tensor", "compare", "findings", "sql"]
OVERVIEW = "view=overview&run=faulty"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network that goes wrong, and what rules found in it."""
    out = tmp_path_factory.mktemp("page") / "faulty"
    program = f"import exploding; exploding.train({str(out)!r}); exploding.find({str(out)!r})"
    in_python(program, path=ROOT / "examples")
    return out


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same network in which nothing goes wrong."""
    out = tmp_path_factory.mktemp("page") / "healthy"
    in_python(f"import exploding; exploding.train({str(out)!r}, steps=120, fault=90)", path=ROOT / "examples")
    return out


@pytest.fixture(scope="module")
def both(faulty: Path, healthy: Path) -> Iterator[str]:
    with serving(faulty, healthy) as url:
        yield url


def rows_of_heat_map(tab: Any) -> list[str]:
    """Return the rows from top to bottom, by walking down with the keyboard."""
    tab.focus("canvas.heatmap")
    tab.keyboard.press("Home")
    names = [text(tab, "#tooltip .name")]
    while True:
        tab.keyboard.press("ArrowDown")
        name = text(tab, "#tooltip .name")
        if name == names[-1]:
            return names
        names.append(name)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_shows_a_faulty_run_without_an_error(both: str, tab: Any, view: str, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    show(tab, both, f"view={view}&run=faulty")
    assert tab.locator(".error").count() == 0
    assert len(text(tab)) > 20
    picture(tab, f"{view}-{scheme}")


@pytest.mark.parametrize("width", [1280, 2560])
def test_nothing_is_wider_than_the_window(both: str, tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": width * 9 // 16})
    for view in VIEWS:
        show(tab, both, f"view={view}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, view
        if width > 2000:
            picture(tab, f"{view}-wide")


def test_a_count_of_findings_leaves_the_views_on_one_line_of_a_narrow_screen(both: str, tab: Any) -> None:
    tab.set_viewport_size({"width": 390, "height": 844})
    show(tab, both, "view=findings&run=faulty")
    assert int(text(tab, ".badge").replace(",", "")) > 0
    assert len({each.bounding_box()["y"] for each in tab.locator("nav a").all()}) == 1


def test_the_overview_names_its_colors_and_marks_the_first_nan(both: str, tab: Any) -> None:
    show(tab, both, OVERVIEW)
    legend = text(tab, ".legend")
    assert "own past" in legend
    assert "NaN or infinity" in legend
    assert "first finding" in legend
    assert int(text(tab, ".badge").replace(",", "")) > 0


def test_rows_are_in_execution_order_or_by_name_and_fold_by_module(both: str, tab: Any) -> None:
    show(tab, both, f"{OVERVIEW}&collection=gradients")
    executed = rows_of_heat_map(tab)
    assert executed[0].startswith("gradient/MLP_head")
    ready(tab, lambda: tab.get_by_label("rows").select_option("name"))
    assert rows_of_heat_map(tab) == sorted(executed, key=lambda name: name.replace(".", "/"))
    ready(tab, lambda: tab.get_by_label("fold").select_option("2"))
    assert len(rows_of_heat_map(tab)) < len(executed)


def test_a_cell_opens_the_tensor_at_its_step_and_shows_the_raw_value(both: str, tab: Any) -> None:
    show(tab, both, f"{OVERVIEW}&q={BROKEN}&collection=weights")
    box = tab.locator("canvas.heatmap").bounding_box()
    middle = box["y"] + box["height"] / 2
    ready(tab, lambda: tab.mouse.click(box["x"] + box["width"] * 0.6, middle))
    assert "view=tensor" in tab.url
    step = int(re.search(r"step=(\d+)", tab.url).group(1))  # type: ignore[union-attr]
    assert 100 < step < 200
    assert f"Value at step {step}" in text(tab)
    assert "Its gradient at step" in text(tab)
    assert "Its change since step" in text(tab)
    size = tab.locator("canvas.image").first.evaluate("canvas => [canvas.width, canvas.height]")
    assert size == [48, 48]
    picture(tab, "from-cell-to-value")
    tab.go_back()
    tab.wait_for_selector("canvas.heatmap")


def test_steps_without_computed_statistics_are_counted(
    tmp_path: Path, tab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, raw_bytes_of_an_answer=4 * 4000)
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(12):
            run.save_tensor("w", np.full(1000, step, np.float32), step=step)
    with page(tmp_path / "run") as served:
        show(tab, served.url, "view=overview")
        tab.wait_for_function("() => document.querySelector('main').innerText.includes('8 steps are left out')")
        picture(tab, "overview-left-out")
        show(tab, served.url, "view=tensor&name=w&stat=rms")
        assert "8 steps of raw values left out" in text(tab)
        picture(tab, "tensor-left-out")


def test_an_image_that_a_job_saved_is_shown_at_each_of_its_steps(tmp_path: Path, tab: Any) -> None:
    down, across = np.mgrid[0:1:48j, 0:1:64j]
    with tensortrial.Run(tmp_path / "images") as run:
        for step in range(3):
            run.save_image("sample", np.stack([down, across, np.full_like(down, step / 2)]), step=step)
    with serving(tmp_path / "images") as url:
        show(tab, url, "view=tensor&name=sample")
        assert "uint8 [48, 64, 3]" in text(tab)
        assert "Value at step 2" in text(tab)
        colors = """image => {
            const context = Object.assign(document.createElement("canvas"), { width: 64, height: 48 }).getContext("2d");
            context.drawImage(image, 0, 0);
            return [[0, 0], [63, 0], [0, 47]].map(([x, y]) => [...context.getImageData(x, y, 1, 1).data.slice(0, 3)]);
        }"""
        picture(tab, "tensor-image")
        with tab.expect_download() as download:
            tab.get_by_text(".npy").click()
        download.value.save_as(tmp_path / "sample.npy")
        assert np.load(tmp_path / "sample.npy").shape == (48, 64, 3)
        assert tab.locator("img.image").evaluate(colors) == [[0, 0, 255], [0, 255, 255], [255, 0, 255]]
        ready(tab, lambda: tab.get_by_title("The saved step before").click())
        assert tab.locator("img.image").evaluate(colors) == [[0, 0, 128], [0, 255, 128], [255, 0, 128]]


def test_the_image_of_a_value_has_the_values_of_the_run(both: str, tab: Any, faulty: Path) -> None:
    import tensortrial

    show(tab, both, f"view=tensor&run=faulty&name={BROKEN}&step=100")
    image = tab.locator("canvas.image").first
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 4.5 / 48, box["y"] + box["height"] * 2.5 / 48)
    expected = tensortrial.create_trial(str(faulty)).tensor(BROKEN).value(100)[2, 4]
    assert "[2, 4]" in text(tab, "#tooltip")
    assert float(text(tab, "#tooltip dd")) == pytest.approx(float(expected), rel=1e-2)


def test_the_first_tensor_to_leave_its_past_is_the_first_of_the_worst(both: str, tab: Any) -> None:
    show(tab, both, OVERVIEW)
    assert text(tab, ".worst li a").endswith(BROKEN.removeprefix("MLP_"))
    assert re.match(r"left at \d+; NaN or inf at \d+", text(tab, ".worst li .quiet"))


def test_a_tensor_is_chosen_from_the_tree_of_modules(both: str, tab: Any) -> None:
    show(tab, both, f"view=tensor&run=faulty&name={BROKEN}")
    tab.get_by_text("tree", exact=True).click()
    assert text(tab, ".tree [aria-current]") == BROKEN
    ready(tab, lambda: tab.locator(".tree a", has_text="MLP_head.weight").first.click())
    assert tab.get_by_label("tensor", exact=True).input_value() == "MLP_head.weight"


def test_the_histogram_of_another_run_is_drawn_over_that_of_a_step(both: str, tab: Any) -> None:
    show(tab, both, f"view=tensor&run=faulty&name={BROKEN}&step=50")
    ready(tab, lambda: tab.get_by_label("over it").select_option("healthy"))
    chart = tab.locator(".panel", has_text="Distribution at step 50").locator(".u-over")
    chart.scroll_into_view_if_needed()
    chart.hover()
    assert {"healthy, step 50", "faulty, step 50"} <= {
        each.split(" at ")[0].strip() for each in tab.locator("#tooltip dt").all_inner_texts()
    }
    picture(tab, "histogram-of-two-runs")


def test_the_keyboard_moves_through_the_values_of_a_chart_and_of_a_picture(both: str, tab: Any) -> None:
    show(tab, both, f"view=tensor&run=faulty&name={BROKEN}&step=50")
    chart = tab.locator(".panel .u-over").first
    chart.focus()
    tab.keyboard.press("Home")
    assert text(tab, "#tooltip .name") == "step 0"
    tab.keyboard.press("End")
    last = text(tab, "#tooltip .name")
    tab.keyboard.press("ArrowLeft")
    before = text(tab, "#tooltip .name")
    assert int(before.split()[1]) < int(last.split()[1])
    tab.keyboard.press("ArrowRight")
    assert text(tab, "#tooltip .name") == last
    tab.keyboard.press("ArrowLeft")
    picture(tab, "chart-by-keyboard")
    ready(tab, lambda: tab.keyboard.press("Enter"))
    assert f"step={before.split()[1]}" in tab.url
    show(tab, both, f"view=tensor&run=faulty&name={BROKEN}&step=50")
    canvas = tab.locator("canvas.image").first
    canvas.focus()
    found = []
    for key in ["ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"]:
        tab.keyboard.press(key)
        found.append(text(tab, "#tooltip .name"))
    assert found == ["[0, 0]", "[1, 0]", "[1, 1]", "[1, 0]", "[0, 0]"]
    tab.keyboard.press("Tab")
    assert tab.locator("#tooltip").is_hidden()


def test_the_keyboard_walks_from_the_heat_map_to_a_tensor(both: str, tab: Any) -> None:
    show(tab, both, OVERVIEW)
    tab.keyboard.press("g")
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"]:
        tab.keyboard.press(key)
    name = text(tab, "#tooltip .name")
    ready(tab, lambda: tab.keyboard.press("Enter"))
    assert tab.get_by_label("tensor", exact=True).input_value() == name
    for number, view in enumerate(VIEWS, 1):
        ready(tab, lambda number=number: tab.keyboard.press(str(number)))
        assert f"view={view}" in tab.url
    tab.keyboard.press("?")
    assert tab.locator("dialog[open]").count() == 1


def test_the_address_of_the_page_shows_the_same_again(both: str, tab: Any) -> None:
    show(tab, both, OVERVIEW)
    ready(tab, lambda: tab.get_by_label("statistic").select_option("std"))
    ready(tab, lambda: tab.get_by_label("color by").select_option("value"))
    tab.focus("canvas.heatmap")
    ready(tab, lambda: tab.keyboard.press("+"))
    address, legend, note = tab.url, text(tab, ".legend"), text(tab, "main > .quiet")
    tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector("main[data-ready]")
    assert (text(tab, ".legend"), text(tab, "main > .quiet")) == (legend, note)


def test_a_finding_leads_to_its_tensor_and_to_its_place_in_the_overview(both: str, tab: Any) -> None:
    show(tab, both, "view=findings&run=faulty")
    row = tab.locator("tbody tr", has_text="ExplodingTensor").first
    step = int(row.locator("td").first.inner_text().replace(",", ""))
    ready(tab, lambda: row.locator("td a").first.click())
    assert tab.locator("canvas.heatmap").count() == 1
    assert int(re.search(r"from=(\d+)", tab.url).group(1)) < step  # type: ignore[union-attr]
    tab.go_back()
    tab.wait_for_selector("tbody tr")
    ready(tab, lambda: row.locator("a.name").click())
    assert f"step={step}" in tab.url
    assert "view=tensor" in tab.url


def test_a_diagnosis_says_what_went_wrong_first_and_leads_there(faulty: Path, both: str, tab: Any) -> None:
    show(tab, both, "view=findings&run=faulty")
    tab.wait_for_selector(".diagnosis h3")
    said = text(tab, ".diagnosis")
    # Which tensor of the broken network a rule names first is a matter of the processor's last digits.
    problems = diagnose(str(faulty)).problems
    assert "What to try" in said
    assert {problem.tensor for problem in problems if problem.tensor} <= set(
        tab.locator(".diagnosis a.name").all_inner_texts()
    )
    tab.get_by_text("could not be checked").click()
    assert tab.locator(".diagnosis li").count() > 2
    picture(tab, "diagnosis")
    ready(tab, lambda: tab.locator(".diagnosis a.name").first.click())
    assert "view=tensor" in tab.url


def test_a_diagnosis_names_the_files_that_cannot_be_read(healthy: Path, tmp_path: Path, tab: Any) -> None:
    run = tmp_path / "run"
    shutil.copytree(healthy, run)
    file = min((run / "index").rglob("*.parquet"))  # the one that counts, if the run was compacted at its end
    file.write_bytes(file.read_bytes()[:-40])
    with serving(run) as url:
        show(tab, url, "view=findings")
        tab.wait_for_selector(".diagnosis h3")
        assert file.name in text(tab, ".diagnosis .error")
        picture(tab, "diagnosis-damaged")


def test_two_runs_are_picked_and_their_first_difference_is_marked(both: str, tab: Any) -> None:
    show(tab, both, "view=runs&runs=[]")
    for name in ["healthy", "faulty"]:
        ready(tab, lambda name=name: tab.get_by_label(f"show {name}").click())
    ready(tab, lambda: tab.get_by_text("Compare the two").click())
    assert "view=compare" in tab.url
    assert tab.locator("tr.first").count() == 1
    picture(tab, "compare-of-two")


def test_scalars_of_two_runs_share_a_chart(both: str, tab: Any) -> None:
    show(tab, both, "view=scalars")
    assert "CrossEntropyLoss_output_0" in text(tab)
    for axis in ["time", "relative", "global"]:
        ready(tab, lambda axis=axis: tab.get_by_label("x axis").select_option(axis))
        assert tab.locator(".uplot canvas").count() >= 2
    ready(tab, lambda: tab.get_by_label("log x").click())
    assert tab.locator(".uplot canvas").count() >= 2


def test_sql_answers_and_refuses_to_write(both: str, tab: Any) -> None:
    show(tab, both, "view=sql&run=faulty")
    tab.fill("textarea", "select mode_step, max(value) as largest from scalars group by 1 order by 1 limit 7")
    ready(tab, lambda: tab.get_by_text("Run", exact=True).click())
    tab.wait_for_selector("tbody tr")
    assert tab.locator("tbody tr").count() == 7
    tab.fill("textarea", "copy tensors to 'elsewhere.csv'")
    tab.get_by_text("Run", exact=True).click()
    tab.wait_for_selector(".error")
    ready(tab, lambda: tab.get_by_label("named query").select_option("gradient_norms"))
    tab.wait_for_selector("tbody tr")


def test_a_link_to_a_run_that_is_not_served_says_so_and_offers_the_others(both: str, tab: Any) -> None:
    tab.goto(f"{both}#run=gone")
    tab.wait_for_selector(".error")
    assert "The run gone is not here" in text(tab, ".error")
    picture(tab, "run-that-is-not-served")
    tab.locator("#runs").get_by_role("link", name="healthy").click()
    tab.wait_for_selector("canvas.heatmap")
    show(tab, both, 'view=scalars&runs=["gone","healthy"]')
    assert "Not here: gone" in text(tab, "#bar")
    assert [box.get_attribute("aria-label") for box in tab.locator("#runs input:checked").all()] == ["show healthy"]


def test_sql_reads_the_ticked_runs_one_of_them_or_all(both: str, tab: Any) -> None:
    count = "view=sql&run=healthy&sql=select count(distinct run) as runs from scalars"
    show(tab, both, count)
    assert text(tab, "tbody tr") == "2"
    ready(tab, lambda: tab.get_by_label("show faulty").click())
    tab.wait_for_selector(".error")  # the views of one run have no such column
    ready(tab, lambda: tab.get_by_label("of", exact=True).select_option("all"))
    tab.wait_for_selector("tbody tr")
    assert text(tab, "tbody tr") == "2"


def test_a_report_shows_its_views_from_a_file(faulty: Path, tmp_path: Path, tab: Any) -> None:
    path = tmp_path / "report.html"
    paths = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    done = subprocess.run(
        [sys.executable, "-m", "tensortrial", "report", str(faulty), "-o", str(path)],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # it has findings
    show(tab, path.as_uri())
    assert text(tab, "nav a[aria-current]").startswith("Findings")
    tab.wait_for_selector(".diagnosis h3")
    for view in ["runs", "overview", "scalars", "tensor", "availability", "findings"]:
        show(tab, path.as_uri(), f"view={view}")
        assert tab.locator(".error").count() == 0, view
        picture(tab, f"report-{view}")
    show(tab, path.as_uri(), f"view=tensor&name=gradient/{BROKEN}&step=4")
    assert tab.locator(".error").count() == 0
    assert "This report does not hold that" in text(tab)


def test_a_report_of_several_runs_opens_on_what_went_wrong_in_each(tmp_path: Path, tab: Any) -> None:
    for name in ("good", "bad", "calm"):
        with tensortrial.Run(tmp_path / name) as run:
            for step in range(30):
                run.log({"loss": float("nan") if (name, step) == ("bad", 20) else 1 / (1 + step)}, step=step)
    report(tmp_path, tmp_path / "report.html")
    show(tab, (tmp_path / "report.html").as_uri())
    assert text(tab, "nav a[aria-current]") == "Runs"
    bad, well = tab.locator(".diagnosed").all_inner_texts()
    assert bad.startswith("bad: ")
    assert "at step 20" in bad
    assert well == "No problem found in calm, good"
    picture(tab, "report-of-runs")
    ready(tab, lambda: tab.locator(".diagnosed").first.get_by_text("all of it").click())
    assert text(tab, "nav a[aria-current]").startswith("Findings")
    assert "bad" in text(tab, "#bar")


def test_a_live_run_grows_on_the_screen(tmp_path: Path, tab: Any) -> None:
    hook = Hook(str(tmp_path / "live"), flush_seconds=0, save_config=SaveConfig(save_interval=1))
    save_steps(hook, 3)
    with serving(tmp_path / "live") as url:
        show(tab, url)
        tab.wait_for_selector(".status.live")
        assert "3 steps" in text(tab, "#bar")
        assert text(tab, ".status") == "running"
        show(tab, url, "view=runs&cols=%5B%22state%22%5D")
        assert text(tab, "tbody tr").split() == ["live", "running"]
        show(tab, url, "view=availability")
        cells = tab.locator("tbody tr td").all_inner_texts()
        assert cells[:5] == ["worker_0", "running", "2", "0", "0"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", cells[5])
        assert "No file of the run is known to be damaged." in text(tab)
        show(tab, url)
        save_steps(hook, 4)
        tab.wait_for_function("() => document.querySelector('#bar').innerText.includes('7 steps')")
        tab.wait_for_function("() => document.querySelector('main').innerText.includes('× 7 steps')")
        hook.close()
        tab.wait_for_function("() => document.querySelector('#bar').innerText.includes('ended')")


def test_a_live_run_that_opens_on_curves_stays_on_them_as_it_grows(tmp_path: Path, tab: Any) -> None:
    hook = Hook(str(tmp_path / "live"), flush_seconds=0, save_config=SaveConfig(save_interval=1))
    hook.get_collection("all").reduction_config = ReductionConfig(["mean"])

    def save(steps: int, tensors: int) -> None:
        for _ in range(steps):
            with hook.step():
                for number in range(tensors):
                    hook.save_tensor(f"weight {number}", np.ones(2), "all")
                hook.save_scalar("loss", 1.0)
                hook.save_scalar("accuracy", 0.5)

    save(3, 1)
    with serving(tmp_path / "live") as url:
        show(tab, url)
        assert text(tab, "nav a[aria-current]") == "Scalars"
        save(4, 8)
        tab.wait_for_function("() => document.querySelector('#bar').innerText.includes('7 steps')")
        assert text(tab, "nav a[aria-current]") == "Scalars"
        ready(tab, lambda: tab.get_by_label("log x").check())
        assert text(tab, "nav a[aria-current]") == "Scalars"
    hook.close()


def test_hostile_names_are_text(tmp_path: Path, tab: Any) -> None:
    out = tmp_path / "<b>bold</b>"
    with_metadata = {"<i>key</i>": "<img src=x onerror=alert(1)>"}
    hook = Hook(str(out), save_config=SaveConfig(save_interval=1), metadata=with_metadata)
    save_steps(hook, 12, HOSTILE)
    hook.close()
    with serving(out) as url:
        for view in [*VIEWS, "availability"]:
            show(tab, url, f"view={view}")
            assert tab.locator("main img, main script, main i:not([class]), #bar b, #bar i").count() == 0, view
            assert "owned" not in tab.title()
        show(tab, url, "view=tensor")
        assert "\u202e" not in text(tab)
        show(tab, url, "view=overview")
        tab.focus("canvas.heatmap")
        tab.keyboard.press("ArrowDown")
        assert "\\u202e" in text(tab, "#tooltip")


def save_steps(hook: Any, steps: int, name: str = "weight") -> None:
    """Save values and statistics of a tensor, and a loss."""
    hook.get_collection("all").reduction_config = ReductionConfig(["mean", "std"], norms=["l2"], save_raw_tensor=True)
    for step in range(steps):
        with hook.step():
            hook.save_tensor(name, np.random.default_rng(step).normal(size=(6, 5)), "all")
            hook.save_scalar("loss", 1 / (1 + step))
    hook.flush()


def test_a_spike_is_far_from_its_past_and_hides_no_other(both: str, tab: Any) -> None:
    show(tab, both, OVERVIEW)
    values = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.02, 1e6, 1.0, 1e6]
    z = tab.evaluate("values => import('./static/past.js').then(past => [...past.robustZ(values)])", values)
    assert z[:5] == [0, 0, 0, 0, 0]
    assert z[7] > 8
    assert abs(z[8]) < 3
    assert z[9] > 8
