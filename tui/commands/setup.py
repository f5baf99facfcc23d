"""`mdk-tui setup [STEP]`: the tutorial's steps, headless: look, show the commands, run them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import click

from backends.errors import UserError
from backends.programs import RealPrograms
from backends.settings import read_settings
from backends.setup.command_text import command_text
from backends.setup.job import (
    JobFolder,
    cancel_job,
    end_on_signals,
    job_folder,
    perform,
    prepare,
    refuse_second,
)
from backends.setup.job_watch import JobWatch
from backends.setup.patches_step import reverse_actions, trial_actions
from backends.setup.runner import Output
from backends.setup.standing import in_parallel, looked_at, with_job
from backends.setup.step import Action, Choices, Finding, Site, Step
from backends.setup.steps import STEPS, find_step
from backends.workspace import Workspace

SIGNS = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "-", "pending": "○", "running": "▶"}


@click.command()
@click.argument("step", required=False)
@click.option("--yes", is_flag=True, help="Run what is shown without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would run.")
@click.option("--reverse", is_flag=True, help="With the step patches: take them back.")
@click.option("--json", "as_json", is_flag=True, help="The findings (with --dry-run: the commands) as JSON.")
@click.option("--check", is_flag=True, help="Exit 3 when a step is not done.")
@click.option("--repository", default="", help="Clone from here instead (a mirror, a folder, a bundle).")
@click.option("--branch", default="", help="Clone this branch instead.")
@click.option(
    "--definition", type=click.Path(path_type=Path), help="Build the image from this definition file."
)
@click.option(
    "--corpus", type=click.Path(path_type=Path), help="A .jsonl of your own instead of the download."
)
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes of the preprocessing.")
@click.option("--whole", is_flag=True, help="Check the whole corpus, not a sample.")
@click.option("--trial", is_flag=True, help="With the step patches: `patch --dry-run` of each.")
@click.option("--cancel", is_flag=True, help="End the step that runs, with everything it started.")
@click.pass_obj
def command(
    workspace: Workspace,
    step: str | None,
    yes: bool,
    dry_run: bool,
    reverse: bool,
    as_json: bool,
    check: bool,
    repository: str,
    branch: str,
    definition: Path | None,
    corpus: Path | None,
    workers: int | None,
    whole: bool,
    trial: bool,
    cancel: bool,
) -> int:
    """The steps workspace, megatron, image, mpi, data, patches: what is done, and what is missing as commands.

    Without STEP: how each step stands. With STEP: shows the commands that are missing and, after asking, runs them.
    """
    choices = Choices(repository, branch, definition, corpus, workers or 0, whole=whole)
    site = Site(workspace, read_settings(workspace.settings), os.environ, RealPrograms(os.environ), choices)
    if step is None:
        status = _overview(site, as_json, check)
        if dry_run and not as_json:
            _show_all(site)
        return status
    chosen = find_step(step)
    if (reverse or trial) and chosen.name != "patches":
        raise UserError("Only the step patches can be reversed or tried.", status=2)
    if cancel:
        return _cancel(job_folder(workspace, chosen.name))
    if whole:
        click.echo(_text(chosen.look(site)))
    actions = (
        reverse_actions(site) if reverse else trial_actions(site) if trial else list(chosen.actions(site))
    )
    if dry_run:
        _show(actions, as_json)
        return 0
    return _run(site, chosen, actions, yes or trial, as_json)


def _overview(site: Site, as_json: bool, check: bool) -> int:
    findings = told(in_parallel([partial(_look, site, step) for step in STEPS]), as_json)
    return 3 if check and any(f.verdict not in ("ok", "skipped") for f in findings) else 0


def _show_all(site: Site) -> None:
    """The commands that each step would run now, or what it waits for."""
    for step in STEPS:
        try:
            actions = list(step.actions(site))
        except UserError as error:
            click.echo(f"\n# {step.name}: {error}")
            continue
        click.echo(f"\n# {step.name}" + ("" if actions else ": no command"))
        if actions:
            click.echo(command_text(actions))


def _look(site: Site, step: Step) -> Finding:
    """What was found, or how far it is, where it runs at this moment."""
    found = looked_at(step.name, partial(step.look, site))
    return with_job(found, JobWatch(job_folder(site.workspace, step.name)).look())


def _cancel(folder: JobFolder) -> int:
    found = cancel_job(folder)
    click.echo("Cancelled." if found else "Nothing of it runs on this machine.")
    return 0


def told(found: Iterable[Finding], as_json: bool) -> list[Finding]:
    """Each finding, printed as soon as it is known; as JSON all in one list, at the end."""
    findings: list[Finding] = []
    for finding in found:
        findings.append(finding)
        if not as_json:
            click.echo(line(finding))
    if as_json:
        click.echo(json.dumps([finding.as_json() for finding in findings]))
    return findings


def line(finding: Finding) -> str:
    """One finding for the eye, its remedy below it when it is not ok."""
    text = f"{SIGNS[finding.verdict]} {finding.name:<13} {finding.evidence}"
    return text if finding.verdict == "ok" or not finding.remedy else f"{text}\n  {'':<13} {finding.remedy}"


def _show(actions: list[Action], as_json: bool) -> None:
    if as_json:
        shown = [
            {"title": a.title, "argv": list(a.argv), "cwd": str(a.cwd), "env": dict(a.env)} for a in actions
        ]
        click.echo(json.dumps(shown))
        return
    if actions:
        click.echo(command_text(actions))
    else:
        click.echo("Nothing to do.", err=True)


def _run(site: Site, step: Step, actions: list[Action], yes: bool, as_json: bool) -> int:
    if actions and not yes:
        refuse_second(job_folder(site.workspace, step.name))
        _ask(actions)
    if actions:
        _perform(site, step, actions, to_stderr=as_json)
    finding = step.look(site)
    click.echo(json.dumps([finding.as_json()]) if as_json else _text(finding))
    return 0 if finding.verdict in ("ok", "warning") else 1


def _text(finding: Finding) -> str:
    return "\n".join([line(finding), *(f"  {'':<13} {detail}" for detail in finding.details)])


def _ask(actions: list[Action]) -> None:
    """Show what would run and have it confirmed. Raises UserError where nobody can be asked."""
    _show(actions, as_json=False)
    for action in actions:
        if action.weight:
            click.echo(f"{action.title}: {action.weight}", err=True)
    if not sys.stdin.isatty():
        raise UserError(
            "Nothing was run: there is no terminal to ask on.", "Add --yes to run these commands.", status=2
        )
    click.confirm(
        f"Run {'this command' if len(actions) == 1 else f'these {len(actions)} commands'}?", abort=True
    )


class _Both:
    """The terminal and the step's log: the application shows a step that runs in another terminal."""

    def __init__(self, *outputs: Output) -> None:
        self._outputs = outputs

    def write(self, data: bytes) -> None:
        for output in self._outputs:
            output.write(data)

    def flush(self) -> None:
        for output in self._outputs:
            output.flush()


def _perform(site: Site, step: Step, actions: list[Action], *, to_stderr: bool) -> None:
    folder = job_folder(site.workspace, step.name)
    end_on_signals()
    prepare(folder, actions)
    terminal = sys.stderr.buffer if to_stderr else sys.stdout.buffer
    try:
        with folder.log.open("ab", buffering=0) as log:
            perform(folder, actions, os.environ, _Both(terminal, log))
    except KeyboardInterrupt:
        click.echo(f"\nCancelled. mdk-tui setup {step.name} goes on from what is there.", err=True)
        raise
