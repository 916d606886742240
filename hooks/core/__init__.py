"""The parts that the hooks of all frameworks share."""
