-- Which index files hold any of several tensors, at steps of a mode with first <= step < end?
-- Parameters: $names, $mode (GLOBAL for all modes, whose steps are the global ones), $first, $end,
--   $worker (null for all).
-- Columns: file_id, path; in the order in which they were found.

select distinct files.file_id, files.path
from catalogue.names
join catalogue.name_sets on name_sets.name_id = names.name_id
join catalogue.steps on steps.name_set = name_sets.name_set
join catalogue.files on files.file_id = steps.file_id
where
    names.name in (select unnest($names))
    and steps.worker = coalesce($worker, steps.worker)
    and ($mode = 'GLOBAL' or steps.mode = $mode)
    and case when $mode = 'GLOBAL' then steps.global_step else steps.mode_step end between $first and $end - 1
order by files.file_id
