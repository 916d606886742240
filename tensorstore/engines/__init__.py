"""The SQL engines: DuckDB and Spark."""
