"""Statistics of arrays, one at a time or many at once."""
