"""What is kept of the metadata of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortrial import Run, create_trial
from tensortrial.errors import ConfigurationError


class Odd:
    """An object that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not loaded")


class Unbound:
    """A proxy without an object."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("unbound")


class Endless:
    """An object each of whose values is another one."""

    def tolist(self) -> Endless:
        return Endless()

    def __str__(self) -> str:
        return "endless"


def itself(kind: type[Any]) -> Any:
    made = kind()
    if kind is dict:
        made["lr"], made["me"] = 0.1, made
    else:
        made += [0.1, made]
    return made


def kept(out: Path, metadata: Any) -> dict[str, Any]:
    with Run(out, metadata=metadata) as run:
        run.log({"loss": 1.0})
    assert (out / "run.json").stat().st_size < 1 << 21
    return dict(create_trial(out).info.metadata)


def shared(depth: int) -> list[Any]:
    """Return lists in lists that have 2 ** depth values, of which few are different objects."""
    found: list[Any] = [1, 2]
    for _ in range(depth - 1):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros(1000), [0.0] * 1000),
        (np.zeros((40_000, 100), np.float32), "ndarray of shape (40000, 100), dtype float32, digest 24477953022bae74"),
        (np.full((2, 3000), 1 / 3), "ndarray of shape (2, 3000), dtype float64, digest e7802125e18ef2c3"),
        ([1 / 3] * 3000, [1 / 3] * 3000),
        (
            {"a": {"b": [1 / 3] * 5000, "lr": 0.1}},
            {"a": {"b": "list of 5000 values, digest 7fe70eef4237e76b", "lr": 0.1}},
        ),
        (np.broadcast_to(np.float32(0), (1 << 20, 1 << 20)), "ndarray of shape (1048576, 1048576), dtype float32"),
        (np.array(2.5), 2.5),
        (np.float32(0.5), 0.5),
        ([0] * 10_000, [0] * 10_000),
        ([0] * 2_000_000, "list of 2000000 values"),
        ("x" * 100_000, "x" * 100_000),
        ("x" * 100_001, "x" * 100_000 + "… (100001 characters)"),
        (itself(dict), {"lr": 0.1, "me": "<cycle>"}),
        ([itself(list)], [[0.1, "<cycle>"]]),
        (Odd(), "Odd that cannot be kept: RuntimeError"),
        (Unbound(), "Unbound that cannot be kept: RuntimeError"),
        (Endless(), "endless"),
        (10**300, 10**300),
        (10**5000, "int that cannot be kept: ValueError"),
        ({Odd(): 1, 2: 3}, {"Odd that cannot be kept: RuntimeError": 1, "2": 3}),
        (float("inf"), "inf"),
        (np.array([1, None, "a"], object), [1, None, "a"]),
        ((1, {2}), [1, [2]]),
        ({"b", 10, "a"}, [10, "a", "b"]),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_metadata_of_any_kind_is_kept_or_described(tmp_path: Path, value: Any, expected: Any) -> None:
    assert kept(tmp_path / "run", {"x": value, "lr": 0.1}) == {"x": expected, "lr": 0.1}


def nested(leaf: int) -> dict[str, Any]:
    """Return dictionaries in dictionaries, 100 deep."""
    found: dict[str, Any] = {"leaf": leaf}
    for _ in range(100):
        found = {"x": found}
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0] * 30_000 + [1], [0] * 30_000 + [2]),
        ({"a": dict.fromkeys(range(30_000), 0.5)}, {"a": dict.fromkeys(range(30_000), 0.25)}),
        (set(range(30_000)), set(range(1, 30_001))),
        ([float("nan")] * 30_000, [float("inf")] * 30_000),
        (["a"] * 30_000, ["a"] * 29_999 + ["\ud800"]),
        (np.array(["a"] * 30_000, object), np.array(["a"] * 29_999 + ["b"], object)),
        ([np.zeros(9)] * 30_000, [np.zeros(9)] * 29_999 + [np.ones(9)]),
        (nested(1), nested(2)),
    ],
    ids=["list", "dict", "set", "nan", "texts", "objects", "arrays", "nested"],
)
def test_runs_whose_large_metadata_differ_in_one_value_have_different_metadata(
    tmp_path: Path, first: Any, second: Any
) -> None:
    found = kept(tmp_path / "first", {"x": first})
    assert found == kept(tmp_path / "again", {"x": first})
    assert found != kept(tmp_path / "second", {"x": second})


@pytest.mark.parametrize(
    "value", [shared(40), [[0] * 9000] * 9000, ["x" * 90_000] * 500], ids=["shared", "lists", "texts"]
)
def test_metadata_of_many_values_becomes_short(tmp_path: Path, value: Any) -> None:
    assert kept(tmp_path / "run", {"lr": 0.1, "x": value})["lr"] == 0.1


def test_large_tensors_of_a_dtype_that_numpy_lacks_have_a_digest(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = torch.zeros(2, 30_000, dtype=torch.bfloat16)
    tensors[1, 7] = 1
    found = [kept(tmp_path / str(i), {"x": tensor}) for i, tensor in enumerate(tensors)]
    assert found[0]["x"].startswith("Tensor of shape (30000,), dtype torch.bfloat16, digest ")
    assert found[0] != found[1]


@pytest.mark.parametrize("size", [3, 2000, 30_000])
def test_a_tensor_without_values_keeps_its_shape_and_dtype(tmp_path: Path, size: int) -> None:
    torch = pytest.importorskip("torch")
    found = kept(tmp_path / "run", {"x": torch.empty(size, device="meta")})
    assert found == {"x": f"Tensor of shape ({size},), dtype torch.float32"}


def test_a_set_of_texts_is_kept_in_the_same_order_by_every_process(tmp_path: Path) -> None:
    texts = [str(i) for i in range(100)]
    assert kept(tmp_path / "run", {"x": set(texts)}) == {"x": sorted(texts)}


def test_metadata_after_lists_that_are_described_is_kept(tmp_path: Path) -> None:
    lists = {name: list(range(20_000)) for name in "abcde"}
    found = kept(tmp_path / "run", {**lists, "betas": [0.9, 0.99], "data": {"files": ["a", "b"]}})
    assert found["e"] == found["a"] == "list of 20000 values, digest aea2ac995dcb6cee"
    assert (found["betas"], found["data"]) == ([0.9, 0.99], {"files": ["a", "b"]})


@pytest.mark.parametrize("count", [8, 20_000], ids=["kept", "described"])
def test_equal_sets_are_equal_metadata(tmp_path: Path, count: int) -> None:
    """The order of a set of texts is another one in each process."""
    words = [f"word{n}" for n in range(count)]
    backwards = [*reversed(words)]
    one, other = set(words), set(backwards)
    found = [kept(tmp_path / str(n), {"words": each})["words"] for n, each in enumerate((one, other))]
    assert found[0] == found[1]


def test_metadata_that_contains_itself_is_kept_once(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {"lr": 0.1}
    metadata["all"] = metadata
    assert kept(tmp_path / "run", metadata) == {"lr": 0.1, "all": "<cycle>"}


def test_metadata_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"metadata must be a mapping such as \{'lr': 0.1\}, got \[0"):
        Run(tmp_path / "run", metadata=[0] * 10_000)  # type: ignore[arg-type]


def test_keys_that_are_the_same_text_are_all_kept(tmp_path: Path) -> None:
    class Twin:
        def __str__(self) -> str:
            return "x"

    metadata = {1: "number", "1": "text", "x": 0, Twin(): 1, Twin(): 2, None: 3}
    expected = {"1 (int)": "number", "1": "text", "x": 0, "x (Twin)": 1, "x (Twin) 4": 2, "None": 3}
    assert kept(tmp_path, metadata) == expected
    assert kept(tmp_path / "inner", {"of": {"2": "text", 2: "number"}}) == {"of": {"2": "text", "2 (int)": "number"}}


def test_a_mapping_that_refuses_texts_as_keys_is_kept(tmp_path: Path) -> None:
    class Numbered(dict[int, str]):
        def __contains__(self, key: object) -> bool:
            if not isinstance(key, int):
                raise TypeError(key)
            return super().__contains__(key)

    assert kept(tmp_path, {"of": Numbered({1: "a"})}) == {"of": {"1": "a"}}
