-- View `collections`: the collections that each worker is configured with.
-- Columns: run, worker, name, saved (true if its tensors are saved), include_regex, tensor_names, save_config (JSON),
--   reduction_config (JSON), save_histogram.

select run, worker, name, saved, include_regex, tensor_names, save_config, reduction_config, save_histogram
from catalogue.collections
