"""`tensortrial tensor RUN NAME`."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np

from ...errors import ConfigurationError, TensorUnavailableForStep
from ...mode import ModeKeys
from ...read.tensor import Tensor
from ..console import console_for, print_line, print_table
from ..options import mode_option, open_trial, run_argument, storage_option
from ..ranges import ranges
from ..rows import plain

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
    tensortrial tensor runs/digits gradient/Net_fc.weight --step 100 --json
    """
    found = open_trial(run, storage_options).tensor(name)
    steps = found.steps(ModeKeys[mode])
    if not steps and step is None:
        raise click.ClickException(f"tensor {name!r} was saved at no step of mode {mode}")
    at = _At(found, steps[-1] if step is None else step, ModeKeys[mode], worker)
    if as_json:
        click.echo(json.dumps(plain(at.document()), ensure_ascii=False))
        return
    print_line(f"{name}: {at.description()}; saved at {len(steps)} steps of {mode}: {', '.join(ranges(steps))}")
    rows = [[key, f"{value:.6g}"] for key, value in at.statistics().items()]
    print_table(console_for(), [f"step {at.step}", ""], rows)
    value = at.value()
    if value is None:
        print_line("no raw value was saved at this step")
    else:
        print_line(np.array2string(np.asarray(value), threshold=_SHOWN, edgeitems=3, precision=5, max_line_width=79))


class _At:
    """A tensor at a step."""

    def __init__(self, tensor: Tensor, step: int, mode: ModeKeys, worker: str | None) -> None:
        self._tensor, self.step, self._mode, self._worker = tensor, step, mode, worker
        self._shape = tensor.shape(step, mode, worker)

    def value(self) -> Any:
        try:
            return self._tensor.value(self.step, self._mode, self._worker)
        except TensorUnavailableForStep:
            return None

    def statistics(self) -> dict[str, float]:
        """Return the statistics that were saved, or can be computed from the raw value."""
        found = {}
        for name in _STATISTICS:
            try:
                value = self._tensor.reduction_value(self.step, name, self._mode, self._worker)
            except (TensorUnavailableForStep, ConfigurationError):
                continue
            if value is not None:
                found[name] = float(value)
        return found

    def description(self) -> str:
        value = self.value()
        dtype = f"{value.dtype} " if value is not None else ""
        return f"{dtype}{list(self._shape)}" if self._shape else f"{dtype}scalar".strip()

    def document(self) -> dict[str, Any]:
        value = self.value()
        return {
            "name": self._tensor.name,
            "step": self.step,
            "mode": self._mode.name,
            "shape": list(self._shape),
            "dtype": None if value is None else str(value.dtype),
            "statistics": self.statistics(),
            "value": None if value is None else value.tolist(),
        }
