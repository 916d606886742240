"""The built-in rules, and the modules that only they share."""
