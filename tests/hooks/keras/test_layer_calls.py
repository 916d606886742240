"""Observers of the calls of Keras layers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

keras = pytest.importorskip("keras")

from tensortrial.hooks.keras.layer_calls import (  # noqa: E402
    observe_calls_in_all_threads,
    observe_calls_in_this_thread,
)


class Calls:
    """The calls that an observer was notified of, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_call(self, layer: Any, outermost: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.seen.append(f"before {layer.name}{', outermost' if outermost else ''}")

    def after_call(self, layer: Any, outermost: bool, output: Any) -> None:
        self.seen.append(f"after {layer.name}")


@pytest.fixture
def layer() -> Any:
    return keras.layers.Dense(2, name="dense")


def test_two_observers_see_each_call_once(layer: Any) -> None:
    one, other = Calls(), Calls()
    with observe_calls_in_this_thread(one), observe_calls_in_all_threads(other):
        layer(np.ones((1, 3), np.float32))
    assert one.seen == other.seen == ["before dense, outermost", "after dense"]


def test_only_the_outermost_call_is_marked_as_such(layer: Any) -> None:
    calls = Calls()
    model = keras.Sequential([layer], name="model")
    with observe_calls_in_this_thread(calls):
        model(np.ones((1, 3), np.float32))
    marked = [each for each in calls.seen if each.startswith("before")]
    assert marked[0] == "before model, outermost"
    assert not any("outermost" in each for each in marked[1:])


def test_an_observer_goes_on_when_one_that_began_earlier_ends(layer: Any) -> None:
    calls = Calls()
    call = keras.layers.Layer.__call__
    first, second = observe_calls_in_this_thread(Calls()), observe_calls_in_all_threads(calls)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    layer(np.ones((1, 3), np.float32))
    second.__exit__(None, None, None)
    assert calls.seen == ["before dense, outermost", "after dense"]
    assert keras.layers.Layer.__call__ is call
