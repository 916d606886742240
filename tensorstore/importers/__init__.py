"""Importers of runs that other programs wrote: one file or folder for each, with `import_run` or `import_runs`."""
