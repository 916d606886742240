"""The benchmark of peers: those that need no environment of their own give back what they were given."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

PEERS = ("tensortrial", "torch", "numpy")


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    import peers

    return peers


@pytest.fixture
def work(peers):
    from peers.work import Tensors

    return Tensors(nbytes=400, per_step=3, steps=8)


def measured(peers, work, folder):
    """What the benchmark would find of these peers, without its processes."""
    from peers import limits, worker
    from peers.work import Scalars

    found = {"rounds": 1, "megabytes": 0, "failed": [], "versions": {}, "peers": {}}
    (folder / "limits").mkdir()
    copied = {"count": work.count, **limits.copying(work)}
    for limit in (limits.one_file, limits.same_bytes, limits.mapped, limits.sorted_parquet):
        copied |= limit(folder / "limits", work)
    found["limits"] = {"4 kB": copied}
    for name in PEERS:
        peer = peers.adapter(name)(folder / name)
        peer.folder.mkdir()
        written = worker.write_tensors(peer, work, with_statistics=True)
        peer.compact()
        found["versions"][name] = peer.versions()
        found["peers"][name] = {
            "4 kB": {
                "work": asdict(work),
                "write": written,
                "discover": worker.discover(peer, work),
                "read": worker.read_tensors(peer, work),
                "statistics": worker.read_statistics(peer, work),
            }
        }
    scalars = Scalars(per_step=5, steps=8)
    peer = peers.adapter("tensortrial")(folder / "scalars")
    peer.folder.mkdir()
    found["peers"]["tensortrial"]["scalars"] = {
        "write": worker.write_scalars(peer, scalars),
        "discover": worker.discover(peer, scalars),
        "read": worker.read_scalars(peer, scalars),
    }
    return found


def test_peers_give_back_what_they_were_given_and_are_reported(peers, work, tmp_path):
    from peers.report import report

    text = report(measured(peers, work, tmp_path))
    for title in ("tensortrial", "torch.save", "numpy .npy"):
        assert text.count(f"\n| {title} |") >= 4
    assert "| numpy .npy | not offered" not in text
    assert text.count("| met |") + text.count("missed by") == len(text.split("| aim | |")[1].strip().splitlines()) - 1


def test_a_peer_that_gives_back_another_value_is_found_out(peers, work, tmp_path):
    from peers import worker

    class Wrong(peers.adapter("numpy")):
        def value(self, name, step):
            return super().value(name, step) + np.float32(1)

    peer = Wrong(tmp_path / "run")
    peer.folder.mkdir()
    worker.write_tensors(peer, work)
    with pytest.raises(AssertionError):
        worker.read_tensors(peer, work)


def test_the_best_of_the_rounds_counts(peers):
    from peers.__main__ import best

    rounds = [{"a": 2.0, "b": {"c": 1}, "d": None}, {"a": 1.0, "b": {"c": 3}, "d": None, "failed before": 4.0}]
    assert best(rounds) == {"a": 1.0, "b": {"c": 1}, "d": None, "failed before": 4.0}


def test_every_peer_says_how_it_was_used(peers):
    for name in peers.NAMES:
        peer = peers.adapter(name)
        assert peer.title
        assert peer.usage
        assert set(peer.keeps) <= {"tensors", "scalars"}
