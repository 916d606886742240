"""The files of a run, which docs/format.md describes."""
