"""`tensortrial watch RUN`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import click

from ...read.trial import Trial
from ...rules import Finding
from ...visible import counted
from ..completion import complete_rule
from ..console import print_line
from ..options import error_status, open_trial, run_argument, storage_option, wait_option, waiting_hint

_SHOWN_OF_A_STEP = 3
_SAVED_AT = "select max(saved_at) from steps where global_step = $step"
_NOTHING_FIRED, _FIRED, _COULD_NOT_RUN = 0, 1, 2


@click.command()
@run_argument
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="NAME[:KEY=VALUE,…]",
    help="A built-in rule. Can be repeated.",
    shell_complete=complete_rule,
)
@click.option(
    "--config", type=click.Path(dir_okay=False), help="A JSON or TOML file of rules, or SageMaker's configuration."
)
@click.option("--start-step", type=int, default=0, show_default=True, help="First global step.")
@click.option("--end-step", type=int, help="Global step to stop before. [default: the end of the job]")
@wait_option
@click.option("--record/--no-record", default=True, show_default=True, help="Write the findings into the run.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the findings.",
)
@storage_option
@error_status(_COULD_NOT_RUN)
def watch(
    run: str,
    rules: tuple[str, ...],
    config: str | None,
    start_step: int,
    end_step: int | None,
    timeout: float | None,
    record: bool,
    form: str,
    storage_options: tuple[str, ...],
) -> None:
    """Evaluate rules on a run until its job ends.

    Findings are printed at once. The exit status is 0 if no rule fired, 1 if one did, and 130 after Ctrl-C. It is 2 if
    a rule could not be evaluated (it lacked tensors, raised, or there was no step), or no new step came for --timeout
    seconds.

    A killed job does not mark its end. For such a job pass --timeout, or the rule StalledTraining, which ends the
    command after a stall of twice the rule's threshold.

    \b
    tensortrial watch runs/digits --rule VanishingGradient
    tensortrial watch runs/digits --rule LossNotDecreasing:num_steps=20
    """
    from ...rules.configuration import parse_rule, read_rules
    from ...rules.running import watch as follow

    chosen = [parse_rule(text) for text in rules] + (read_rules(config) if config else [])
    if not chosen:
        raise click.UsageError("missing rule; pass --rule NAME or --config FILE")
    with waiting_hint(timeout):
        trial = open_trial(run, storage_options, timeout)
    made = [each.make(trial) for each in chosen]
    names = ", ".join(dict.fromkeys(rule.rule_name for rule in made))
    print_line(f"watching {trial.path} by {names}; {_last_step(trial)}", err=True)
    found = follow(trial, made, start_step, end_step, record=record, timeout=timeout)
    status = _print_findings(found, form)
    evaluated = [step for step in trial.steps() if start_step <= step and (end_step is None or step < end_step)]
    result = "nothing was found" if status == _NOTHING_FIRED else "the watch has ended"
    print_line(f"{result} by {names} in {counted(len(evaluated), 'step')}; {_last_step(trial)}", err=True)
    if not evaluated:
        click.echo("no step was evaluated: the run has none between --start-step and --end-step", err=True)
        status = _COULD_NOT_RUN
    sys.exit(status)


def _last_step(trial: Trial) -> str:
    """Return a clause with the last step and its time."""
    steps = trial.steps()
    if not steps:
        return "no step was saved yet"
    mode, mode_step = trial.mode(steps[-1]).name, trial.mode_step(steps[-1])
    ((saved_at,),) = trial.sql(_SAVED_AT, {"step": steps[-1]}).fetchall()
    at = "" if saved_at is None else f", saved at {saved_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"the last step is {steps[-1]} ({mode} {mode_step}){at}"


def _print_findings(findings: Iterable[Finding], form: str) -> int:
    """Print findings immediately, but only the first few of a rule at a step. Return the exit status."""
    status, last, more = _NOTHING_FIRED, None, 0
    for finding in findings:
        status = max(status, _COULD_NOT_RUN if finding.failed else _FIRED)
        if form == "json":
            click.echo(json.dumps(finding.to_json()))
            continue
        key = finding.rule, finding.step
        if key != last:
            _say_more(more)
            last, more = key, 0
        more += 1
        if more <= _SHOWN_OF_A_STEP:
            print_line(str(finding))
    _say_more(more)
    return status


def _say_more(count: int) -> None:
    if count > _SHOWN_OF_A_STEP:
        click.echo(f"    … and {count - _SHOWN_OF_A_STEP} more of this rule at this step")
