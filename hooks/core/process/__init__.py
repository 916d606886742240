"""The process of a hook: its rank, its environment and its end."""
