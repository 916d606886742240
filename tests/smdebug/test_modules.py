"""The modules of smdebug that scripts import, and what their names are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support import warm

pytest.importorskip("torch")

# Every name that smdebug's documents, its published examples and the issues of its users show.
IMPORTS = """
import smdebug
import smdebug.pytorch as smd
from smdebug import modes, SaveConfig, SaveConfigMode, ReductionConfig, CollectionKeys
from smdebug.analysis.utils import no_refresh, refresh
from smdebug.core.collection import Collection, CollectionKeys
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.logger import get_logger
from smdebug.core.modes import ModeKeys
from smdebug.core.reduction_config import ALLOWED_NORMS, ALLOWED_REDUCTIONS, ReductionConfig
from smdebug.core.reductions import ALLOWED_REDUCTIONS
from smdebug.core.save_config import SaveConfig, SaveConfigMode
from smdebug.core.tensor import StepState, Tensor
from smdebug.core.utils import get_logger
from smdebug.exceptions import *
from smdebug.exceptions import (
    SMDebugError, SMDebugIndexError, SMDebugKeyError, SMDebugNotImplementedError, SMDebugRuntimeError, SMDebugTypeError,
    SMDebugValueError, NoMoreData, RuleEvaluationConditionMet, StepNotYetAvailable, StepUnavailable, TensorUnavailable,
    TensorUnavailableForStep, InvalidWorker, MissingCollectionFiles, InsufficientInformationForRuleInvocation,
    ShapeUnavailableForStep, InvalidCollectionConfiguration,
)
from smdebug.profiler.utils import str2bool
from smdebug.pytorch import Hook, SaveConfig, SaveConfigMode, get_hook, set_hook, del_hook
from smdebug.pytorch.collection import Collection, CollectionKeys
from smdebug.pytorch.hook import Hook
from smdebug.pytorch.singleton_utils import get_hook, set_hook
from smdebug.rules import Rule, invoke_rule
from smdebug.rules.action import StopTraining
from smdebug.rules.req_tensors import RequiredTensors
from smdebug.rules.rule import Rule
from smdebug.rules.rule_invoker import invoke_rule
from smdebug.trials import LocalTrial, S3Trial, create_trial
from smdebug.trials.local_trial import LocalTrial
from smdebug.trials.s3_trial import S3Trial
from smdebug.trials.trial import Trial
from smdebug.trials.utils import create_trial
import smdebug.pytorch.utils, smdebug.core.hook, smdebug.core.json_config, smdebug.core.config_constants
import smdebug.core.access_layer, smdebug.core.writer
"""
# Of SageMaker's profiler, and of the inside of smdebug.
MISSING = """
from smdebug.core.config_constants import SOME_VARIABLE
from smdebug.core.writer import FileWriter
from smdebug.profiler.analysis.notebook_utils.training_job import TrainingJob
from smdebug.profiler.profiler_config_parser import ProfilerConfigParser
from smdebug.profiler.system_metrics_reader import S3SystemMetricsReader
import smdebug.profiler.analysis.utils.merge_timelines as merge_timelines
from smdebug.trials.profiler_trial import ProfilerTrial
from smdebug.pytorch import Hok
"""


def run(program: str) -> str:
    """Return what a program that has the aliases prints."""
    preload = warm.TORCH if "torch" in program else ()
    return warm.run(["-c", f"import tensortrial.smdebug\n{program}"], timeout=120, check=True, preload=preload).stdout


@pytest.mark.slow
def test_every_import_of_published_scripts_works() -> None:
    shown = run(
        IMPORTS
        + """
print(ALLOWED_REDUCTIONS, ALLOWED_NORMS)
print(modes is ModeKeys is smd.modes, modes.TRAIN.value, StepState.AVAILABLE.value, smdebug.pytorch is smd)
print(smd.Hook is Hook is smdebug.pytorch.hook.Hook, issubclass(LocalTrial, Trial), get_logger().name)
"""
    )
    assert shown.splitlines() == [
        "['min', 'max', 'mean', 'std', 'variance', 'sum', 'prod'] ['l1', 'l2']",
        "True 1 1 True",
        "True True smdebug",
    ]


def test_a_script_that_only_reads_imports_no_framework() -> None:
    program = (
        "import tensortrial.smdebug, sys\n"
        "from smdebug.trials import create_trial\n"
        "from smdebug.rules import Rule\n"
        "import smdebug.exceptions\n"
        "print({'torch', 'tensorflow', 'xgboost', 'keras'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "set()\n", done.stderr


def test_general_errors_catch_and_can_be_raised() -> None:
    shown = run(
        """
from smdebug.exceptions import *
import smdebug.trials, smdebug
kinds = SMDebugError, SMDebugValueError, SMDebugRuntimeError, SMDebugTypeError, SMDebugIndexError, SMDebugKeyError
for kind in kinds:
    try:
        raise kind("said")
    except SMDebugError as e:
        print(type(e).__name__, e)
try:
    smdebug.SaveConfig(save_interval=0)
except SMDebugValueError as e:
    print(isinstance(e, ValueError))
try:
    smdebug.trials.create_trial("/nowhere")
except SMDebugError as e:
    print(type(e).__name__)
"""
    )
    assert shown.split("\n")[-3:] == ["True", "RunNotFound", ""]
    assert "SMDebugKeyError said" in shown


@pytest.mark.slow
def test_what_is_missing_is_an_error_when_it_is_used_and_not_when_it_is_imported() -> None:
    shown = run(
        MISSING
        + """
import copy, os, pickle
from typing import Optional
class Mine(TrainingJob):
    pass
uses = [
    lambda: ProfilerConfigParser(), lambda: TrainingJob("job", "eu-west-1"), lambda: S3SystemMetricsReader.refresh,
    lambda: merge_timelines.MergedTimeline("x"), lambda: FileWriter("trial", step=0), lambda: Mine(),
    lambda: ProfilerTrial("x"), lambda: os.path.join(SOME_VARIABLE, "x"), lambda: f"{SOME_VARIABLE}/x",
    lambda: SOME_VARIABLE + "x", lambda: "x" + SOME_VARIABLE, lambda: list(SOME_VARIABLE), lambda: SOME_VARIABLE["x"],
    lambda: isinstance(3, ProfilerTrial), lambda: setattr(ProfilerTrial, "x", 3), lambda: ProfilerTrial.__enter__(),
    lambda: int(SOME_VARIABLE), lambda: Hok("x"), lambda: isinstance(3, Hok),
]
def typed(trial: ProfilerTrial | None, other: Optional[ProfilerTrial] = None) -> "ProfilerTrial":
    pass
class Near(Hok):
    pass
uses += [lambda: Near()]
assert copy.deepcopy(pickle.loads(pickle.dumps([SOME_VARIABLE])))
from smdebug.exceptions import SMDebugNotImplementedError
for use in uses:
    try:
        use()
    except NotImplementedError as e:
        assert isinstance(e, SMDebugNotImplementedError)
        print(e)
"""
    )
    lines = shown.splitlines()
    assert len(lines) == 20
    assert all(" is not part of tensortrial: " in line for line in lines)
    assert lines[0].startswith("smdebug.profiler.profiler_config_parser.ProfilerConfigParser is not part of")
    assert "torch.profiler" in lines[0]
    assert "hook.save_tensor" in lines[4]
    assert "'SMDEBUG_CONFIG_FILE_PATH'" in lines[7]
    assert all("did you mean smdebug.pytorch.Hook?" in line for line in lines[17:])


@pytest.mark.slow
def test_any_module_of_a_framework_has_its_names() -> None:
    shown = run(
        "from smdebug.pytorch.anywhere import Hook, Unknown\nimport smdebug.pytorch as smd\n"
        "print(Hook is smd.Hook, repr(Unknown), {'Hook', 'get_hook'} <= set(dir(smd)))"
    )
    assert shown == "True <smdebug.pytorch.anywhere.Unknown, which is not part of tensortrial> True\n"


@pytest.mark.slow
def test_a_misspelt_name_of_a_framework_is_an_attribute_error() -> None:
    assert run("import smdebug.pytorch as smd; print(hasattr(smd, 'Hok'), hasattr(smd, 'Hook'))") == "False True\n"


@pytest.mark.parametrize("text", ["y", "Yes", "t", "TRUE", "on", "1"])
def test_str2bool_reads_what_argparse_passes(text: str) -> None:
    from tensortrial.smdebug.constants import str2bool

    assert str2bool(text) is True
    assert str2bool("FALSE") is str2bool("n") is str2bool("0") is str2bool(False) is False
    with pytest.raises(ValueError, match="'maybe'"):
        str2bool("maybe")
