-- Which global steps does each index file span?
-- No parameters. Columns: path, first_step, last_step; in the order in which they were found.

select path, min(first_step) as first_step, max(last_step) as last_step
from catalogue.files
group by path
order by min(file_id)
