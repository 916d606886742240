"""Reading runs: Trial, Tensor, Runs and what they stand on."""
