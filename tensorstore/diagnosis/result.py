"""The answer of a diagnosis: problems, and unchecked rules."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from ..html_table import html_list
from ..visible import counted, in_a_line, listed, visible

_LINES = 5
"""The most lines below the first cause and its advice."""
_WHOLE = "`diagnose --all`, or `details` in Python"
_FEW_STEPS = 20
"""The fewest saved steps that most rules need."""


@dataclass(frozen=True)
class Problem:
    """A problem: findings with one cause.

    Attributes:
        rule: Rule that found it first.
        step: Global step at which it began, or the first saved one after it began.
        mode: Name of the mode of that step.
        worker: Worker at which it began; None if it does not concern one worker.
        tensor: Tensor in which it began; None if it is not in one tensor.
        order: Position of the tensor in the execution of its step, from 0; None if it was not saved.
        tensors_of_step: Number of tensors of that step with a position.
        headline: Sentence about its beginning, the interval of steps and the first tensor, without a full stop.
        sentence: Sentence of the rule.
        last_step: Last global step at which the same rule found it in the same tensor.
        tensors: Other tensors in which the same rule found it later, in order.
        explains: Findings of other rules that follow from it, as sentences.
        advice: What to try.
        is_note: True if it may be intended, such as a loss that no longer falls.
        after_step: The newest step before `step` at which the tensor was saved, if steps between were not saved; else
            None. It may have begun at any step after that one.
        origin: Weight whose changes left their own past before a spike; None if there is none, or it is not known.
    """

    rule: str
    step: int | None
    mode: str | None
    worker: str | None
    tensor: str | None
    order: int | None
    tensors_of_step: int | None
    headline: str
    sentence: str
    last_step: int | None
    tensors: tuple[str, ...]
    explains: tuple[str, ...]
    advice: str
    is_note: bool
    after_step: int | None = None
    origin: str | None = None

    def lines(self) -> list[str]:
        """Return the consequences of the problem, a line for each rule."""
        same = [f"the same in {self._others()}"] if self.tensors else []
        return [*same, *map(in_a_line, self.explains)]

    def _others(self) -> str:
        return f"{counted(len(self.tensors), 'more tensor')}: {listed(self.tensors)}"

    def __str__(self) -> str:
        at = "" if self.step is None else f"at step {self.step}: "
        parts = [f"{at}{plain_sentence(self)} ({self.rule})."]
        if self.after_step is not None:
            parts.append(f"It began after step {self.after_step}: the steps between the two were not saved.")
        if self.order is not None:
            parts.append(f"It is tensor {self.order + 1} of {self.tensors_of_step} in the execution of this step.")
        if self.last_step is not None and self.last_step != self.step:
            parts.append(f"It was found until step {self.last_step}.")
        if self.tensors:
            parts.append(f"The same was then found in {self._others()}.")
        if self.explains:
            parts.append(f"It explains: {listed(self.explains, '; ')}.")
        parts.append(f"What to try: {self.advice}.")
        return " ".join(parts)


@dataclass(frozen=True)
class Unchecked:
    """A rule that the data of the run does not allow.

    Attributes:
        rule: Name of the rule.
        reason: Sentence about the missing data, and what to save for the check.
    """

    rule: str
    reason: str


@dataclass(frozen=True)
class Diagnosis:
    """The problems of a run. Its text is the first cause, what to try, and at most five lines about other problems.

    Attributes:
        run: Path or URL of the run.
        steps: Number of evaluated steps, which are the saved ones.
        problems: Problems by the step and the execution order at their beginning, those with NaN or infinities first,
            notes last.
        checked: Names of the rules that were evaluated.
        unchecked: Rules that could not be evaluated.
        damaged: Errors of unreadable files, whose content was not evaluated.
        steps_begun: Number of steps that the job has begun, saved or not; 0 if unknown.
        failures: Why workers did not end regularly, such as a full disk, by worker.
    """

    run: str
    steps: int
    problems: tuple[Problem, ...]
    checked: tuple[str, ...]
    unchecked: tuple[Unchecked, ...]
    damaged: dict[str, str] = field(default_factory=dict)
    steps_begun: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def is_healthy(self) -> bool:
        """True if the readable steps have no problems except notes."""
        return all(problem.is_note for problem in self.problems)

    @property
    def summary(self) -> str:
        """The number of problems, in a sentence."""
        serious = sum(not problem.is_note for problem in self.problems)
        found = counted(serious, "problem") if serious else "no problem"
        missed = self.steps_begun > self.steps
        steps = f"{self.steps:,} of {self.steps_begun:,} steps" if missed else counted(self.steps, "step")
        return f"{in_a_line(self.run)}: {found} in {steps}, by {counted(len(self.checked), 'rule')}."

    @property
    def headline(self) -> str:
        """The first cause, in a sentence; empty without a problem."""
        return "" if self.is_healthy else as_sentence(self.problems[0].headline)

    def paragraphs(self) -> list[tuple[Problem, str]]:
        """Return the problems as paragraphs.

        Returns:
            Each problem with its paragraph of the text, notes last.
        """
        serious = [problem for problem in self.problems if not problem.is_note]
        notes = [problem for problem in self.problems if problem.is_note]
        texts = [(problem, f"{'Also' if number else 'First'}, {problem}") for number, problem in enumerate(serious)]
        return texts + [(problem, f"Note: {problem}") for problem in notes]

    def __str__(self) -> str:
        parts = [self.summary]
        if self.headline:
            parts.append(f"{self.headline}\nWhat to try: {self.problems[0].advice}.")
        lines = self._lines()
        if lines:
            parts.append("\n".join(f"- {line}" for line in lines))
        parts += self._reservations()
        if self.unchecked:
            parts.append(f"Not checked: {counted(len(self.unchecked), 'rule')} ({_WHOLE}).")
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        first = [f"What to try: {self.problems[0].advice}."] if self.headline else []
        whole = f"<details><summary>All of it</summary><pre>{escape(self.details)}</pre></details>"
        cause = f"<p><b>{escape(self.headline)}</b></p>" if self.headline else ""
        return f"<p>{escape(self.summary)}</p>{cause}{html_list(' '.join(first), self._lines())}{whole}"

    @property
    def details(self) -> str:
        """The whole text: a paragraph for each problem, and why each rule could not be evaluated."""
        parts = [self.summary, *([self.headline] if self.headline else []), *(text for _, text in self.paragraphs())]
        parts += self._reservations()
        if self.unchecked:
            parts.append(
                "Not checked:\n"
                + "\n".join(f"- {each.rule}: {visible(each.reason, keep='')}" for each in self.unchecked)
            )
        return "\n\n".join(parts)

    def _lines(self) -> list[str]:
        """Return at most five lines about consequences of the first cause, other problems, and notes."""
        serious = [problem for problem in self.problems if not problem.is_note]
        notes = [problem for problem in self.problems if problem.is_note]
        first = serious[0].lines() if serious else []
        others = [f"{problem.headline} ({problem.rule}); try: {problem.advice}" for problem in serious[1:]]
        lines = [*first, *others, *(f"note: {problem.headline} ({problem.rule})" for problem in notes)]
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [f"and {len(lines) - _LINES + 1} more ({_WHOLE})"]
        return lines

    def _reservations(self) -> list[str]:
        """Return paragraphs about problems that may have been missed."""
        parts = []
        if self.steps < min(_FEW_STEPS, self.steps_begun / 2) and not self.failures:
            parts.append(
                "Most steps were not saved, so that the answer may lack what happened at them: save or log more often, "
                f"such as by save_interval={max(1, self.steps_begun // _FEW_STEPS)}."
            )
        if self.failures:
            workers = (f"- {in_a_line(worker)}: {in_a_line(reason)}" for worker, reason in self.failures.items())
            parts.append("Not ended regularly, so that later steps may be missing:\n" + "\n".join(workers))
        if self.damaged:
            files = (f"- {in_a_line(path)}: {in_a_line(reason)}" for path, reason in self.damaged.items())
            parts.append("Not read, so that the answer may lack what happened in them:\n" + "\n".join(files))
        return parts

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as values of JSON.

        Returns:
            The attributes by name, `headline`, and `text`, which is what `str` returns.
        """
        return {**asdict(self), "is_healthy": self.is_healthy, "headline": self.headline, "text": str(self)}


def plain_sentence(problem: Problem) -> str:
    """Return the sentence of the rule. Only long names are shortened."""
    name = problem.tensor or ""
    return visible(problem.sentence.replace(name, in_a_line(name)) if name else problem.sentence, keep="")


def as_sentence(clause: str) -> str:
    """Return a clause with a capital letter and a full stop. The case of a name at the beginning is kept."""
    begins = ("at step ", "between steps ", "infinity ")
    return f"{clause[:1].upper() + clause[1:] if clause.startswith(begins) else clause}."
