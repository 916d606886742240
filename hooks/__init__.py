"""Capture: one recorder for all frameworks, and one thin hook for each."""
