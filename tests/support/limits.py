"""The limits of the product that a test makes small, so that a small run reaches them.

Tests name a limit by what it bounds; only this file knows where the product keeps it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

_CONSTANTS = {
    # A closing run with more rows keeps the index file of each flush.
    "rows_merged_at_close": "write.close_compaction._ROWS",
    "bytes_merged_at_close": "write.close_compaction._BYTES",
    # A closing run with more files writes no manifest.
    "files_of_a_manifest_at_close": "hooks.core.run_writer.MOST_FILES_AT_CLOSE",
    "rows_of_a_compacted_file": "maintenance.compaction._ROWS",
    "flushes_of_a_block": "maintenance.compaction._BLOCK",
    "bytes_of_a_tile": "format.chunk_merge._TILE_BYTES",
    "bytes_of_a_merged_chunk": "format.chunk_merge._MOST_BYTES",
    "bytes_merged_at_once": "format.chunk_merge._BATCH_BYTES",
    "bytes_of_a_chunk_that_stays": "format.chunk_merge._LARGE_BYTES",
    "rows_of_a_row_group": "format.index_writer._ROW_GROUP_ROWS",
    "rows_of_a_compacted_row_group": "format.index_writer._COMPACTED_ROW_GROUP_ROWS",
    "cached_row_groups": "format.index_reader._KEPT_GROUPS",
    "cached_footers": "format.index_reader._KEPT_FOOTERS",
    "cached_index_bytes": "format.index_reader._KEPT_BYTES",
    # A value of fewer bytes is verified together with others.
    "bytes_of_a_small_value": "read.verify.chunks._SMALL_BYTES",
    "bytes_verified_at_once": "read.verify.chunks._BATCH_BYTES",
    "bytes_of_a_verified_piece": "read.verify.stream._PIECE_BYTES",
    # A longer range of an object store is read in pieces, and the pieces in batches.
    "bytes_of_one_request": "storage.ranges._MERGED",
    "bytes_requested_at_once": "storage.ranges._IN_FLIGHT",
    "open_files": "storage.open_files._OPEN_FILES",
    # The rows of a tensor at all steps are read ahead if they are in no more index files.
    "files_read_ahead": "read.row_cache._MOST_FILES_AHEAD",
    # How long a reader follows a run by new files only.
    "seconds_until_all_files_are_listed": "snapshot.snapshot.LISTED_SECONDS",
    # How long a reader waits for a file between two others, believes that a run has ended, or says nothing of waiting.
    "seconds_until_a_gap_is_damage": "snapshot.snapshot.PENDING_SECONDS",
    "seconds_between_checks_of_an_ended_run": "read.run_reader._ENDED_SECONDS",
    "seconds_between_reads_of_remote_claims": "read.run_reader._REMOTE_CLAIMS_SECONDS",
    "seconds_of_silent_waiting": "read.waiting.SAY_AFTER_SECONDS",
    # How long an operation runs on a terminal before it has a progress bar.
    "seconds_without_progress": "progress.DELAY_SECONDS",
    # How long a page waits before it searches its folders again, and as how many times of what the search took.
    "seconds_between_searches": "pages.served_runs._SEARCH_SECONDS",
    "share_of_searches": "pages.served_runs._SEARCH_SHARE",
    # How many polls of running jobs pass between two of ended runs.
    "polls_of_ended_runs": "pages.app._TICKS_ENDED",
    "raw_bytes_of_an_answer": "pages.open_run._MOST_READ",
    "runs_opened_by_a_report": "pages.report._MOST_OPENED",
    "seconds_between_reads_of_a_local_stop_request": "hooks.core.process.stop_request._LOCAL_SECONDS",
    "seconds_of_git": "hooks.core.process.environment._GIT_SECONDS",
    # How long a process waits for the lock of a lease.
    "seconds_of_a_lock": "write.lease._LOCK_SECONDS",
}


def set_limits(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Change limits until the test ends."""
    for name, value in limits.items():
        module, _, constant = _CONSTANTS[name].rpartition(".")
        monkeypatch.setattr(import_module(f"tensortrial.{module}"), constant, value)


def keep_index_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small run keep the index file of each flush when it closes, as a large one does."""
    set_limits(monkeypatch, rows_merged_at_close=0)
