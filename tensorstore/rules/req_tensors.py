"""Which tensors a rule needs at a step, said before they are used."""

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
    """What a rule's `set_required_tensors` fills: `self.req_tensors.add("loss", steps=[step])`.

    Each trial has its own requirements; the base trial is meant where none is given.
    """

    def __init__(self, base_trial: Trial, other_trials: Iterable[Trial] = ()) -> None:
        self._base = base_trial
        self._of: dict[Trial, dict[str, _Required]] = {trial: {} for trial in (base_trial, *other_trials)}

    def add(
        self, name: str, steps: Iterable[int], should_match_regex: bool = False, trial: Trial | None = None
    ) -> None:
        """Require the tensor `name`, or with `should_match_regex` all whose names match, at these global steps."""
        required = self._of.setdefault(trial or self._base, {}).setdefault(name, _Required())
        required.steps = sorted({*required.steps, *steps})
        required.should_match_regex = should_match_regex

    def get_names(self, trial: Trial | None = None) -> set[str]:
        """The names and regular expressions that were added."""
        return set(self._required(trial))

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        """The steps at which a tensor is required, ascending. Raises TensorUnavailable for a name that was not
        added."""
        return list(self._entry(name, trial).steps)

    def should_match_regex(self, name: str, trial: Trial | None = None) -> bool:
        """Whether a name that was added is a regular expression. Raises TensorUnavailable for one that was not."""
        return self._entry(name, trial).should_match_regex

    def get(self, name: str | None = None, trial: Trial | None = None) -> list[Tensor]:
        """The required tensors, or those of one name or expression that was added, each once, sorted by name."""
        of = trial or self._base
        wanted = self._required(of) if name is None else {name: self._entry(name, of)}
        names = {each for key, required in wanted.items() for each in _names(of, key, required)}
        return [of.tensor(each) for each in sorted(names)]

    def fetch(self) -> None:
        """Make sure that everything required is there.

        Raises TensorUnavailable, TensorUnavailableForStep, StepUnavailable or StepNotYetAvailable for what is not.
        """
        for trial, required_of in self._of.items():
            for key, required in required_of.items():
                for name in _names(trial, key, required):
                    _check(trial, name, required.steps)

    def clear(self) -> None:
        """Forget all requirements; each step begins so."""
        for required in self._of.values():
            required.clear()

    def _required(self, trial: Trial | None) -> dict[str, _Required]:
        return self._of.get(trial or self._base, {})

    def _entry(self, name: str, trial: Trial | None) -> _Required:
        found = self._required(trial).get(name)
        if found is None:
            raise TensorUnavailable(name, "the rule did not require it; req_tensors.add does")
        return found


def _names(trial: Trial, key: str, required: _Required) -> list[str]:
    return trial.tensor_names(regex=key) if required.should_match_regex else [key]


def _check(trial: Trial, name: str, steps: Iterable[int]) -> None:
    tensor = trial.tensor(name)
    reader = reader_of(trial)
    for step in steps:
        # The rows of the step are read anyway; only what is missing needs its own question, which says why.
        if reader.info(step) is None or name not in reader.step(step).rows:
            tensor.workers(step)
