"""`mdk-tui setup [STEP]`: the steps of the set-up without the screen."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from backends.errors import UserError
from backends.setup.command_text import command_text
from backends.setup.job import cancel_job, end_on_signals, job_folder, perform, prepare, refuse_second
from backends.setup.job_watch import JobWatch
from backends.setup.patches_step import reverse_actions, trial_actions
from backends.setup.runner import Output
from backends.setup.standing import in_parallel, looked_at, with_job
from backends.setup.step import Action, Choices, Finding, Site, Step, site_of
from backends.setup.steps import STEPS, find_step
from backends.workspace import Workspace
from tui.commands import findings
from tui.commands.options import ATTENTION, PATH, ask, grouped, json_option


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """What is to be done with a step (`yes` … `check`, `trial`, `cancel`), and what the user chooses for it."""

    yes: bool
    dry_run: bool
    reverse: bool
    as_json: bool
    check: bool
    repository: str
    branch: str
    definition: Path | None
    corpus: Path | None
    workers: int | None
    whole: bool
    trial: bool
    cancel: bool

    @property
    def choices(self) -> Choices:
        return Choices(
            self.repository, self.branch, self.definition, self.corpus, self.workers or 0, whole=self.whole
        )


@click.command()
@click.argument("step", required=False)
@grouped(
    "options",
    SetupOptions,
    click.option("--yes", is_flag=True, help="Run what is shown without asking."),
    click.option("--dry-run", is_flag=True, help="Only show what would run."),
    click.option("--reverse", is_flag=True, help="With the step patches: take the patches back."),
    json_option("The findings (with --dry-run: the commands) as JSON."),
    click.option("--check", is_flag=True, help="Exit 3 when a step is not done."),
    click.option("--repository", default="", help="Clone from here instead (a mirror, a folder, a bundle)."),
    click.option("--branch", default="", help="Clone this branch instead."),
    click.option("--definition", type=PATH, help="Build the image from this definition file."),
    click.option("--corpus", type=PATH, help="A .jsonl of your own instead of the download."),
    click.option("--workers", type=click.IntRange(1), help="Processes that preprocess."),
    click.option("--whole", is_flag=True, help="Check the whole corpus instead of a sample."),
    click.option("--trial", is_flag=True, help="With the step patches: run `patch --dry-run` for each."),
    click.option("--cancel", is_flag=True, help="End the running step and everything it started."),
)
@click.pass_obj
def command(workspace: Workspace, step: str | None, options: SetupOptions) -> int:
    """Set up this server in the steps workspace, megatron, image, mpi, data and patches.

    Without STEP, print the state of each step. With STEP, show the commands that are missing, ask, and run them.
    """
    site = site_of(workspace, options.choices)
    if step is None:
        return _overview(site, options)
    chosen = find_step(step)
    if (options.reverse or options.trial) and chosen.name != "patches":
        raise UserError("Only the step patches can be reversed or tried.", status=2)
    if options.cancel:
        found = cancel_job(job_folder(workspace, chosen.name))
        click.echo("Cancelled." if found else "The step does not run on this machine.")
        return 0
    if options.whole:
        click.echo(findings.whole(chosen.look(site)))
    make = reverse_actions if options.reverse else trial_actions if options.trial else chosen.actions
    actions = list(make(site))
    if options.dry_run:
        _show(actions, options.as_json)
        return 0
    return _run(site, chosen, actions, options)


def _overview(site: Site, options: SetupOptions) -> int:
    looks = in_parallel([partial(_look, site, step) for step in STEPS])
    found = findings.told(looks, options.as_json)
    if options.dry_run and not options.as_json:
        _show_all(site)
    undone = any(finding.verdict not in ("ok", "skipped") for finding in found)
    return ATTENTION if options.check and undone else 0


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
    """What was found; while the step runs, how far it is."""
    found = looked_at(step.name, partial(step.look, site))
    return with_job(found, JobWatch(job_folder(site.workspace, step.name)).look())


def _show(actions: list[Action], as_json: bool) -> None:
    if as_json:
        shown = [
            {"title": a.title, "argv": list(a.argv), "cwd": str(a.cwd), "env": dict(a.env)} for a in actions
        ]
        click.echo(json.dumps(shown))
    elif actions:
        click.echo(command_text(actions))
    else:
        click.echo("Nothing to do.", err=True)


def _run(site: Site, step: Step, actions: list[Action], options: SetupOptions) -> int:
    if actions:
        if not (options.yes or options.trial):
            refuse_second(job_folder(site.workspace, step.name))
            _confirm(actions)
        _perform(site, step, actions, to_stderr=options.as_json)
    finding = step.look(site)
    click.echo(json.dumps([finding.as_json()]) if options.as_json else findings.whole(finding))
    done = finding.verdict in ("ok", "warning") or options.reverse or options.trial
    return 0 if done else 1


def _confirm(actions: list[Action]) -> None:
    """Show what would run, and ask."""
    _show(actions, as_json=False)
    for action in actions:
        if action.weight:
            click.echo(f"{action.title}: {action.weight}", err=True)
    these = "this command" if len(actions) == 1 else f"these {len(actions)} commands"
    ask(f"Run {these}?", nothing="Nothing was run", remedy="Add --yes to run these commands.")


class _Both:
    """Writes to the terminal and to the step's log, which the application shows while the step runs here."""

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
        click.echo(f"\nCancelled. mdk-tui setup {step.name} continues from there.", err=True)
        raise
