"""The files, names and rows of a run, in small tables of a database and the views over them."""
