-- Which index files hold steps of a mode, first <= step < end?
-- Parameters: $mode (GLOBAL for all modes, whose steps are the global ones), $first, $end.
-- Columns: path; in the order in which they were found.

select files.path
from catalogue.steps
join catalogue.files on files.file_id = steps.file_id
where
    ($mode = 'GLOBAL' or steps.mode = $mode)
    and case when $mode = 'GLOBAL' then steps.global_step else steps.mode_step end between $first and $end - 1
group by files.path
order by min(files.file_id)
