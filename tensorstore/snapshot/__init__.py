"""The state of a run at one moment, as its index files say it: a value that nothing changes."""
