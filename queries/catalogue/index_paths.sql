-- Which index files hold the rows of each run?
-- No parameters. Columns: run, path; in the order in which they were found.

select run, path
from catalogue.files
group by run, path
order by min(file_id)
