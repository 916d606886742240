"""`tensortrial run SCRIPT…`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ConfigurationError, RunExists, TensorTrialError
from ...script import prepared_module, prepared_script

if TYPE_CHECKING:
    from ...hooks.launch import Launch

DESCRIPTION = """\
Run a training script unchanged, and save tensors of the first model that
trains, with PyTorch, the Trainer of transformers, Lightning, Keras or XGBoost.
Processes that the script starts are saved, too.

  python -m tensortrial run train.py --epochs 3
  python -m tensortrial run --config hook.json --out-dir runs/x -m package.train
  torchrun --nproc-per-node 2 -m tensortrial run train.py
"""
_CONFIG_HELP = """The configuration: a hook's arguments as JSON, or what SageMaker writes. Default: the file that
TENSORTRIAL_CONFIG or SMDEBUG_CONFIG_FILE_PATH names, else the defaults of a hook: losses, and the collection health."""
_OUT_DIR_HELP = """The folder or URL of the run. Default: TENSORTRIAL_OUT_DIR, the one in the configuration, or
runs/<script> with a number if there is a run."""


def run(arguments: Sequence[str]) -> int:
    """Run a script whose models are hooked when they begin to train.

    Neither click nor rich is imported, so that they need not be installed for training.

    Returns:
        The exit status, unless the script ends the process itself: 0, 1 for an error before the script began, 2 for a
        wrong argument.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.script:
        parser.print_usage(sys.stderr)
        print("tensortrial run: SCRIPT is missing, or MODULE after -m", file=sys.stderr)
        return 2
    try:
        prepared = (prepared_module if options.module else prepared_script)(options.script)
    except ConfigurationError as exc:
        print(f"tensortrial run: {exc}", file=sys.stderr)
        return 2
    try:
        launch = _install(options)
    except TensorTrialError as exc:
        way_out = " (--out-dir DIR, --resume)" if isinstance(exc, RunExists) else ""
        print(f"tensortrial run: {exc}{way_out}", file=sys.stderr)
        return 1
    try:
        prepared()
    except SystemExit as exc:
        if not exc.code:
            launch.check_found()
        raise
    launch.check_found()
    return 0


def _install(options: argparse.Namespace) -> Launch:
    from ...hooks.launch import Launch, install

    name = options.script[0].rpartition(".")[2] if options.module else _stem(options.script[0])
    launch = Launch.of(name, options.config, options.out_dir, options.resume)
    launch.check()
    install(launch)
    return launch


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(os.path.abspath(path)))[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensortrial run",
        usage="python -m tensortrial run [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-c", "--config", metavar="FILE", help=_CONFIG_HELP)
    parser.add_argument("--out-dir", metavar="DIR", help=_OUT_DIR_HELP)
    parser.add_argument("--resume", action="store_true", help="Continue the run in the folder.")
    parser.add_argument("-m", dest="module", action="store_true", help="Run a module, as python -m does.")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="The script with its arguments.")
    return parser
