"""The tensors that a rule needs at a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..errors import TensorUnavailable
from ..read.tensor import Tensor
from ..read.trial import Trial
from .reader import reader_of


@dataclass
class _Required:
    steps: list[int] = field(default_factory=list)
    should_match_regex: bool = False


class RequiredTensors:
    """The tensors that a rule needs, as its `set_required_tensors` adds them: `self.req_tensors.add("loss", [step])`.

    Each trial has its own requirements.

    Args:
        base_trial: Default trial of the methods.
        other_trials: Further trials.
    """

    def __init__(self, base_trial: Trial, other_trials: Iterable[Trial] = ()) -> None:
        self._base = base_trial
        self._of: dict[Trial, dict[str, _Required]] = {trial: {} for trial in (base_trial, *other_trials)}

    def add(
        self, name: str, steps: Iterable[int], should_match_regex: bool = False, trial: Trial | None = None
    ) -> None:
        """Require a tensor, or all tensors whose names match a regular expression.

        Args:
            name: Name of the tensor, or a regular expression.
            steps: Global steps at which it is needed.
            should_match_regex: Whether `name` is a regular expression.
            trial: Trial of the tensor; the base trial if None.
        """
        required = self._of.setdefault(trial or self._base, {}).setdefault(name, _Required())
        required.steps = sorted({*required.steps, *steps})
        required.should_match_regex = should_match_regex

    def get_names(self, trial: Trial | None = None) -> set[str]:
        """Return the names and regular expressions that were added.

        Args:
            trial: Trial of the tensors; the base trial if None.

        Returns:
            Names and regular expressions.
        """
        return set(self._required(trial))

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        """Return the steps at which a tensor is required.

        Args:
            name: Name or regular expression that was added.
            trial: Trial of the tensor; the base trial if None.

        Returns:
            Global steps, ascending.

        Raises:
            TensorUnavailable: `name` was not added.
        """
        return list(self._entry(name, trial).steps)

    def should_match_regex(self, name: str, trial: Trial | None = None) -> bool:
        """Return whether a name that was added is a regular expression.

        Args:
            name: Name or regular expression that was added.
            trial: Trial of the tensor; the base trial if None.

        Returns:
            True if it is a regular expression.

        Raises:
            TensorUnavailable: `name` was not added.
        """
        return self._entry(name, trial).should_match_regex

    def get(self, name: str | None = None, trial: Trial | None = None) -> list[Tensor]:
        """Return the required tensors.

        Args:
            name: Only those of this name or regular expression, which was added.
            trial: Trial of the tensors; the base trial if None.

        Returns:
            Tensors, each once, sorted by name.

        Raises:
            TensorUnavailable: `name` was not added.
        """
        of = trial or self._base
        chosen = self._required(of) if name is None else {name: self._entry(name, of)}
        names = {each for key, required in chosen.items() for each in _names(of, key, required)}
        return [of.tensor(each) for each in sorted(names)]

    def fetch(self) -> None:
        """Check that every required tensor is available.

        Raises:
            TensorUnavailable: No such tensor was saved.
            TensorUnavailableForStep: The tensor was not saved at a required step.
            StepUnavailable: A required step was not saved.
            StepNotYetAvailable: A required step may still come.
        """
        for trial, required_of in self._of.items():
            for key, required in required_of.items():
                for name in _names(trial, key, required):
                    _check(trial, name, required.steps)

    def clear(self) -> None:
        """Remove all requirements, which happens at the beginning of each step."""
        for required in self._of.values():
            required.clear()

    def _required(self, trial: Trial | None) -> dict[str, _Required]:
        return self._of.get(trial or self._base, {})

    def _entry(self, name: str, trial: Trial | None) -> _Required:
        found = self._required(trial).get(name)
        if found is None:
            raise TensorUnavailable(name, "the rule did not require it; call req_tensors.add first")
        return found


def _names(trial: Trial, key: str, required: _Required) -> list[str]:
    return trial.tensor_names(regex=key) if required.should_match_regex else [key]


def _check(trial: Trial, name: str, steps: Iterable[int]) -> None:
    tensor = trial.tensor(name)
    reader = reader_of(trial)
    for step in steps:
        # The rows of the step are read anyway. Only a missing tensor needs a query, for the reason.
        if not reader.saved.infos(step) or not any(name in view.tensors.rows_of for view in reader.views(step)):
            tensor.workers(step)
