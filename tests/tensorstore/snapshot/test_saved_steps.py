"""The saved steps of a run against a model that keeps its rows in a list and looks through all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.modelled_steps import STEPS, WORKERS, A, Model, Row, index_file, models, unique
from support.runs import EVAL, GLOBAL, PREDICT, TRAIN
from tensortrial.mode import ModeKeys
from tensortrial.read.step_states import Session, complete_steps
from tensortrial.snapshot.saved_steps import SavedSteps, StepInfo


@settings(max_examples=60, deadline=None)
@given(models())
def test_the_rows_and_names_of_a_run(model: Model) -> None:
    saved, rows = model.saved, [row for _, row in model.rows]
    model.check_rows()
    by_key: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        for name, _ in row.tensors:
            by_key.setdefault((row.worker, row.global_step, name), []).append(row)
    assert sorted(saved.repeated) == sorted(key for key, found in by_key.items() if len(found) > 1)
    assert saved.repeats or not saved.repeated
    assert not saved.contradicts
    assert list(saved.workers) == unique(row.worker for row in rows)
    assert set(saved.modes()) == {row.mode for row in rows}
    assert {saved.name_sets[number] for number in range(saved.num_sets)} == {row.tensors for row in rows}
    assert list(saved.names) == sorted({name for row in rows for name, _ in row.tensors})
    for name in "abcd":
        holding = {row.tensors for row in rows if name in dict(row.tensors)}
        assert {saved.name_sets[number] for number in saved.sets_of(name)} == holding
        files = {path for path, row in model.rows if row.tensors in holding}
        assert sorted(saved.paths_of(saved.files_of_tensor(name))) == sorted(files)
    for number in range(saved.num_sets):
        held = {row.global_step for row in rows if row.tensors == saved.name_sets[number]}
        assert saved.steps_of_set(number) == sorted(held)
    last = {row.worker: max(each.global_step for each in rows if each.worker == row.worker) for row in rows}
    at = {row.worker: max(each.saved_at for each in rows if each.worker == row.worker) for row in rows}
    assert saved.progress() == {worker: (last[worker], at[worker]) for worker in last}
    assert dict(saved.newest) == last
    spans = {path: [row.global_step for of, row in model.rows if of == path] for path in saved.files()}
    assert saved.spans == [(path, min(steps), max(steps)) for path, steps in spans.items()]


@settings(max_examples=60, deadline=None)
@given(models(), st.sampled_from([GLOBAL, TRAIN, EVAL, PREDICT]))
def test_the_steps_of_a_mode(model: Model, mode: ModeKeys) -> None:
    saved, rows = model.saved, model.of(mode)
    assert saved.in_mode(mode)[1].distinct == sorted({step for step, _, _ in rows})
    if mode is not GLOBAL:
        assert list(saved.steps_of_mode(mode)) == sorted({row.global_step for _, _, row in rows})
    assert saved.tensors_of_mode(mode) == sorted({tensor for _, _, row in rows for tensor in row.tensors})
    for name in "ad":
        assert saved.steps_of_tensor(name, mode) == sorted({s for s, _, row in rows if name in dict(row.tensors)})
    for step in range(-1, STEPS + 1):
        found = [row for at, _, row in rows if at == step]
        assert len(saved.rows_of(step, mode)) == len(found)
        assert [saved.name_sets[number] for number in saved.sets_at(step, mode)] == unique(row.tensors for row in found)
        places = {row.worker: (row.global_step, row.mode, row.mode_step) for row in found}
        assert saved.places(step, mode) == places
        latest_first = sorted(found, key=lambda row: -row.saved_at)
        infos = {(row.global_step, row.mode, row.mode_step): row.saved_at for row in latest_first}
        expected = {StepInfo(*place, saved_at / 1e6) for place, saved_at in infos.items()}
        assert set(saved.infos(step, mode)) == expected
        assert [info.global_step for info in saved.infos(step, mode)] == sorted(info.global_step for info in expected)
    for names, worker, span in [(None, None, (1, 4)), (["a"], "w1", None), (["a", "c"], None, (0, 3))]:
        files = [
            path
            for step, path, row in rows
            if (names is None or any(name in dict(row.tensors) for name in names))
            and (worker in (None, row.worker))
            and (span is None or span[0] <= step < span[1])
        ]
        assert sorted(saved.files_between(mode, span, names, worker)) == sorted(set(files))
    for step in range(STEPS):
        holding = [path for path, row in model.rows if row.global_step == step]
        assert sorted(saved.paths_of(saved.files_of_step(step))) == sorted(set(holding))
        assert set(saved.files_around(step)) >= set(holding)
        assert saved.revision(step) == len(holding)


@settings(max_examples=100, deadline=None)
@given(models())
def test_the_first_step_at_which_workers_are_not_in_step(model: Model) -> None:
    rows = [row for _, row in model.rows]
    uneven = [
        min(a.global_step, b.global_step)
        for a in rows
        for b in rows
        if (a.global_step == b.global_step) != ((a.mode, a.mode_step) == (b.mode, b.mode_step))
    ]
    assert model.saved.first_uneven_step == min(uneven, default=2**63 - 1)


def complete_by_the_letter(model: Model, mode: ModeKeys, session: Session) -> dict[int, bool]:
    """A worker writes its steps in order. What all have written or gone past is complete: a global step, and a step of
    a mode among the workers that have saved any. A step is complete once a later one is."""
    rows = model.of(mode)
    steps = sorted({step for step, _, _ in rows})
    place = {step: min(row.global_step for at, _, row in rows if at == step) for step in steps}
    writing = [row for _, row in model.rows if row.worker not in session.ended | session.not_begun]
    writing = [row for row in writing if row.global_step >= session.first_step]
    last = {worker: [row for row in writing if row.worker == worker] for worker in model.saved.workers}
    furthest = {worker: max(row.global_step for row in own) for worker, own in last.items() if own}
    pending = max(session.num_workers - len(session.ended), 0)
    counted = sorted(furthest, key=lambda worker: -furthest[worker])[:pending]
    all_write = len(counted) == pending

    def is_reached(step: int) -> bool:
        return all_write and all(furthest[worker] >= step for worker in counted)

    def is_written(step: int) -> bool:
        if mode is GLOBAL or place[step] < model.saved.first_uneven_step:
            return is_reached(place[step])
        of_mode = {worker: [row.mode_step for row in last[worker] if row.mode is mode] for worker in counted}
        passed = [max(own) >= step if own else furthest[worker] >= place[step] for worker, own in of_mode.items()]
        return all_write and all(passed)

    late = sorted({row.global_step for _, row in model.rows if row.global_step >= session.first_step})
    late = [step for step in late if not is_reached(step)]
    given_up = late[: len(late) // 2] if len(late) > max(session.window, 1) else []
    complete = [
        step
        for step in steps
        if session.job_ended
        or place[step] < session.first_step
        or is_written(step)
        or place[step] <= max(given_up, default=-1)
    ]
    return {step: step <= max(complete, default=-1) for step in steps}


@settings(max_examples=150, deadline=None)
@given(
    models(),
    st.builds(
        Session,
        st.integers(1, 3),
        st.sets(st.sampled_from(WORKERS)).map(frozenset),
        st.sets(st.sampled_from(WORKERS)).map(frozenset),
        st.integers(0, 4),
        st.sampled_from([False, False, False, True]),
        st.integers(0, 6),
    ),
)
def test_steps_that_all_workers_have_reached_are_complete(model: Model, session: Session) -> None:
    for mode in (GLOBAL, TRAIN, EVAL, PREDICT):
        steps, complete = complete_steps(model.saved, mode, session)
        assert dict(zip(steps, complete, strict=True)) == complete_by_the_letter(model, mode, session)


def test_a_file_that_lacks_a_step_is_of_a_job_that_went_back() -> None:
    rows = [Row("w0", TRAIN, step, step, 0, (A,), step) for step in range(3)]
    saved = SavedSteps().added([index_file("0", rows)])
    assert saved.lack([index_file("0-1", rows[:2], ["0"])])
    assert not saved.lack([index_file("0-1", rows[:2], ["of another"])])


@pytest.mark.parametrize("at_once", [True, False])
def test_of_a_step_that_was_saved_again_in_another_mode_the_last_one_counts(at_once: bool) -> None:
    files = [
        index_file(str(flush), [Row("w0", mode, 0, 0, 0, (A,), flush)]) for flush, mode in enumerate((TRAIN, EVAL))
    ]
    saved = SavedSteps().added(files) if at_once else SavedSteps().added(files[:1]).added(files[1:])
    assert saved.contradicts is not at_once
    assert [info.mode for info in saved.infos(0)] == ([EVAL] if at_once else [TRAIN, EVAL])
    assert saved.files() == (["1"] if at_once else ["0", "1"])
