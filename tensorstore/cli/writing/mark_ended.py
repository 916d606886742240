"""`tensortrial mark-ended RUN`."""

from __future__ import annotations

import click

from ...maintenance.ending import check_no_writer
from ...read.trial import run_reader_of
from ..console import print_line
from ..options import open_trial, run_argument, storage_option


@click.command("mark-ended")
@run_argument
@click.option("--worker", "workers", multiple=True, metavar="WORKER", help="Only this worker. Can be repeated.")
@click.option("--force", is_flag=True, help="Mark it although a process writes to the run.")
@storage_option
def mark_ended(run: str, workers: tuple[str, ...], force: bool, storage_options: tuple[str, ...]) -> None:
    """Mark a crashed job, or one of its workers, as ended.

    Readers then wait for it no longer. A run or a worker that has ended is not changed, and one that a living process
    writes is refused.

    \b
    tensortrial mark-ended runs/crashed
    tensortrial mark-ended runs/crashed --worker worker_1
    """
    trial = open_trial(run, storage_options)
    before = trial.snapshot.workers
    for worker in workers or (None,):
        if not force:
            check_no_writer(run_reader_of(trial).storage, worker)
        trial.mark_ended(worker)
        known = trial.snapshot.workers
        if known.all_marked or known.marked:
            raise click.ClickException("no mark was stored, so other readers still wait for the job")
        had_ended = before.job_ended if worker is None else worker in before.ended
        print_line(f"{'had ended before' if had_ended else 'marked as ended'}: {run if worker is None else worker}")
