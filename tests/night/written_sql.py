"""Statements that write, in every place of a query: the parser refuses them, and so does what is below it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest.mock import patch

from night.finder import Case

import tensortrial
from support.runs import Job
from tensortrial import Trial
from tensortrial.engines import duckdb as duckdb_engine
from tensortrial.errors import QueryError
from tensortrial.read.runs import Runs

STATEMENTS = 20
"""Of one case."""
# {run} is the run's folder, {index} a published file of it, {else} a folder elsewhere.
WRITING = (
    "copy (select 1 as a) to '{index}' (format parquet)",
    "copy (select 1 as a) to '{run}/index/x.csv'",
    "copy (select 1 as a) to '{run}/tensors/x.parquet' (format parquet)",
    "copy (select 1 as a) to '{else}/x.csv'",
    "copy (select 1 as a) to '{else}' (format parquet, partition_by (a))",
    "copy tensors to '{else}/y.json'",
    "copy catalogue.steps from '{index}' (format parquet)",
    "insert into catalogue.steps select * from catalogue.steps",
    "insert into catalogue.steps from catalogue.steps returning *",
    "delete from catalogue.steps",
    "delete from catalogue.steps returning 1",
    "update catalogue.steps set worker = 'x'",
    "update catalogue.steps set worker = 'x' returning *",
    "truncate catalogue.steps",
    "merge into catalogue.steps using (select 'a' as worker) as u using (worker) when matched then delete",
    "create table t as select 1",
    "create temp table t as select 1",
    "create or replace table catalogue.steps as select 1 as a",
    "create or replace view tensors as select 1 as a",
    "create temp view tensors as select 1 as a",
    "create schema s",
    "create macro sum(x) as x",
    "create temp macro sum(x) as x",
    "create sequence s",
    "create type k as enum ('a')",
    "create secret s (type s3)",
    "drop view tensors",
    "drop table catalogue.steps",
    "drop schema catalogue cascade",
    "alter table catalogue.steps drop column worker",
    "comment on table catalogue.steps is 'x'",
    "attach '{else}/x.db'",
    "attach '{run}/index/x.db'",
    "attach '{index}' as y (read_only)",
    "export database '{else}/z'",
    "import database '{else}'",
    "install httpfs",
    "load httpfs",
    "load '{else}/x.duckdb_extension'",
    "set memory_limit = '1TB'",
    "set enable_external_access = true",
    "set global lock_configuration = false",
    "reset disabled_filesystems",
    "set variable v = 1",
    "pragma enable_profiling",
    "pragma database_list",
    "call pragma_version()",
    "call enable_logging('QueryLog')",
    "checkpoint",
    "vacuum",
    "analyze",
    "prepare p as select 1",
    "execute p",
    "deallocate p",
    "begin",
    "commit",
    "use catalogue",
    "explain analyze delete from catalogue.steps",
)
PLACES = (
    "{w}",
    "({w})",
    "with x as ({w}) select count(*) from x",
    "with x(a) as materialized ({w}) select 1",
    "with x as not materialized ({w}) from x",
    "with a as (select 1), b as ({w}) select * from a",
    "with a as (with b as ({w}) select 1) from a",
    "with recursive x as (select 1 union all {w}) from x",
    "with recursive x as ({w} union all select 1) from x",
    "with x as ({w}) select 1 union select 2",
    "with x as ({w}) (select 1)",
    "with x as ({w}) values (1)",
    "with x as ({w}) describe tensors",
    "with x as ({w}) pivot tensors on name in ('a') using count(*)",
    "with x as ({w}) {w}",
    "select * from ({w})",
    "select * from ({w}) as x(a)",
    "select * from (with x as ({w}) select 1)",
    "from (from ({w}))",
    "select ({w})",
    "select (with x as ({w}) select 1)",
    "select array({w})",
    "select array(with x as ({w}) select 1)",
    "select exists ({w})",
    "select exists (with x as ({w}) from x)",
    "select 1 in ({w})",
    "select 1 in (with x as ({w}) select 1)",
    "select 1 = any ({w})",
    "select 1 = any (with x as ({w}) select 1)",
    "select case when exists (with x as ({w}) from x) then 1 end",
    "select coalesce((with x as ({w}) select 1), 2)",
    "select [y for y in (with x as ({w}) select [1])]",
    "select list_transform([1], lambda y: (with x as ({w}) select 1))",
    "select {{'a': (with x as ({w}) select 1)}}",
    "select cast((with x as ({w}) select 1) as bigint)",
    "select * replace ((with x as ({w}) select 'a') as name) from tensors",
    "select count(*) filter (where exists (with x as ({w}) from x)) from tensors",
    "select count(*) over (partition by (with x as ({w}) select 1)) from tensors",
    "select count(distinct (with x as ({w}) select 1)) from tensors",
    "select * from tensors where exists ({w})",
    "select * from tensors where (with x as ({w}) select true)",
    "select count(*) from tensors group by (with x as ({w}) select 1)",
    "select count(*) from tensors having (with x as ({w}) select true)",
    "select * from tensors qualify (with x as ({w}) select true)",
    "select * from tensors order by (with x as ({w}) select 1)",
    "select * from tensors limit (with x as ({w}) select 1)",
    "select * from tensors limit 1 offset (with x as ({w}) select 1)",
    "select distinct on ((with x as ({w}) select 1)) * from tensors",
    "select * from tensors, lateral ({w}) as l",
    "select * from tensors, lateral (with x as ({w}) select 1) as l",
    "select * from tensors join ({w}) on true",
    "select * from tensors left join (with x as ({w}) select 1) on true",
    "select * from tensors join steps on (with x as ({w}) select true)",
    "select * from range((with x as ({w}) select 1))",
    "select * from unnest(array({w}))",
    "select 1 union all {w}",
    "select 1 union all (with x as ({w}) select 1)",
    "(with x as ({w}) select 1) except select 2",
    "select 1 intersect (with x as ({w}) select 1)",
    "values (({w}))",
    "values ((with x as ({w}) select 1))",
    "table ({w})",
    "describe {w}",
    "describe with x as ({w}) select 1",
    "summarize {w}",
    "summarize with x as ({w}) select 1",
    "show {w}",
    "explain {w}",
    "explain analyze {w}",
    "pivot (with x as ({w}) select 1 as a) on a in (1) using count(*)",
    "pivot tensors on name in (with x as ({w}) select 'a') using count(*)",
    "unpivot (with x as ({w}) select 1 as a) on a into name n value v",
    "select 1; {w}",
    "{w}; select 1",
    "from query($${w}$$)",
    "from query_table([$${w}$$])",
    "select json_execute_serialized_sql(json_serialize_sql($${w}$$))",
    "from json_execute_serialized_sql(json_serialize_sql($${w}$$))",
    "prepare q as {w}",
    "create view v as {w}",
    "copy ({w}) to '/dev/null'",
    "/* {w} */ {w}",
    "select 1 -- \n; {w}",
)
READING_FILES = (
    "from read_text('/etc/passwd')",
    "from read_blob('{run}/run.json')",
    "from read_csv('/etc/passwd')",
    "from read_csv_auto('/etc/passwd')",
    "from read_json('{run}/run.json')",
    "from read_ndjson_objects('{run}/run.json')",
    "from read_parquet('{index}')",
    "from parquet_scan(['{index}'])",
    "from parquet_metadata('{index}')",
    "from parquet_file_metadata('{index}')",
    "from read_duckdb('{else}/x.db')",
    "from sniff_csv('/etc/passwd')",
    "from glob('/etc/*')",
    "from glob('run://*')",
    "from '/etc/passwd'",
    "from '{index}'",
    'from "{index}"',
    "from main.'{index}'",
    "from 's3://bucket/x.parquet'",
    "from read_parquet('https://example.org/x.parquet')",
)


def write(folder: Path) -> Path:
    """Write a run of three steps."""
    with Job(folder) as job:
        for step in range(3):
            job.step({"w": [float(step)] * 4, "loss": step / 2})
    return folder


def filled(text: str, run: Path) -> str:
    (index,) = (run / "index").rglob("*.parquet")
    return text.replace("{run}", str(run)).replace("{index}", str(index)).replace("{else}", str(run.parent))


def contents(run: Path) -> dict[str, str]:
    files = (path for path in run.parent.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def still_answers(trial: Trial, *others: Trial | Runs) -> bool:
    rows = [each.sql("select count(*), sum(num_tensors) from steps").fetchall() for each in (trial, *others)]
    same = all(each == [(3, 6)] for each in rows)
    return same and trial.sql("select count(*) from tensors").columns == ["count_star()"]


@contextmanager
def nothing_refused_by_the_parser() -> Iterator[None]:
    """Let the engine run every statement: only its connection keeps the files as they are."""
    with patch.object(duckdb_engine, "_views_read", lambda cursor, query, views: frozenset(views)):
        yield


def is_refused(queried: Trial | Runs, query: str) -> bool:
    """Run a query, and return whether it is refused."""
    try:
        queried.sql(query, timeout=60).fetchall()
    except QueryError:
        return True
    return False


def run_if_possible(trial: Trial, query: str) -> str:
    """Run a query, and return its rows as text, or nothing if it is refused."""
    try:
        return str(trial.sql(query, timeout=60).fetchall())
    except QueryError:
        return ""


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    run = write(folder / "project" / "run")
    before = contents(run)
    with (
        tensortrial.create_trial(run) as trial,
        tensortrial.open_runs(run.parent) as runs,
        # A trial of its own, because a statement that was parsed once is not parsed again.
        tensortrial.create_trial(run) as unguarded,
    ):

        def case(random: Random, own: Path) -> Counter[str]:
            del own
            for _ in range(STATEMENTS):
                query = random.choice(PLACES).format(w=filled(random.choice(WRITING), run))
                assert is_refused(trial, query), query
                assert is_refused(runs, query), query
                with nothing_refused_by_the_parser():
                    run_if_possible(unguarded, query)
                assert still_answers(unguarded, trial, runs), query
                assert contents(run) == before, query
            return Counter(statements=STATEMENTS)

        yield case
