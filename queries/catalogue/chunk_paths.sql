-- Which files hold the raw values of each run?
-- No parameters. Columns: run, path; in the order in which they were found.

select run, path
from catalogue.chunks
