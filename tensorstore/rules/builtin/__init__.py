"""The built-in rules, and what only they share."""
