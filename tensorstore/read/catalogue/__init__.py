"""Which files, names and rows a run has, in small tables of a database and the views over them."""
