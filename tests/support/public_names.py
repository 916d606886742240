"""The public names of tensortrial, read from its sources: the API reference and the test of docstrings go by them.

griffe reads the sources, so that no framework has to be installed.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import griffe

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

# Modules whose `__all__` is public.
MODULES = [
    "tensortrial",
    "tensortrial.hooks.mxnet",
    "tensortrial.hooks.pytorch",
    "tensortrial.hooks.tensorflow",
    "tensortrial.hooks.xgboost",
    "tensortrial.plots",
    "tensortrial.rules",
]
# Public names in modules that have others too; every class of tensortrial.errors is public.
SINGLE_NAMES = [
    "tensortrial.engines.base.Database",
    "tensortrial.engines.base.Engine",
    "tensortrial.engines.duckdb.DuckDBEngine",
    "tensortrial.engines.spark.SparkEngine",
    "tensortrial.exports.target.Target",
    "tensortrial.importers.csv.import_run",
    "tensortrial.importers.neptune.import_runs",
    "tensortrial.importers.smdebug.import_run",
    "tensortrial.importers.tensorboard.import_runs",
    "tensortrial.importers.wandb.import_runs",
    "tensortrial.rules.configuration.read_rules",
]

# Methods that other modules of this project call, and users do not. The reference leaves them out, as it does names
# with an underscore.
INTERNAL_METHODS = [
    "after_fork",
    "backward_ran",
    "begin_forward",
    "database",
    "capture_values",
    "end_forward",
    "fingerprint",
    "forget_parts",
    "inherit",
    "is_fitting",
    "patterns",
    "recorder",
    "resolve",
    "save_gradients_at_updates",
    "saving",
    "set_default_interval",
    "tape_callback",
    "tape_optimizers",
]


@cache
def load_package(folder: Path) -> griffe.Module:
    """Return the sources below `folder`, which holds the package under its import name."""
    package = griffe.load(
        "tensortrial",
        search_paths=[folder],
        docstring_parser="google",
        allow_inspection=False,
        extensions=griffe.load_extensions(REFERENCE.parent / "site" / "hook_arguments.py"),
    )
    assert isinstance(package, griffe.Module)
    return package


def list_public_names(package: griffe.Module) -> dict[str, griffe.Object]:
    """Return each public class, function and constant of `package` by the name that users import."""
    names = [f"{module}.{name}" for module in MODULES for name in _member(package, module).exports or ()]
    names += [f"tensortrial.errors.{name}" for name in package["errors"].classes]
    return {name: _member(package, name) for name in [*names, *SINGLE_NAMES] if not name.endswith("__")}


def list_undocumented_names(package: griffe.Module, reference: Path = REFERENCE) -> list[str]:
    """Return the public names of `package` that no page below `reference` has a section for."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted(reference.rglob("*.md")))
    documented = {_member(package, name).path for name in re.findall(r"^::: (\S+)", pages, re.MULTILINE)}
    return [name for name, member in list_public_names(package).items() if member.path not in documented]


def _member(package: griffe.Module, name: str) -> griffe.Object:
    path = name.removeprefix("tensortrial").removeprefix(".")
    member = package[path] if path else package
    return member.final_target if isinstance(member, griffe.Alias) else member
