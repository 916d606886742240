"""`python -m tensortrial run`: scripts that know nothing of hooks, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import warm
from tensortrial import create_trial
from tensortrial.hooks.launch.launch import Launch
from tensortrial.hooks.plain import Run
from tensortrial.mode import modes

RUN = ("-m", "tensortrial", "run")
NOTHING = "tensortrial: nothing was saved: the script trained no model"
TRAIN = """
import torch
def train(steps=3):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        torch.nn.functional.mse_loss(model(torch.rand(8, 4)), torch.zeros(8, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def variables(**environment: str) -> dict[str, str]:
    names = ("PYTHONSAFEPATH", "TENSORTRIAL_STRICT", "TENSORTRIAL_OUT_DIR", "TENSORTRIAL_CONFIG")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "OMP_NUM_THREADS": "1", **environment}


def python(folder: Path, *arguments: object, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a real process: the command prepares what is imported later."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=variables(**environment), capture_output=True, text=True, timeout=180
    )
    assert done.returncode == status, done.stderr
    return done


def warm_python(
    folder: Path, *arguments: object, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python where no import matters."""
    done = warm.run(arguments, cwd=folder, env=variables(**environment), timeout=180)
    assert done.returncode == status, done.stderr
    return done


def existing_run(path: Path) -> None:
    with Run(path) as run:
        run.log({"x": 1.0}, step=0)


SHOW = """
import atexit, pickle, sys, helper
class Item:
    pass
atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Item()))).__module__))
main = sys.modules["__main__"]
print(sys.argv, __name__, __file__, __package__, main.Item is Item, sys.path[0] == helper.FOLDER, __doc__)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "keras", "xgboost", "click", "rich"}))
"""


def test_a_script_runs_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "helper.py").write_text("import os; FOLDER = os.path.dirname(os.path.abspath(__file__))")
    (tmp_path / "src" / "show.py").write_text(f'"""Documented."""\n{SHOW}')
    expected = python(tmp_path, "src/show.py", "--out-dir", "x", "-m")
    done = python(tmp_path, *RUN, "src/show.py", "--out-dir", "x", "-m")
    assert done.stdout == expected.stdout
    assert done.stdout.startswith("['src/show.py', '--out-dir', 'x', '-m'] __main__ /")
    assert "src/show.py None True True Documented.\n[]\n__main__\n" in done.stdout
    assert done.stderr.startswith(NOTHING)
    assert done.stderr.count("\n") == 1


def test_a_module_runs_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "helper.py").write_text("import os; FOLDER = os.getcwd()")
    for name in ("__main__", "show"):
        (tmp_path / "package" / f"{name}.py").write_text(SHOW.replace("sys, helper", "sys\nfrom . import helper"))
    for name in ("package", "package.show"):
        expected = python(tmp_path, "-m", name, "a")
        assert python(tmp_path, *RUN, "-m", name, "a").stdout == expected.stdout
    assert "no_such" in python(tmp_path, *RUN, "-m", "no_such", status=2).stderr


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import sys; sys.exit('a message')", 1),
        ("raise EOFError('the script')", 1),
        ("import os; os._exit(7)", 7),
        ("exit()", 0),
    ],
)
def test_the_exit_status_is_the_script_s(tmp_path: Path, script: str, status: int) -> None:
    (tmp_path / "end.py").write_text(script)
    expected = warm_python(tmp_path, "end.py", status=status)
    done = warm_python(tmp_path, *RUN, "end.py", status=status)
    if status:
        assert done.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]
    else:
        assert done.stderr.startswith(NOTHING)


def test_ctrl_c_ends_a_script_as_it_does_without(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time; print('begins', flush=True); time.sleep(60)")
    for command in ([], RUN):
        with warm.start([*command, "wait.py"], cwd=tmp_path, env=variables()) as process:
            assert process.stdout.readline() == "begins\n"
            process.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
        assert process.returncode == -signal.SIGINT


def test_a_folder_without_a_main_module_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = warm_python(tmp_path, *RUN, "folder", status=2)
    assert done.stderr == "tensortrial run: script 'folder' is a folder without a __main__.py\n"


def test_a_folder_that_holds_a_run_ends_the_command_before_the_script_begins(tmp_path: Path) -> None:
    existing_run(tmp_path / "run")
    (tmp_path / "show.py").write_text("print('begins')")
    done = warm_python(tmp_path, *RUN, "--out-dir", "run", "show.py", status=1)
    assert "holds a run already" in done.stderr
    assert "(--out-dir DIR, --resume)" in done.stderr
    assert done.stdout == ""
    assert warm_python(tmp_path, *RUN, "show.py", TENSORTRIAL_OUT_DIR="run", status=1).stdout == ""
    # Worker 1 of a job joins the run that worker 0 has begun, and here saves nothing.
    assert warm_python(tmp_path, *RUN, "--out-dir", "run", "show.py", RANK="1", WORLD_SIZE="2").stdout == "begins\n"
    assert warm_python(tmp_path, *RUN, "--out-dir", "run", "--resume", "show.py").stdout == "begins\n"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"include_collection": ["x"]}, "did you mean 'include_collections'?"),
        ({"save_config": {"save_interval": 0}}, "save_interval"),
        ({"save_config": {"save_interva": 1}}, "save_interva"),
        ({"reduction_config": ["mena"]}, "mena"),
        ({"include_regex": "("}, "("),
        ({"include_workers": "some"}, "include_workers must be 'one' or 'all'"),
        ({"collections": {"relu": {"include_regx": "x"}}}, "unknown key 'include_regx' of collection 'relu'"),
        ({"LocalPath": "run", "HookParameters": {"save_interval": "x"}}, "save_interval"),
        ([], "must be a JSON object"),
    ],
)
def test_a_wrong_configuration_ends_the_command_before_the_script_begins(
    tmp_path: Path, document: object, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensortrial.errors import ConfigurationError

    monkeypatch.chdir(tmp_path)
    (tmp_path / "hook.json").write_text(json.dumps(document))
    with pytest.raises(ConfigurationError) as caught:
        Launch.of("train", "hook.json", None, False).check()
    assert expected in str(caught.value)
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"{"], ids=["binary", "nested", "cut"])
def test_a_file_that_is_no_json_is_named(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensortrial.errors import ConfigurationError
    from tensortrial.hooks.launch.launch import active_launch

    (tmp_path / "hook.json").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"hook\.json: the hook's configuration is not JSON: "):
        Launch.of("train", str(tmp_path / "hook.json"), None, False).check()
    monkeypatch.setenv("TENSORTRIAL_LAUNCH", content.decode("latin-1"))
    assert active_launch() is None


@pytest.mark.parametrize("variable", ["TENSORTRIAL_CONFIG", "SMDEBUG_CONFIG_FILE_PATH"])
def test_the_environment_names_a_configuration(tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"LocalPath": "run", "CollectionConfigurations": [{"CollectionName": "gradients"}]}
    (tmp_path / "hook.json").write_text(json.dumps(document))
    for name in ("TENSORTRIAL_CONFIG", "TENSORTRIAL_OUT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "hook.json"))
    found = Launch.of("train", None, None, False).configuration()
    assert found.arguments["out_dir"] == "run"
    assert [each.name for each in found.collections] == ["gradients"]
    assert Launch.of("train", None, "s3://bucket/x", True).configuration().arguments["out_dir"] == "s3://bucket/x"


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    assert "SCRIPT is missing" in warm_python(tmp_path, *RUN, status=2).stderr
    assert "script 'none.py' does not exist" in warm_python(tmp_path, *RUN, "none.py", status=2).stderr
    (tmp_path / "show.py").write_text("print('begins')")
    assert "cannot be read" in warm_python(tmp_path, *RUN, "--config", "none.json", "show.py", status=1).stderr
    assert "--out-dir" in warm_python(tmp_path, *RUN, "--help").stdout


def test_the_command_works_in_python_too(tmp_path: Path) -> None:
    pytest.importorskip("click")
    from click.testing import CliRunner

    from tensortrial.cli import main

    assert "run" in CliRunner().invoke(main, ["--help"]).output
    assert CliRunner().invoke(main, ["run"]).exit_code == 2


def test_a_training_is_saved_as_the_configuration_says(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(f"{TRAIN}\ntrain(4)")
    configuration = {
        "out_dir": "run",
        "include_collections": ["gradients"],
        "save_config": {"save_interval": 2},
        "collections": {"inputs": {"include_regex": "_input_", "reduction_config": ["mean"]}},
        "gradients": ["local", "optimizer"],
    }
    (tmp_path / "hook.json").write_text(json.dumps(configuration))
    done = python(tmp_path, *RUN, "--config", "hook.json", "train.py")
    assert done.stderr == "tensortrial: tensors of this training are saved to run\n"
    trial = create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert trial.tensor("gradient/Linear_weight").steps(modes.TRAIN) == [0, 2]
    assert trial.tensor("optimizer_gradient/Linear_weight").value(2, modes.TRAIN).shape == (1, 4)
    assert trial.tensor("Linear_input_0").reduction_value(0, "mean", modes.TRAIN) > 0
    assert trial.tensor_names(collection="losses") == ["loss_output_0"]


def test_an_interval_alone_saves_health_at_that_interval(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(f"{TRAIN}\ntrain(5)")
    (tmp_path / "hook.json").write_text(json.dumps({"out_dir": "run", "save_interval": 2}))
    done = python(tmp_path, *RUN, "--config", "hook.json", "train.py")
    assert done.returncode == 0, done.stderr
    trial = create_trial(str(tmp_path / "run"))
    assert trial.tensor("gradient/Linear_weight").steps(modes.TRAIN) == [0, 2, 4]
    assert trial.tensor("loss_output_0").steps(modes.TRAIN) == [0, 2, 4]


@pytest.mark.slow
def test_processes_that_a_script_spawns_are_saved(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        f"{TRAIN}\nif __name__ == '__main__':\n"
        "    import multiprocessing\n"
        "    process = multiprocessing.get_context('spawn').Process(target=train)\n"
        "    process.start(); process.join(); raise SystemExit(process.exitcode)\n"
    )
    # A sitecustomize of the user's own is still run.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os; os.environ['OWN'] = '1'")
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "own.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import os, sitecustomize; print(os.environ[\"OWN\"])'], check=True)"
    )
    assert NOTHING not in python(tmp_path, *RUN, "train.py").stderr
    assert create_trial(str(tmp_path / "runs" / "train")).steps(modes.TRAIN) == [0, 1, 2]
    assert python(tmp_path, *RUN, "own.py", PYTHONPATH=path).stdout == "1\n"


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False])
def test_processes_of_torchrun_are_workers(tmp_path: Path, inside: bool) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        f"{TRAIN}\ntorch.distributed.init_process_group('gloo')\n"
        "linear = torch.nn.Linear\n"
        "torch.nn.Linear = lambda *sizes: torch.nn.parallel.DistributedDataParallel(linear(*sizes))\n"
        "train()\ntorch.distributed.destroy_process_group()\n"
    )
    (tmp_path / "hook.json").write_text(
        json.dumps(
            {"include_workers": "all", "include_collections": ["gradients"], "save_config": {"save_interval": 1}}
        )
    )
    torchrun = ("torch.distributed.run", "--nproc-per-node=2", "--standalone")
    options = ("--config", "hook.json", "--out-dir", "run")
    if inside:
        python(tmp_path, *RUN, *options, "-m", *torchrun, "train.py")
    else:
        python(tmp_path, "-m", *torchrun, "-m", "tensortrial", "run", *options, "train.py")
    trial = create_trial(str(tmp_path / "run"))
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.tensor("gradient/Linear_weight").steps(modes.TRAIN) == [0, 1, 2]


@pytest.mark.slow
def test_boosting_is_saved_by_xgboost_and_its_estimators(tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    pytest.importorskip("sklearn")
    (tmp_path / "plain.py").write_text(
        "import numpy as np, xgboost\n"
        "x = np.random.default_rng(0).random((50, 3))\n"
        "data = xgboost.DMatrix(x, x[:, 0])\n"
        "for _ in range(2):\n"
        "    xgboost.train({'max_depth': 2}, data, 11, evals=[(data, 'train')], verbose_eval=False)\n"
    )
    (tmp_path / "estimator.py").write_text(
        "import numpy as np\nfrom xgboost import XGBRegressor\n"
        "x = np.random.default_rng(0).random((50, 3))\n"
        "XGBRegressor(n_estimators=11).fit(x, x[:, 0], eval_set=[(x, x[:, 0])], verbose=False)\n"
    )
    for name, metric in (("plain", "train-rmse"), ("estimator", "validation_0-rmse")):
        python(tmp_path, *RUN, f"{name}.py")
        trial = create_trial(str(tmp_path / "runs" / name))
        assert trial.tensor(metric).steps() == list(range(11))
        assert trial.tensor_names(collection="feature_importance")
    assert not (tmp_path / "runs" / "plain-2").exists()
    (tmp_path / "cv.py").write_text(
        (tmp_path / "plain.py").read_text().replace("train({", "cv({").partition("evals")[0] + "nfold=2)"
    )
    assert NOTHING in python(tmp_path, *RUN, "cv.py").stderr


def test_an_import_that_fails_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os\nif not os.environ.pop('READY', ''): raise ImportError('not yet')")
    (tmp_path / "again.py").write_text(
        "import os\ntry:\n    import torch\nexcept ImportError as exc:\n    print(exc)\n"
        "os.environ['READY'] = '1'\nimport torch, importlib.util\nprint(torch.__spec__.loader.__class__.__name__)\n"
    )
    done = python(tmp_path, *RUN, "again.py")
    assert done.stdout == "not yet\nSourceFileLoader\n"
