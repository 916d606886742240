"""The configuration of the tensors to save, their steps and their form: collections, intervals, reductions."""
