"""Find the packages: each folder with an `__init__.py` below the three roots. pyproject.toml says all else."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup

# The packages at the root share one import name: `tensorstore` belongs to another project's package, and `hooks` and
# `queries` are too general to own.
ROOTS = {"tensortrial": "tensorstore", "tensortrial.hooks": "hooks", "tensortrial.queries": "queries"}

setup(
    package_dir=ROOTS,
    packages=[
        ".".join([package, *path.relative_to(root).parent.parts])
        for package, root in ROOTS.items()
        for path in sorted(Path(root).rglob("__init__.py"))
    ],
)
