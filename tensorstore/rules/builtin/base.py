"""The base class of built-in rules: declared parameters, selected tensors, and their statistics or raw values."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from ...config.collection import CollectionKeys
from ...dtypes import Array
from ...errors import InsufficientInformationForRuleInvocation, TensorUnavailableForStep, UnavailableError
from ...format.index_types import SavedTensor
from ...mode import ModeKeys
from ...read.trial import Trial
from ..finding import Finding
from ..parameter import Parameter, bind, parameters_of, signature, words
from ..parameter import regexes as regexes_parameter
from ..reader import Measured, NotSaved, Reader, Rows, Selector, StepView, reader_of
from ..rule import Rule

logger = logging.getLogger("tensortrial.rules")

RAW = "the raw value"
ACTIVATIONS_OF_RELU = r"(?i)relu\w*_output,re_?lu\w*/outputs,/Relu(_\d+)?:0$"
INPUTS_OF_RELU = r"(?i)relu\w*_input,re_?lu\w*/inputs"
LEARNING_RATES = Selector(patterns=(r"^hyperparameters/.*/(lr|learning_rate)$",))


class BuiltinRule(Rule):
    """A rule whose parameters are declared as class attributes. Their values may come as strings.

    A rule stores data of earlier steps. It is reset when the same step or an earlier one is evaluated.
    """

    PARAMETERS: ClassVar[dict[str, Parameter]] = {}
    SKIPS_ALIKE = True
    JUDGES_TOGETHER: ClassVar[bool] = False
    """True if `judge` accepts a view of several steps, and raises only before it stores anything."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.PARAMETERS = parameters_of(cls)
        cls.__signature__ = signature(cls.PARAMETERS)  # type: ignore[attr-defined]

    def __init__(
        self,
        base_trial: Trial,
        *args: Any,
        action_str: Any = "",
        other_trials: Trial | Iterable[Trial] | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__(base_trial, action_str, other_trials)
        for name, value in bind(self.rule_name, self.PARAMETERS, args, parameters).items():
            setattr(self, name, value)
        self._last_step = -1
        self._warned: set[str] = set()
        self._lacking: Selector | None = None
        self.check()
        self.reset()

    def check(self) -> None:  # most rules have nothing to check
        """Raise InvalidRuleParameter for parameters that contradict each other."""

    def reset(self) -> None:  # most rules store nothing
        """Forget earlier steps."""

    @abstractmethod
    def judge(self, view: StepView) -> None:
        """Report the findings of a step. Raises TensorUnavailableForStep if the step has nothing to evaluate."""

    def is_default(self, parameter: str) -> bool:
        """Return whether a parameter has its default value."""
        return bool(getattr(self, parameter) == self.PARAMETERS[parameter].of_default())

    def invoke_at_step(self, step: int) -> bool:
        """Return whether the rule has findings at a step."""
        if step <= self._last_step:
            self.reset()
        self._last_step = step
        views, skipped = self.reader.views(step), list[UnavailableError]()
        for view in views:
            try:
                with np.errstate(all="ignore"):
                    self.judge(view)
            except UnavailableError as exc:
                skipped.append(exc)
        if len(skipped) == len(views):
            raise skipped[0]
        return self.has_reports

    def evaluate_together(self, view: StepView) -> list[Finding] | None:
        """Return the findings of consecutive steps with the same tensors; None if they must be evaluated one by one."""
        if not self.JUDGES_TOGETHER:
            return None
        self._begin(None)
        if view.infos[0].global_step <= self._last_step:
            self.reset()
        try:
            with np.errstate(all="ignore"):
                self.judge(view)
        except UnavailableError:
            raise
        except Exception:  # noqa: BLE001  # each step by itself shows at which one
            return None
        self._last_step = view.step
        return self._reported(self.has_reports, None)

    def missing(self, skipped: Exception) -> str | None:
        """Return a sentence about data that the run lacks at all steps; None if it has them at other steps."""
        if self._lacking is not None and self.reader.modes_of(self._lacking):
            return None
        if self._lacking is None:
            return str(skipped)
        return f"no {self._lacking} was saved at any step; {_how_to_save(self._lacking)}"

    @property
    def reader(self) -> Reader:
        """The reader of the run, which all rules share."""
        return reader_of(self.base_trial)

    # Reading.

    def find(self, view: StepView, selector: Selector) -> Rows:
        """Return the numbers of the selected rows of a step.

        Raises:
            TensorUnavailableForStep: There are no such rows. The message says how to save them.
        """
        rows = view.find(selector)
        if not len(rows):
            raise self.nothing(view, selector)
        return rows

    def rows(self, view: StepView, selector: Selector) -> list[SavedTensor]:
        """Return the selected rows of a step. Raises what `find` raises."""
        return view.rows(self.find(view, selector))

    def losses(self, view: StepView, selector: Selector) -> list[tuple[SavedTensor, float]]:
        """Return the selected rows that are scalars, with their values. Raises what `find` raises."""
        return scalar_losses(self.rows(view, selector))

    def nothing(self, view: StepView, selector: Selector) -> TensorUnavailableForStep:
        """Return the error for a step without selected rows."""
        self._lacking = selector
        hint = f"no {selector} was saved; {_how_to_save(selector)}"
        return TensorUnavailableForStep(str(selector), view.step, hint=hint)

    def measured(self, view: StepView, selector: Selector, *names: str) -> Measured:
        """Return some statistics of the selected rows, except rows whose dtype has none.

        Raises InsufficientInformationForRuleInvocation if no row has the statistics or a raw value.
        """
        rows = self.find(view, selector)
        found, lacking = view.measure(rows, names)
        if len(lacking) == len(rows):
            raise self.insufficient(lacking[-1].row, selector, names)
        for each in lacking:
            self._warn(each.row, names)
        return found

    def statistic_of(self, view: StepView, row: SavedTensor, selector: Selector, name: str) -> float | None:
        """Return a statistic of a selected row; None if its dtype does not define it.

        Raises InsufficientInformationForRuleInvocation if it was not saved.
        """
        try:
            found = view.statistics(row, (name,))
        except NotSaved as exc:
            raise self.insufficient(row, selector, exc.names) from None
        return None if found is None else found[0]

    def valued(self, view: StepView, selector: Selector) -> Iterator[tuple[SavedTensor, Array]]:
        """Return the selected rows with their raw values, which are read together.

        Raises InsufficientInformationForRuleInvocation if none has one.
        """
        rows = self.rows(view, selector)
        raw = [row for row in rows if row.has_raw]
        if not raw:
            raise self.insufficient(rows[0], selector, ())
        for row in rows:
            if not row.has_raw:
                self._warn(row, ())
        return zip(raw, view.values(raw), strict=True)

    def need_raw(self, rows: Iterable[SavedTensor], selector: Selector) -> None:
        """Raise InsufficientInformationForRuleInvocation for a selected row without a raw value."""
        for row in rows:
            if not row.has_raw:
                raise self.insufficient(row, selector, ())

    def insufficient(
        self, row: SavedTensor, selector: Selector, statistics: Sequence[str]
    ) -> InsufficientInformationForRuleInvocation:
        """Return the error for a row without the needed data. It says how to save them."""
        lacking = f"neither its raw value nor {', '.join(statistics)}" if statistics else "no raw value"
        collection = selector.collections[0] if selector.collections else "default"
        message = (
            f"of tensor {row.name!r} {lacking} was saved; {_how_to_save(selector)}, and set "
            f'hook.get_collection("{collection}").reduction_config = {_reductions(statistics)}'
        )
        return InsufficientInformationForRuleInvocation(self.rule_name, message)

    def _warn(self, row: SavedTensor, names: Sequence[str]) -> None:
        if row.name not in self._warned:
            self._warned.add(row.name)
            missing = " and ".join(names) or "raw value"
            logger.warning("rule %s skips %s: its %s was not saved", self.rule_name, row.name, missing)

    # Reporting.

    def fires(self, row: SavedTensor, observed: float, threshold: float | None, sentence: str) -> None:
        """Report a row. The name of the tensor is put before the sentence."""
        worker = f" of {row.worker}" if row.worker != "worker_0" else ""
        self.report(
            f"{row.name}{worker} {sentence}",
            tensor=row.name,
            worker=row.worker,
            observed=float(observed),
            threshold=threshold,
            step=row.global_step,
        )


class SelectingRule(BuiltinRule):
    """A rule on tensors that its user selects. By default they are those of `DEFAULT`."""

    DEFAULT: ClassVar[Selector] = Selector()
    collection_names: tuple[str, ...] | None = words(None, "collections to evaluate")
    tensor_regex: tuple[str, ...] | None = regexes_parameter(None, "names of further tensors to evaluate")

    @property
    def selector(self) -> Selector:
        """The selected tensors."""
        chosen = Selector(self.collection_names or (), self.tensor_regex or ())
        return self.DEFAULT if chosen == Selector() else chosen


def scalar_losses(rows: Sequence[SavedTensor]) -> list[tuple[SavedTensor, float]]:
    """Return the rows that are scalars, with their values."""
    return [(row, row.scalar) for row in rows if row.scalar is not None]


def training_mode(modes: Iterable[ModeKeys]) -> ModeKeys:
    """Return TRAIN if the run has steps of this mode, else GLOBAL."""
    return ModeKeys.TRAIN if ModeKeys.TRAIN in modes else ModeKeys.GLOBAL


def _how_to_save(selector: Selector) -> str:
    parts = []
    if selector.collections:
        parts.append(f"include_collections={list(selector.collections)!r}")
    if selector.patterns:
        parts.append(f"include_regex={list(selector.patterns)!r}")
    found = f"pass {' or '.join(parts) or 'save_all=True'} to the hook"
    # The collection `losses` has only tensors that are known to be losses.
    known = "register the loss, or log it under such a name as 'loss' or 'train_loss'"
    return f"{found}; {known}" if CollectionKeys.LOSSES in selector.collections else found


def _reductions(statistics: Sequence[str]) -> str:
    if not statistics:
        return "ReductionConfig(save_raw_tensor=True)"
    norms = [name for name in statistics if name in ("l1", "l2")]
    absolute = [name.removeprefix("abs_") for name in statistics if name.startswith("abs_")]
    plain = [name for name in statistics if name not in norms and not name.startswith("abs_")]
    parts = [("reductions", plain), ("abs_reductions", absolute), ("norms", norms)]
    return f"ReductionConfig({', '.join(f'{key}={names!r}' for key, names in parts if names)})"
