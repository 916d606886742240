-- Where are the values of one tensor, at all steps?
-- Parameters: $paths (index files), $name.
-- Columns: those of SavedTensor without statistics and histogram, which take longer to read than all the rest.

select
    name, mode, mode_step, global_step, worker, dtype, shape, nbytes, scalar, chunk, "offset", row_group, "row", parts
from read_parquet($paths, hive_partitioning = false)
where name = $name
