"""What the hooks of all frameworks share."""
