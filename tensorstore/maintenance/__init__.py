"""Work on runs that are there: compaction."""
