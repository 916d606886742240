"""`tensortrial mark-ended RUN`."""

from __future__ import annotations

import click

from .options import open_trial, run_argument, storage_option


@click.command("mark-ended")
@run_argument
@click.option(
    "--worker", "workers", multiple=True, metavar="WORKER", help="Only this worker. May be given several times."
)
@storage_option
def mark_ended(run: str, workers: tuple[str, ...], storage_options: tuple[str, ...]) -> None:
    """Say that a crashed job, or a worker of it, will write no more.

    Then nobody waits for it. A run or a worker that has ended stays as it is.

    \b
    tensortrial mark-ended runs/digits --worker worker_1
    """
    trial = open_trial(run, storage_options)
    for worker in workers or (None,):
        trial.mark_ended(worker)
