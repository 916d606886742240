"""The steps of a run, and which of them are complete."""
