"""The simulated disk: what a loss of power takes."""

from __future__ import annotations

from random import Random

from simulation.disk import WRITEBACK_SECONDS, Disk


def test_a_file_that_was_lost_with_the_power_does_not_come_back() -> None:
    now = 0.0
    disk, rng = Disk(is_local=True, now=lambda: now), Random(0)
    files = [f"index/{number}.parquet" for number in range(50)]
    for path in files:
        disk.put(path, b"")
    disk.cut_power(rng)
    left = disk.names("index")
    assert 0 < len(left) < len(files)
    now += 2 * WRITEBACK_SECONDS
    disk.cut_power(rng)
    assert disk.names("index") == left


def test_a_durable_file_survives_a_loss_of_power() -> None:
    disk = Disk(is_local=True, now=lambda: 0.0)
    disk.put("index/0.parquet", b"0", durable=True)
    disk.cut_power(Random(0))
    assert disk.files["index/0.parquet"].data == b"0"
