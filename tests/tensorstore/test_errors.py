"""The tree of errors in the docstring is the tree of the classes, and errors travel between processes."""

from __future__ import annotations

import pickle
import re

import pytest

from tensortrial import errors
from tensortrial.errors import TensorTrialError

_LINE = re.compile(r"((?:│   |    )*)(?:├── |└── )(\w+)(?: \(([\w, ]+)\))?  +\S")


def drawn() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return for each error of the docstring its parent and its builtins."""
    found = {}
    parents = ["TensorTrialError"]
    for line in (errors.__doc__ or "").splitlines():
        if (match := _LINE.match(line)) is not None:
            depth, name = len(match[1]) // 4, match[2]
            parents[depth + 1 :] = [name]
            found[name] = parents[depth], tuple((match[3] or "").split(", ")) if match[3] else ()
    return found


def defined() -> dict[str, tuple[str, tuple[str, ...]]]:
    return {
        name: (each.__bases__[0].__name__, tuple(base.__name__ for base in each.__bases__[1:]))
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, TensorTrialError) and each is not TensorTrialError
    }


def test_the_docstring_draws_every_error_with_its_parent_and_its_builtin() -> None:
    assert drawn() == defined()


def test_the_docstring_draws_errors_in_the_order_of_their_parents() -> None:
    order = ["TensorTrialError", *drawn()]
    assert all(order.index(parent) < order.index(name) for name, (parent, _) in drawn().items())


def test_every_error_has_a_docstring_that_ends_a_sentence() -> None:
    for name in defined():
        first = (getattr(errors, name).__doc__ or "").partition("\n\n")[0]
        assert re.search(r"[.]$", first), name


EXAMPLES = [
    errors.TensorUnavailable("w", "did you mean 'v'?"),
    errors.TensorUnavailableForStep("w", 3, None, has_reductions=True),
    errors.NoMoreData(5, None, 4),
    errors.InvalidWorker("worker_9", ["worker_0"]),
    errors.RunTakenOver("run", "worker_0", "process 1"),
    errors.UnknownQuery("loses", ["losses"]),
    errors.TableMismatch("duckdb:x", "tensors", ["a: int, not text"]),
    errors.InsufficientInformationForRuleInvocation("AllZero", "no tensor was selected"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_pickling(error: TensorTrialError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("error", [errors.StepUnavailable(1), errors.NoMoreData(1), errors.InvalidWorker("w")], ids=str)
def test_what_is_unavailable_is_a_lookup_error(error: TensorTrialError) -> None:
    with pytest.raises(LookupError):
        raise error


def test_a_writer_that_was_taken_over_gets_a_permission_error() -> None:
    with pytest.raises(PermissionError, match="process 7 has taken the run over"):
        raise errors.RunTakenOver("run", "worker_0", "process 7")


def test_messages_name_the_value_and_the_next_step() -> None:
    assert str(errors.InvalidWorker("worker_9", ["worker_0", "worker_1"])) == (
        "unknown worker 'worker_9'; choose one of: worker_0, worker_1"
    )
    assert str(errors.UnknownQuery("loses", ["losses"])) == "unknown query 'loses'; did you mean 'losses'?"
    assert str(errors.UnknownQuery("x", ["a", "b", "c", "d"])) == "unknown query 'x'; known queries: a, b, c, d"
