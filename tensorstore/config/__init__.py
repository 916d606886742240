"""What is saved, when, and in which form: collections, intervals, reductions."""
