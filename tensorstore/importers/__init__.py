"""Importers of other programs' runs: a file or folder for each program, with `import_run` or `import_runs`."""
