-- Which index files hold a global step?
-- Parameters: $step. Columns: file_id, path; in the order in which they were found.

select files.file_id, files.path
from catalogue.steps
join catalogue.files on files.file_id = steps.file_id
where steps.global_step = $step
order by files.file_id
