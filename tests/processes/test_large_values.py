"""Values of more than 1 and 2 GiB: they are exact, and the memory that saving and reading them takes is bounded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from support.programs import start_cold  # noqa: E402
from support.servers import ObjectStore  # noqa: E402

pytestmark = pytest.mark.slow

ELEMENTS = (1 << 29) + 3
"""Of four bytes each: more than a 32-bit number of bytes can say."""
PARTED = ELEMENTS if os.environ.get("TENSORTRIAL_TEST_LARGE") else (1 << 27) + 3
"""More than 500 MB: sixteen parts of compressed bytes. The night saves four times as much."""
SENT = PARTED // 2
"""More than 250 MB: several parts of an upload."""

BEGINNING = """
    import json, sys
    from support.memory import peak_bytes

    url, elements, options = json.loads(sys.argv[1])
"""

WRITE = f"""{BEGINNING}
    import torch
    import tensortrial.hooks.pytorch as tt

    torch.set_num_threads(1)
    hook = tt.Hook(url, **options.pop("hook"))
    dtype = getattr(torch, options.pop("dtype"))
    if options:
        hook.reduction_config.__init__(**options)
    hook.save_tensor("small", torch.ones(2 << 20, dtype=dtype))
    hook.flush()
    large = torch.arange(elements, dtype=dtype)
    if dtype.is_floating_point:
        large.div_(64, rounding_mode="floor")
    else:
        large >>= 6
    before = peak_bytes()
    hook.save_tensor("large", large)
    hook.close()
    print((peak_bytes() - before) / large.nbytes)
"""

READ = f"""{BEGINNING}
    import numpy as np
    import tensortrial

    trial = tensortrial.create_trial(url, storage_options=options)
    trial.tensor("small").value(0)
    before = peak_bytes()
    value = trial.tensor("large").value(0)
    extra = (peak_bytes() - before) / value.nbytes - 1
    assert value.shape == (elements,) and value.dtype == np.int32, (value.shape, value.dtype)
    for begin in range(0, elements, 1 << 24):
        part = value[begin : begin + (1 << 24)]
        expected = np.arange(begin, begin + len(part), dtype=np.int32) >> 6
        assert (part == expected).all(), begin
    print(extra)
"""


def measured(program: str, folder: Path, url: str, elements: int, options: dict[str, Any]) -> float:
    """Run a program, and return what it prints: its memory in addition to the tensor, in multiples of its size."""
    script = program.replace("sys.argv[1]", repr(json.dumps([url, elements, options])))
    with start_cold(script, folder, TENSORTRIAL_STRICT="1") as process:
        out, err = process.communicate(timeout=580)
    assert process.returncode == 0, err
    print(f"{out.strip()} times the tensor")
    return float(out)


# A value of more than 1 GB has parts, of which one is read and decoded next to the value.
@pytest.mark.parametrize(("codec", "elements"), [("none", ELEMENTS), ("zstd", PARTED)])
def test_a_large_value_is_exact_and_takes_little_more_memory(tmp_path: Path, codec: str, elements: int) -> None:
    url = str(tmp_path / "run")
    try:
        written = measured(WRITE, tmp_path, url, elements, {"hook": {"codec": codec}, "dtype": "int32"})
        read = measured(READ, tmp_path, url, elements, {})
        assert written < 1.1
        assert read < 0.4
    finally:
        shutil.rmtree(url, ignore_errors=True)


def test_statistics_of_a_large_value_take_the_memory_of_one_copy(tmp_path: Path) -> None:
    statistics = {"reductions": ["min", "max", "mean", "std"], "norms": ["l1", "l2"], "abs_reductions": ["mean"]}
    url = str(tmp_path / "run")
    assert measured(WRITE, tmp_path, url, PARTED, {"hook": {}, "dtype": "float32", **statistics}) < 1.1
    import tensortrial

    trial = tensortrial.create_trial(url)
    found = {name: float(value) for (name, _), value in trial.tensor("large").reduction_values(0).items()}
    assert found["min"] == 0
    assert found["max"] == PARTED // 64
    assert found["mean"] == pytest.approx((PARTED // 64 - 1) / 2, rel=1e-6)
    assert found["l1"] == pytest.approx(found["mean"] * PARTED, rel=1e-6)


@pytest.mark.s3
def test_a_large_value_in_an_object_store(tmp_path: Path, moto_s3: ObjectStore) -> None:
    url = f"{moto_s3.new_bucket()}/run"
    options = {"storage_options": moto_s3.storage_options}
    # The copy that was captured, and the file as it is sent.
    assert measured(WRITE, tmp_path, url, SENT, {"hook": options, "dtype": "int32"}) < 2.3
    # The value is received in pieces, of which the client holds more than a hundred MB.
    assert measured(READ, tmp_path, url, SENT, moto_s3.storage_options) < 0.7
