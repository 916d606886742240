"""Runs that something else wrote, made into runs of this format: one file a writer, each with an `import_run`."""
