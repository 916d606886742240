"""The configuration of a hook: its arguments, JSON files and collections."""
