-- Which index files hold a global step?
-- Parameters: $step. Columns: path.

select files.path
from catalogue.steps
join catalogue.files on files.file_id = steps.file_id
where steps.global_step = $step
