-- What a catalogue keeps in memory of a run: one row a file, a step and a name, and none a saved tensor.
-- No parameters, no columns: this creates the tables that the other questions ask.

create schema catalogue;

-- Index files, one a flush.
create table catalogue.files (
    file_id integer, path varchar, worker varchar, num_rows bigint, first_step bigint, last_step bigint
);

-- Files of raw values that the index names.
create table catalogue.chunks (index_path varchar, path varchar);

-- Tensors, with the collections they are part of.
create table catalogue.names (name_id integer, name varchar, collections varchar[]);

-- Most steps hold the same tensors: a step refers to a set of names.
create table catalogue.name_sets (name_set integer, name_id integer);

create table catalogue.steps (
    file_id integer, worker varchar, mode varchar, mode_step bigint, global_step bigint, saved_at timestamp,
    name_set integer
);

-- What each worker was told to save.
create table catalogue.collections (
    worker varchar, name varchar, saved boolean, include_regex varchar[], tensor_names varchar[], save_config varchar,
    reduction_config varchar, save_histogram boolean
);
