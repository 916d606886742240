"""Runs that two versions of the project write, resume, compact and read in turn: each release, and today's code."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("torch")
from releases.histories import WHEELS, History, Version, opened, random_history

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=WHEELS, ids=lambda path: path.name.split("-")[1])
def versions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Version]]:
    """A release, and today's code."""
    with opened(request.param, tmp_path_factory.mktemp("release")) as both:
        yield both


@pytest.fixture
def release(versions: list[Version]) -> Version:
    return versions[0]


@pytest.fixture
def today(versions: list[Version]) -> Version:
    return versions[1]


def test_there_is_a_wheel_of_the_last_release() -> None:
    assert WHEELS
    assert all(wheel.stat().st_size < 1 << 20 for wheel in WHEELS)


def test_each_version_is_the_one_that_is_meant(release: Version, today: Version) -> None:
    (version, file), (_, other) = release.ask("version"), today.ask("version")
    assert version == release.name
    assert Path(file).parent != Path(other).parent


@pytest.mark.parametrize(("workers", "codec"), [(1, "none"), (2, "zstd")])
def test_today_reads_resumes_and_compacts_what_a_release_wrote(
    release: Version, today: Version, tmp_path: Path, workers: int, codec: str
) -> None:
    history = History(tmp_path / "run", workers, codec)
    history.write(release, closes=False)
    history.check(today, release)
    history.write(today)
    history.check(today, release)
    history.compact(today)
    history.check(today, release)


@pytest.mark.parametrize(("workers", "codec"), [(1, "none"), (2, "zstd")])
def test_a_release_reads_resumes_and_compacts_what_today_wrote_or_refuses_it(
    release: Version, today: Version, tmp_path: Path, workers: int, codec: str
) -> None:
    history = History(tmp_path / "run", workers, codec)
    history.write(today, closes=False)
    history.check(release, today)
    history.compact(release)
    history.check(release, today)
    history.write(release)
    history.check(release, today)
    history.compact(release)
    history.check(release, today)
    history.write(today)
    history.compact(today)
    history.check(release, today)


@pytest.mark.parametrize(("workers", "codec"), [(1, "none"), (2, "zstd")])
def test_a_release_reads_and_resumes_a_run_that_went_back(
    release: Version, today: Version, tmp_path: Path, workers: int, codec: str
) -> None:
    history = History(tmp_path / "run", workers, codec)
    history.write(release, 12)
    history.go_back(today, 6, 2)
    history.check(release, today)
    history.compact(release)
    history.check(release, today)
    history.write(release, 3)
    history.go_back(today, 4, 3)
    history.compact(today)
    history.check(today)
    # A trial of the release that is open keeps the steps that it has seen. A new one does not have them.
    history.run = shutil.copytree(history.run, tmp_path / "copy")
    history.check(release)


def test_versions_in_any_order_lose_nothing(versions: list[Version], tmp_path: Path) -> None:
    """The finder `versions` runs other histories."""
    random_history(versions, tmp_path / "run", Random(0))
