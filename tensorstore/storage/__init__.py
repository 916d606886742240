"""Files of runs on a disk, in memory, or in an object store."""
