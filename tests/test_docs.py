"""What the documentation shows is run as it stands, on a run of the example's own."""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from support import warm

ROOT = Path(__file__).parent.parent
PAGES = [
    "index.md",
    "importing.md",
    "queries.md",
    "plain.md",
    "plots.md",
    "saving.md",
    "reading.md",
    "sql.md",
    "warehouse.md",
    "recipes.md",
    "rules.md",
]
# Pages of a framework, each with the package that its examples need; they make their own runs.
FRAMEWORK_PAGES = {
    "accelerate.md": "accelerate",
    "activations.md": "torch",
    "boosting.md": "catboost",
    "comparing.md": "torch",
    "health.md": "torch",
    "jax.md": "optax",
    "lightning.md": "lightning",
    "loops.md": "ignite",
    "mxnet.md": "mxnet",
    "sklearn.md": "sklearn",
    "tensorboard.md": "tensorboard",
    "tensorflow.md": "tensorflow",
    "transformers.md": "transformers",
    "xgboost.md": "xgboost",
}
# The others are imported where nothing else was imported before.
IN_WARM_PROCESSES = ("sklearn", "tensorboard", "torch", "xgboost")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both processes of the demo have run. That one starts the other is tested in test_examples."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("docs")
    script = ROOT / "examples" / "digits.py"
    # The reader is there first. On a busy machine it might begin when the training has ended.
    with warm.start([script, "watch", "runs/digits"], cwd=folder, preload=warm.TORCH) as watching:
        training = warm.run([script, "train", "runs/digits"], cwd=folder, timeout=300)
        demo, error = watching.communicate(timeout=300)
    assert (training.returncode, watching.returncode) == (0, 0), training.stderr + error
    assert "step 50 is here, the job is still training" in demo
    assert "gradient/Net_conv1.weight" in demo
    accuracy = float(demo.partition("EVAL accuracy")[2].split("\n")[0].split()[-1])
    assert accuracy > 0.9
    return folder


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.slow
def test_the_examples_of_a_page_run(page: str, folder: Path) -> None:
    run_examples(page, folder)


@pytest.mark.parametrize("page", FRAMEWORK_PAGES)
@pytest.mark.slow
def test_the_examples_of_a_framework_run(page: str, tmp_path: Path) -> None:
    if find_spec(FRAMEWORK_PAGES[page]) is None:
        pytest.skip(f"{FRAMEWORK_PAGES[page]} is not installed here")
    run_examples(page, tmp_path)


def run_examples(page: str, folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert blocks
    program = "\n".join(blocks)
    # A reader has not switched off what a run keeps by itself.
    variables = {name: value for name, value in os.environ.items() if name != "TENSORTRIAL_ENVIRONMENT"}
    done: subprocess.CompletedProcess[str]
    if FRAMEWORK_PAGES.get(page, "torch") in IN_WARM_PROCESSES:
        preload = warm.TORCH if re.search(r"^(import|from) torch\b", program, re.MULTILINE) else ()
        done = warm.run(["-c", program], cwd=folder, env=variables, timeout=300, preload=preload)
    else:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_session_of_the_readme_reads_what_its_program_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    text = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (session,) = re.findall(r"```pycon\n(.*?)```", text, re.DOTALL)
    from tensortrial import create_trial

    for run in ("mine", "mine-2"):  # it runs any number of times
        done = warm.run(["-c", program], cwd=tmp_path, timeout=300, preload=warm.TORCH)
        assert done.returncode == 0, done.stderr
        trial = create_trial(tmp_path / "runs" / run)
        assert trial.steps() == list(range(100))
        assert "gradient/Linear_weight" in trial.tensor_names()
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(session, {}, "README", "README.md", 0)
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert result.attempted > 5
    assert result.failed == 0


def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tutorial.md").read_text()
    names: dict[str, object] = {}
    sessions = 0
    for language, block in re.findall(r"```(python|pycon)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            exec(block, names)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, "tutorial", "tutorial.md", 0)
        test.globs = names
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
            test, clear_globs=False
        )
        assert result.failed == 0
        sessions += 1
    assert sessions > 5


# The packages whose names differ from those of their modules, and those that an attribute needs.
PACKAGES = {"ignite": "pytorch-ignite", "omegaconf": "hydra-core", "sklearn": "scikit-learn"}
NEEDED_BY = {"df": "pandas", "frame": "pandas", "to_pandas": "pandas", "plot": "matplotlib"}


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_a_page_says_how_to_install_what_its_examples_need(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = settings["optional-dependencies"]

    def names(requirement: str) -> set[str]:
        name, _, listed = requirement.partition("[")
        if name != "tensortrial":
            return {re.split(r"[<>=]", name)[0]}
        return {
            each for extra in listed.rstrip("]").split(",") if extra for one in extras[extra] for each in names(one)
        }

    installed = {name for requirement in settings["dependencies"] for name in names(requirement)}
    for line in re.findall(r"pip install ([^`\n#]*)", text):
        installed |= {name for word in line.split() for name in names(word.strip("'"))}
    needed = set[str]()
    for language, block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            needed |= packages_of(block)
        elif language == "pycon":
            needed |= packages_of("\n".join(re.findall(r"^(?:>>>|\.\.\.) (.*)$", block, re.MULTILINE)))
        elif re.search(r"^(\$ )?tensortrial ", block, re.MULTILINE):
            needed.add("click")
    if "keras" in needed and "tensorflow" in installed:
        installed.add("keras")  # which TensorFlow requires
    assert needed <= installed


def packages_of(program: str) -> set[str]:
    """Return the packages that a program imports, apart from this one, or that its methods need."""
    modules, needed = set[str](), set[str]()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Attribute) and node.attr in NEEDED_BY:
            needed.add(NEEDED_BY[node.attr])
    modules -= {*sys.stdlib_module_names, "tensortrial"}
    return needed | {PACKAGES.get(module, module) for module in modules}


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "design").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_in_the_documents_for_developers_exists(page: str) -> None:
    paths = re.findall(r"`((?:docs|hooks|queries|tensorstore|tests)/[^`*]*)`", (ROOT / page).read_text())
    assert len(paths) > 3
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_environment_variable_is_on_the_page_of_them() -> None:
    variable = re.compile(
        r"\bTENSORTRIAL_[A-Z_]*[A-Z]\b|(?<=[`\"])(?:TENSORTRIAL|USE_SMDEBUG|SMDEBUG_[A-Z_]+|[A-Z]+_CONFIG_FILE_PATH)\b"
    )
    sources = [path for folder in ("tensorstore", "hooks") for path in (ROOT / folder).rglob("*.py")]
    used = {name for path in sources for name in variable.findall(path.read_text())}
    documented = set(variable.findall((ROOT / "docs" / "environment.md").read_text()))
    assert {"TENSORTRIAL", "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"} < used
    assert documented == used


def extras_of_users() -> set[str]:
    """Return the extras that are not for work on tensortrial itself."""
    extras = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    return set(extras[: extras.index("test-core")])


def test_every_extra_is_on_the_first_page() -> None:
    table = (ROOT / "docs" / "index.md").read_text().partition("| extra |")[2]
    first_cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"`([\w-]+)`", cell)} == extras_of_users()


def test_an_error_about_a_missing_package_names_an_extra_that_exists() -> None:
    called = {
        argument.value
        for folder in ("tensorstore", "hooks")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("MissingExtra", "importing")
        if isinstance(argument := node.args[1], ast.Constant)
    }
    assert "frame" in called
    assert called <= extras_of_users()


def test_every_view_is_documented_with_its_columns(folder: Path) -> None:
    import tensortrial

    trial = tensortrial.create_trial(folder / "runs" / "digits")
    text = (ROOT / "docs" / "sql.md").read_text()
    for view in ("reductions", "scalars", "steps", "collections", "findings", "tensor_values"):
        columns = " ".join(trial.sql(f"select * from {view} limit 0").columns)
        assert f"| `{view}` |" in text
        assert f"`{columns}`" in text, view
    runs = tensortrial.open_runs(folder / "runs")
    assert f"`{' '.join(runs.sql('select * from runs').columns)}`" in text
