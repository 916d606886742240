"""The notebook for users of smdebug, in a real kernel of Jupyter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.smdebug_imports import COLLECTIONS
from support.smdebug_runs import OldRun

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("torch")
# nbclient's own event loops and sockets.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "migrating.ipynb"


def printed(notebook: Any) -> str:
    """Return what the cells of a notebook printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output["text"] for output in outputs if output.get("name") == "stdout")


def test_the_notebook_on_migrating_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    old = OldRun(tmp_path / "debug-output")
    old.collections(COLLECTIONS)
    for step in range(3):
        old.step({"loss": np.full(1, step, "f4")}, "TRAIN", step)
    old.end()
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = printed(notebook)
    assert "[0, 5, 10, 15, 20, 25, 30, 35, 40, 45]" in shown
    assert "gradient/Sequential_0.weight" in shown
    assert "met at step 0" in shown
    assert "'1_output_0': [0, 10]" in shown
    assert "'gradient/Sequential_2.bias': [0, 5, 10, 15]" in shown
    assert "[0, 1, 2] ['loss']" in shown
    assert "mean_error" in shown
