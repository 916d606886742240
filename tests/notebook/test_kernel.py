"""Notebooks in a real kernel of Jupyter: tables, plots, the page, completion, and progress bars."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.runs import TRAIN, Job

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("starlette")
# nbclient's own event loops and sockets.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    with Job(folder / "run") as job:
        for step in range(4):
            values = {"gradient/a": np.full(4, float(step)), "loss": float(step), HOSTILE: np.ones(2)}
            job.step(values, TRAIN, statistics=("l2",), collections=("gradients",))
    with Job(folder / "other") as job:
        job.step({"loss": 1.0}, TRAIN)
    return folder


@pytest.fixture(scope="module")
def outputs(folder: Path) -> Iterator[Any]:
    """A function that returns the outputs of a cell, in one kernel."""
    notebook = nbformat.v4.new_notebook()
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel():
        count = 0

        def run(source: str) -> list[Any]:
            nonlocal count
            cell = nbformat.v4.new_code_cell(source)
            notebook.cells.append(cell)
            client.execute_cell(cell, count)
            count += 1
            return list(cell.outputs)

        run("import tensortrial\ntrial = tensortrial.create_trial('run')")
        yield run


def html_of(found: list[Any]) -> str:
    (output,) = found
    return str(output["data"]["text/html"])


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("trial", "4: 0 to 3"),
        ("trial['loss']", "float64"),
        (f"trial[{HOSTILE!r}]", "&lt;script&gt;"),
        ('tensortrial.Collection("<script>")', "&lt;script&gt;"),
        ("tensortrial.open_runs('.')", "4 steps"),
    ],
)
def test_an_object_is_a_table(outputs: Any, expression: str, shown: str) -> None:
    html = html_of(outputs(expression))
    assert shown in html
    assert "<script" not in html


def test_findings_are_a_table(outputs: Any) -> None:
    outputs("from tensortrial.rules import AllZero, invoke_rule")
    source = "invoke_rule(AllZero(trial, tensor_regex='gradient/a'), record=False)"
    html = html_of([each for each in outputs(source) if each["output_type"] == "execute_result"])
    assert "1 finding" in html
    assert "step 0, AllZero" in html


def test_a_plot_is_a_picture(outputs: Any) -> None:
    found = outputs("trial.plot.heatmap('gradients');")
    (picture,) = [each["data"]["image/png"] for each in found if "image/png" in each.get("data", {})]
    assert base64.b64decode(picture).startswith(b"\x89PNG")


def test_the_page_is_a_frame_with_a_picture_inside(outputs: Any) -> None:
    (output,) = outputs("page = tensortrial.page(trial)\npage")
    html = output["data"]["text/html"]
    assert '<object type="text/html" data="http://127.0.0.1:' in html
    assert "data:image/png;base64," in html
    # What makes a PDF of a notebook takes the picture alone.
    assert base64.b64decode(output["data"]["image/png"]).startswith(b"\x89PNG")


def test_the_page_of_many_runs_is_a_frame_with_a_table_inside(outputs: Any) -> None:
    html = html_of(outputs("tensortrial.page('.')"))
    assert "<object" in html
    assert "2 runs" in html
    assert "ended" in html


def test_tab_completes_the_names_of_tensors(outputs: Any) -> None:
    found = outputs('print(get_ipython().complete("trial[\'gra", "trial[\'gra")[1])')
    assert "gradient/a" in found[0]["text"]


def test_tab_completes_the_names_of_runs(outputs: Any) -> None:
    outputs("runs = tensortrial.open_runs('.')")
    found = outputs('print(get_ipython().complete("runs[\'", "runs[\'")[1])')
    assert "run" in found[0]["text"]


def test_a_notebook_has_the_bar_that_tqdm_chooses(outputs: Any) -> None:
    pytest.importorskip("tqdm")
    found = outputs("import warnings\nwarnings.simplefilter('ignore')\ntrial.verify(progress=True)")
    # Without ipywidgets tqdm.auto writes text, and says why.
    assert any("verify" in each.get("text", "") for each in found)
