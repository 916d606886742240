"""`tensortrial tensor RUN NAME`."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np

from ...errors import ConfigurationError, TensorUnavailableForStep
from ...mode import ModeKeys
from ...nested import plain
from ...read.tensor import Tensor
from ...visible import counted
from ..console import console_for, print_line, print_table
from ..options import mode_option, open_trial, run_argument, storage_option
from ..ranges import ranges

_STATISTICS = ("min", "max", "mean", "std", "median", "l2", "nan_count", "inf_count", "zero_count")
_SHOWN = 60
"""The most elements of a value that are printed."""


@click.command()
@run_argument
@click.argument("name")
@click.option("--step", type=int, help="The step in --mode. [default: the last one]")
@mode_option
@click.option("--worker", help="The worker. [default: the first one]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all elements.")
@storage_option
def tensor(
    run: str,
    name: str,
    step: int | None,
    mode: str,
    worker: str | None,
    as_json: bool,
    storage_options: tuple[str, ...],
) -> None:
    """Show one tensor at one step: shape, statistics and elements.

    \b
    tensortrial tensor runs/digits gradient/Net_fc.weight
    tensortrial tensor runs/digits gradient/Net_fc.weight --step 100 --mode train
    """
    trial_tensor, in_mode = open_trial(run, storage_options).tensor(name), ModeKeys[mode]
    steps = trial_tensor.steps(in_mode)
    if not steps and step is None:
        raise click.ClickException(f"tensor {name!r} was saved at no step of mode {mode}")
    at = steps[-1] if step is None else step
    shape, value = trial_tensor.shape(at, in_mode, worker), _value(trial_tensor, at, in_mode, worker)
    statistics = _statistics(trial_tensor, at, in_mode, worker)
    if as_json:
        document = {
            "name": trial_tensor.name,
            "step": at,
            "mode": mode,
            "shape": list(shape),
            "dtype": None if value is None else str(value.dtype),
            "statistics": statistics,
            "value": None if value is None else value.tolist(),
        }
        click.echo(json.dumps(plain(document), ensure_ascii=False))
        return
    kind = str(list(shape)) if shape else "scalar"
    kind = kind if value is None else f"{value.dtype} {kind}"
    print_line(f"{name}: {kind}; saved at {counted(len(steps), 'step')} of {mode}: {', '.join(ranges(steps))}")
    print_table(console_for(), [f"step {at}", ""], [[key, f"{number:.6g}"] for key, number in statistics.items()])
    if value is None:
        print_line("no raw value was saved at this step")
    else:
        text = np.array2string(np.asarray(value), threshold=_SHOWN, edgeitems=3, precision=5, max_line_width=79)
        for line in text.split("\n"):
            print_line(line)


def _value(tensor: Tensor, step: int, mode: ModeKeys, worker: str | None) -> Any:
    try:
        return tensor.value(step, mode, worker)
    except TensorUnavailableForStep:
        return None


def _statistics(tensor: Tensor, step: int, mode: ModeKeys, worker: str | None) -> dict[str, float]:
    """Return the statistics that were saved, or can be computed from the raw value."""
    found = {}
    for name in _STATISTICS:
        try:
            value = tensor.reduction_value(step, name, mode, worker)
        except (TensorUnavailableForStep, ConfigurationError):
            continue
        if value is not None:
            found[name] = float(value)
    return found
