"""The databases that answer: DuckDB, Spark."""
