-- Which files hold the raw values of many runs?
-- Columns: run, chunk.

select distinct run, chunk from tensors where chunk is not null order by run, chunk
