"""The configuration of what is saved, when, and in which form: collections, intervals, reductions."""
