"""Reading runs: Trial, Tensor, Runs and their gateway to a run."""
