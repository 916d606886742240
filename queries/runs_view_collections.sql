-- View `collections` over many runs: what each worker was told to save.
-- Columns: run, worker, name, saved (whether its tensors are saved), include_regex, tensor_names, save_config (JSON),
--   reduction_config (JSON), save_histogram.

create or replace view collections as
select run, worker, name, saved, include_regex, tensor_names, save_config, reduction_config, save_histogram
from catalogue.collections
