"""Maintenance of existing runs: compaction."""
