"""The numbers of steps."""
