"""What the process and its machine do while they train, sampled by a thread of its own."""
