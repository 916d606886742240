-- Which files hold the raw values of the run?
-- No parameters. Columns: path; in the order they were found.

select path
from catalogue.chunks
