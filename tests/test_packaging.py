"""What is built and installed: the wheel, the source distribution, and the editable install of the Makefile.

The folders at the root are packages of another name, so there is much to get wrong here: our `tensorstore/` must never
reach the place of the package that owns that import name.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tensortrial

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"tensorstore": "tensortrial", "hooks": "tensortrial/hooks", "queries": "tensortrial/queries"}

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed; the root folder never gets onto its `sys.path`."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_TARGET")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """Build `source` as a wheel or an sdist into `out`; returns the one file made."""
    run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", out, source, cwd=out.parent)
    (made,) = out.iterdir()
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


class Venv:
    """A fresh environment that sees the libraries of this one, but not its editable install of tensortrial."""

    def __init__(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
        self.python = folder / "bin" / "python"
        self.folder = folder
        self.site = Path(self.ask("import sysconfig; return sysconfig.get_path('purelib')"))
        # A folder named in a .pth file is searched, but the .pth files in it, an editable install's too, are not read.
        outer = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (self.site / "libraries.pth").write_text("\n".join(sorted(outer)) + "\n")

    def install(self, *what: str | Path, cwd: Path) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-index", "--no-deps")
        run(*pip, "--no-build-isolation", "--ignore-installed", *what, cwd=cwd)

    def ask(self, code: str, cwd: Path | None = None) -> Any:
        """What the body of a function returns in this environment, by way of JSON."""
        body = "import json\ndef f():\n" + "".join(f"    {line}\n" for line in code.splitlines())
        return json.loads(run(self.python, "-c", body + "print(json.dumps(f()))", cwd=cwd or self.folder))


ORIGINS = """
import importlib
names = ("tensortrial", "tensortrial.errors", "tensortrial.hooks", "tensortrial.queries")
return {name: importlib.import_module(name).__file__ for name in names}
"""
LOADED = "import sys, tensortrial\nreturn [name for name in ('duckdb', 'torch', 'pyarrow') if name in sys.modules]"
FOUND = f"import importlib.util\nreturn [name for name in {list(PACKAGES)} if importlib.util.find_spec(name)]"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the build reads: a build leaves nothing in the working tree and finds nothing stale."""
    copy = tmp_path_factory.mktemp("source") / "tensortrial"
    copy.mkdir()
    for folder in PACKAGES:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it is released: from the unpacked sdist. The first process that tests makes it for the others."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "wheel").exists():
            shutil.unpack_archive(build("sdist", source, folder / "sdist"), folder / "unpacked", filter="data")
            (unpacked,) = (folder / "unpacked").iterdir()
            build("wheel", unpacked, folder / "wheel")
    (made,) = (folder / "wheel").iterdir()
    return made


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    expected = set()
    for folder, package in PACKAGES.items():
        for path in (ROOT / folder).rglob("*"):
            of_the_page = path.is_file() and "static" in path.relative_to(ROOT / folder).parts
            if path.suffix in (".py", ".sql") or path.name == "py.typed" or of_the_page:
                expected.add(f"{package}/{path.relative_to(ROOT / folder)}")
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == expected
    assert any(name.endswith(".sql") for name in expected)
    assert {"tensortrial/py.typed", "tensortrial/pages/static/index.html"} <= expected
    assert f"tensortrial-{tensortrial.__version__}.dist-info/licenses/LICENSE" in contents(wheel)


def test_the_sdist_builds_the_same_wheel_as_the_working_tree(source: Path, wheel: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean"  # what building the sdist left in the first copy must make no difference
    shutil.copytree(source, clean, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    assert contents(build("wheel", clean, tmp_path / "out")) == contents(wheel)


def test_the_installed_wheel_works_and_leaves_another_tensorstore_alone(wheel: Path, tmp_path: Path) -> None:
    venv = Venv(tmp_path / "venv")
    other = tmp_path / "other"
    (other / "tensorstore").mkdir(parents=True)
    (other / "tensorstore" / "__init__.py").write_text("whose = 'the array library'\n")
    (other / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "tensorstore"\nversion = "1"\n[tool.setuptools]\npackages = ["tensorstore"]\n'
    )
    venv.install(other, cwd=tmp_path)
    before = {path: path.read_bytes() for path in (venv.site / "tensorstore").rglob("*.py")}
    assert before

    venv.install(wheel, cwd=tmp_path)
    assert all(path.startswith(str(venv.site / "tensortrial")) for path in venv.ask(ORIGINS).values())
    assert venv.ask(LOADED) == []
    assert {path: path.read_bytes() for path in (venv.site / "tensorstore").rglob("*.py")} == before
    assert venv.ask("import tensorstore\nreturn tensorstore.whose") == "the array library"
    assert venv.ask(FOUND) == ["tensorstore"]
    assert "Usage" in run(venv.folder / "bin" / "tensortrial", "--help", cwd=tmp_path)


def write_stub_wheel(folder: Path, name: str, version: str) -> Path:
    """Write a wheel of that name and version, with nothing in it and no requirements."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    wheel = folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


# The oldest versions that pyproject.toml allows.
OLDEST = {
    "duckdb": "1.5.5",
    "fsspec": "2023.1.0",
    "google-crc32c": "1.5.0",
    "numpy": "1.23.5",
    "pyarrow": "25.0.1",
    "xxhash": "3.4.1",
}


@pytest.mark.parametrize(
    ("extra", "installed"),
    [
        ("", {}),
        ("[tensorflow,torch,xgboost]", {"tensorflow": "2.15.0", "torch": "2.7.0", "xgboost": "3.2.0"}),
        ("[mxnet]", {"mxnet": "1.9.1"}),
    ],
)
def test_an_installation_changes_no_version_that_is_installed(
    extra: str, installed: dict[str, str], wheel: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    pip = (sys.executable, "-m", "pip", "--python", tmp_path / "venv" / "bin" / "python")
    offered = tmp_path / "offered"
    offered.mkdir()
    versions = {**OLDEST, **installed}
    old = [write_stub_wheel(tmp_path, name, version) for name, version in versions.items()]
    run(*pip, "install", "--no-index", *old, cwd=tmp_path)
    for name in (*versions, "ml_dtypes"):
        write_stub_wheel(offered, name, "9999.0")  # newer than everything installed; ml_dtypes is missing there

    isolated = ("--no-index", "--find-links", offered)
    run(*pip, "install", *isolated, f"{wheel}{extra}", cwd=tmp_path)

    frozen = json.loads(run(*pip, "list", "--format", "json", cwd=tmp_path))
    after = {each["name"]: each["version"] for each in frozen}
    assert {name: after.pop(name) for name in versions} == versions
    assert set(after) == {"ml_dtypes", "tensortrial"}


def test_the_editable_install_adds_no_other_top_level_name(source: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(source, tree, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    venv = Venv(tmp_path / "venv")
    libraries = venv.ask(FOUND)  # Flax brings an array library of the name tensorstore
    venv.install("--config-settings", "editable_mode=strict", "-e", tree, cwd=tmp_path)

    # Run in the root folder, where the packages would be found if it were on the path.
    origins = venv.ask(ORIGINS, cwd=tree)
    assert {str(Path(path).resolve().parent) for path in origins.values()} == {
        str(tree / folder) for folder in PACKAGES
    }
    assert venv.ask(FOUND, cwd=tree) == libraries

    # The links are to the files: an edit is seen without a new install.
    with (tree / "tensorstore" / "errors.py").open("a") as file:
        file.write("\nEDITED = True\n")
    assert venv.ask("from tensortrial import errors\nreturn errors.EDITED", cwd=tree) is True


def test_these_tests_run_on_the_editable_install_of_this_tree() -> None:
    code = "import tensortrial, tensortrial.hooks\nprint(tensortrial.__file__)\nprint(tensortrial.hooks.__file__)"
    store, hooks = run(sys.executable, "-c", code, cwd=ROOT).split()
    assert Path(store).resolve().parent == ROOT / "tensorstore"
    assert Path(hooks).resolve().parent == ROOT / "hooks"
