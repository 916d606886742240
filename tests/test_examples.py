"""The examples run, and print what a reader of them expects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("script", "package", "printed"),
    [
        ("regression_numpy.py", "numpy", "weights:"),
        ("digits.py", "torch", "tensortrial page"),
        (
            "breast_cancer_xgboost.py",
            "xgboost",
            r"FeatureImportanceOverweight: [1-9].*TreeDepth: [1-9].*Overfit: [1-9]",
        ),
        ("digits_jax.py", "optax", "accuracy:"),
        ("digits_lightning.py", "lightning", "gradient/Digits_layers.2.weight"),
        ("text_transformers.py", "transformers", "eval_loss:"),
    ],
)
def test_an_example_runs(tmp_path: Path, script: str, package: str, printed: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed here")
    paths = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout, re.DOTALL)
