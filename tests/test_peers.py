"""The benchmark of peers: those that need no environment of their own give back what they were given."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

PEERS = ("tensortrial", "compacted", "torch", "numpy")


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
    """Measure these peers as a round of the benchmark does, without its processes."""
    from peers import limits, worker
    from peers.work import Scalars

    found = {"peers": {}}
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
        found["peers"][name] = {
            "4 kB": {
                "work": asdict(work),
                "write": written,
                "discover": worker.discover(peer, work),
                "read": worker.read_tensors(peer, work),
                "statistics": worker.read_statistics(peer, work) if peer.keeps_statistics else None,
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


def reported(peers, *rounds):
    from peers.report import report

    versions = {name: peers.adapter(name).versions() for name in PEERS}
    found = {"command": "python -m peers", "machine": "here", "megabytes": 0, "failed": [], "versions": versions}
    return report({**found, "rounds": rounds})


def test_peers_give_back_what_they_were_given_and_are_reported(peers, work, tmp_path):
    text = reported(peers, measured(peers, work, tmp_path))
    for title in ("tensortrial", "tensortrial, compacted", "torch.save", "numpy .npy"):
        assert text.count(f"\n| {title} |") >= 4
    assert "| numpy .npy | not offered" not in text
    aims = text.split("| aim | |")[1].strip().splitlines()[1:]
    assert text.count("| met |") + text.count("missed by") == len(aims) > 10


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


def test_the_median_of_the_ratios_in_a_round_counts(peers, work, tmp_path):
    found = measured(peers, work, tmp_path)

    def round_of(ours, other):
        each = deepcopy(found)
        each["peers"]["tensortrial"]["4 kB"]["write"]["steady"] = ours
        each["peers"]["numpy"]["4 kB"]["write"]["steady"] = other
        return each

    # The machine was slower for both in the second round, and another program ran in the third.
    text = reported(peers, round_of(1e-6, 2e-6), round_of(1e-3, 3e-3), round_of(1e-6, 9e-6))
    assert "| numpy .npy | 9 us (3.00x, 2.00x to 9.00x) |" in text


def test_every_peer_says_how_it_was_used(peers):
    for name in peers.NAMES:
        peer = peers.adapter(name)
        assert peer.title
        assert peer.usage
        assert set(peer.keeps) <= {"tensors", "scalars"}


def test_two_measurements_differ_in_what_became_slower_and_in_nothing_else(peers, work, tmp_path):
    from peers.compare import changes

    found = measured(peers, work, tmp_path)
    random = np.random.default_rng(0)

    def with_noise(factor):
        each = deepcopy(found)
        machine = random.uniform(1, 3)
        for name in each["peers"]:
            times = each["peers"][name]["4 kB"]["read"]["first"]
            for what in times:
                times[what] *= machine * random.uniform(0.95, 1.05)
        each["peers"]["tensortrial"]["4 kB"]["read"]["first"]["series"] *= factor
        return each

    old, same, slower = ([with_noise(factor) for _ in range(5)] for factor in (1, 1, 1.5))
    assert {change.verdict for change in changes(old, same)} == {"no difference"}
    (change,) = (change for change in changes(old, slower) if change.verdict != "no difference")
    assert change.verdict == "higher"
    assert change.what == "(c) Read tensors of 4 kB: one tensor, all steps, first"
    assert change.ratio == pytest.approx(1.5, rel=0.15)


def test_two_runs_of_the_programs_differ_in_what_changed_and_in_nothing_else(peers, tmp_path):
    from peers.compare import compare

    random = np.random.default_rng(0)

    def written(name, factor=1.0):
        path, lines = tmp_path / name, []
        for process in range(5):
            machine = random.uniform(1, 3)
            for figure in range(20):
                seconds = (figure + 1) * machine * random.uniform(0.95, 1.05) * (factor if figure == 7 else 1)
                measured = f"{1e3 * seconds:,.1f} ms / {random.uniform(1.9, 2.1):.2f}x of 12 rows"
                what = "a step" if figure < 2 else f"part {figure}"
                lines.append({"program": "a.py", "process": process, "what": what, "measured": measured, "aim": "5 s"})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    old = written("old.jsonl")
    for name in ("same", "again", "once more"):
        found = list(compare(old, written(name)))
        assert len(found) == 60
        assert {change.verdict for change in found} == {"no difference"}
    (change,) = (each for each in compare(old, written("new", 1.5)) if each.verdict != "no difference")
    assert str(change).startswith("| a.py: part 7 (1), number 1 | 1.")
    assert change.verdict == "higher"


def test_a_worker_finds_no_package_in_the_current_folder(peers, monkeypatch):
    from peers.__main__ import run_python

    root = Path(__file__).parent.parent
    assert (root / "tensorstore").is_dir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", f"{root}:benchmarks")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    code = "import peers.worker; from importlib.util import find_spec; print(find_spec('tensorstore'))"
    done = run_python(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert str(root) not in done.stdout.replace(str(root / ".venv"), "")


def test_the_documents_say_what_was_measured_last(peers):
    from peers.report import claims, page_tables

    root = Path(__file__).parent.parent
    rounds = json.loads((root / "benchmarks/peers/measured.json").read_text())["rounds"]
    page, readme = (root / "docs/peers.md").read_text(), (root / "README.md").read_text()
    for table in page_tables(rounds):
        assert table in page
    claimed = claims(rounds)
    assert len(claimed) > 5
    head = "| peer | task | ratio |\n|---|---|---|\n"
    assert head + "\n".join(claimed) + "\n\n" in readme
