-- Which index files hold the rows of the run?
-- No parameters. Columns: path; in the order they were found.

select path
from catalogue.files
group by path
order by min(file_id)
