"""Which steps a run has, and which of them are complete."""
