"""Maintenance of existing runs: compaction, repair, verification, notes, moving and deleting."""
