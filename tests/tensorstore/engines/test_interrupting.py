"""A query is stopped by its timeout and by Ctrl-C, and costs nothing else."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading

import duckdb
import pytest
from fsspec import AbstractFileSystem

from tensortrial.engines.interrupting import DeadlinePassed, interruptible, keyboard_interrupts

ENDLESS = "select count(*) from range(10000000) a, range(10000000) b"


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        yield connection


def endless(connection):
    return connection.execute(ENDLESS).fetchall()


def test_a_call_returns_and_raises_as_if_it_were_made_here():
    assert interruptible(lambda: 5, print) == 5
    assert interruptible(lambda: 5, print, timeout=60) == 5
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0, print, timeout=60)


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_a_call_past_its_timeout_is_stopped(connection, in_main_thread):
    raised = []

    def run():
        try:
            interruptible(lambda: endless(connection), connection.interrupt, timeout=0.1)
        except DeadlinePassed as exc:
            raised.append(exc)

    if in_main_thread:
        run()
    else:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)
    assert len(raised) == 1
    assert connection.execute("select 1").fetchall() == [(1,)]


def test_an_interrupt_before_the_query_has_begun_is_repeated(connection):
    interrupted = threading.Event()

    def interrupt():
        connection.interrupt()
        interrupted.set()

    def late():
        assert interrupted.wait(60)
        return endless(connection)

    with pytest.raises(DeadlinePassed):
        interruptible(late, interrupt, timeout=0.05)


def test_ctrl_c_is_noticed_where_it_ends_no_wait(connection):
    signal.siginterrupt(signal.SIGINT, False)
    try:
        test_ctrl_c_stops_a_call_and_is_raised_as_such(connection)
    finally:
        signal.siginterrupt(signal.SIGINT, True)


def test_ctrl_c_stops_a_call_and_is_raised_as_such(connection):
    timer = threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(lambda: endless(connection), connection.interrupt)
    timer.join()
    assert connection.execute("select 1").fetchall() == [(1,)]


@pytest.mark.parametrize("begins", [True, False])
def test_ctrl_c_stops_a_call_whose_thread_is_about_to_begin(connection, monkeypatch, begins):
    """No signal finds the moment at which a thread begins."""
    start = threading.Thread.start
    threads = []

    def interrupted_start(thread):
        threads.append(thread)
        if begins:
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    called = []
    with pytest.raises(KeyboardInterrupt):
        interruptible(lambda: called.append(endless(connection)), connection.interrupt)
    if not begins:
        start(threads[0])
    threads[0].join(60)
    assert called == []
    assert connection.execute("select 1").fetchall() == [(1,)]


def ctrl_c_at(number, begun):
    """Return a function for `sys.settrace` that raises KeyboardInterrupt as the n-th function of Python begins."""

    def trace(frame, event, arg):
        if frame.f_code.co_name != "_remove":  # of a WeakSet, when one of its objects is freed
            begun.append(frame.f_code.co_qualname)
            if len(begun) == number:
                raise KeyboardInterrupt

    return trace


@pytest.mark.timeout(60)
def test_a_query_ends_at_whatever_function_of_python_ctrl_c_comes():
    """No signal finds all functions, as some take a microsecond of the wait."""
    for number in itertools.count(1):
        stopped, begun = threading.Event(), []
        before = sys.gettrace()
        gc.disable()  # it would call functions of objects that tests before left, which swallow a KeyboardInterrupt
        sys.settrace(ctrl_c_at(number, begun))
        try:
            interruptible(lambda stopped=stopped: stopped.wait(0.15), stopped.set)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
            gc.enable()
        if len(begun) < number:
            break
    assert begun.count("Event.wait") > 1


class Interrupted(AbstractFileSystem):
    """Files at whose opening Ctrl-C comes."""

    protocol = "interrupted"

    def glob(self, path, **options):
        raise KeyboardInterrupt


class Table:
    """A table for whose schema Ctrl-C comes."""

    def __arrow_c_schema__(self):
        raise KeyboardInterrupt

    def __arrow_c_stream__(self, requested_schema=None):
        raise KeyboardInterrupt


def test_ctrl_c_where_the_engine_calls_python_is_a_keyboard_interrupt(connection):
    connection.register_filesystem(Interrupted())
    with pytest.raises(KeyboardInterrupt), keyboard_interrupts():
        connection.execute("from read_csv('interrupted://a.csv')")
    with pytest.raises(KeyboardInterrupt), keyboard_interrupts():
        connection.register("a", Table())
    with pytest.raises(duckdb.ConversionException), keyboard_interrupts():
        connection.execute("select 'KeyboardInterrupt'::int").fetchall()
    with pytest.raises(duckdb.BinderException), keyboard_interrupts():
        connection.execute('select "\nKeyboardInterrupt"')
