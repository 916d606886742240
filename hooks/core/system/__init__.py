"""The metrics of the process and its machine, sampled by a thread of their own."""
