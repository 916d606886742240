"""Queries of a catalogue on its own small tables: files, steps, names and workers of a run."""
