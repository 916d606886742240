"""The state of a run at one moment, read from its index files: an immutable value."""
