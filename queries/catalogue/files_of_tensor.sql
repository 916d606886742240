-- Which index files hold a tensor?
-- Parameters: $name. Columns: file_id, path; in the order in which they were found.

select distinct files.file_id, files.path
from catalogue.names
join catalogue.name_sets on name_sets.name_id = names.name_id
join catalogue.steps on steps.name_set = name_sets.name_set
join catalogue.files on files.file_id = steps.file_id
where names.name = $name
order by files.file_id
