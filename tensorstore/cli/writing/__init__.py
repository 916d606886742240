"""Commands that write files: into a run, a new run, or elsewhere."""
