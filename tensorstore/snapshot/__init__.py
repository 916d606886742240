"""What a run has at one moment, as its index files say it: a value that nothing changes."""
