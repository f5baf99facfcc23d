"""`mdk-tui setup [STEP]`: the tutorial's steps, headless: look, show the commands, run them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from backends.errors import UserError
from backends.settings import read_settings
from backends.setup.patches_step import reverse_actions
from backends.setup.programs import RealPrograms
from backends.setup.runner import run_actions
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
) -> int:
    """The steps workspace, megatron, image, mpi, data, patches: what is done, and what is missing as commands.

    Without STEP: how each step stands. With STEP: shows the commands that are missing and, after asking, runs them.
    """
    choices = Choices(repository, branch, definition, corpus, workers or 0)
    site = Site(workspace, read_settings(workspace.settings), os.environ, RealPrograms(os.environ), choices)
    if step is None:
        return _overview(site, as_json, check)
    chosen = find_step(step)
    if reverse and chosen.name != "patches":
        raise UserError("Only the step patches can be reversed.", status=2)
    actions = reverse_actions(site) if reverse else list(chosen.actions(site))
    if dry_run:
        _show(actions, as_json)
        return 0
    return _run(site, chosen, actions, yes, as_json)


def _overview(site: Site, as_json: bool, check: bool) -> int:
    findings: list[Finding] = []
    for step in STEPS:
        finding = step.look(site)
        findings.append(finding)
        if not as_json:
            click.echo(line(finding))
    if as_json:
        click.echo(json.dumps([finding.as_json() for finding in findings]))
    return 3 if check and any(f.verdict not in ("ok", "skipped") for f in findings) else 0


def line(finding: Finding) -> str:
    """One finding for the eye, its remedy below it when it is not ok."""
    text = f"{SIGNS[finding.verdict]} {finding.name:<12} {finding.evidence}"
    return text if finding.verdict == "ok" or not finding.remedy else f"{text}\n  {'':<12} {finding.remedy}"


def _show(actions: list[Action], as_json: bool) -> None:
    if as_json:
        shown = [
            {"title": a.title, "argv": list(a.argv), "cwd": str(a.cwd), "env": dict(a.env)} for a in actions
        ]
        click.echo(json.dumps(shown))
        return
    for action in actions:
        click.echo(f"# {action.title}\n{action.shown}")
    if not actions:
        click.echo("Nothing to do.", err=True)


def _run(site: Site, step: Step, actions: list[Action], yes: bool, as_json: bool) -> int:
    if actions and not yes:
        _show(actions, as_json=False)
        if not sys.stdin.isatty():
            raise UserError(
                "Nothing was run: there is no terminal to ask on.",
                "Add --yes to run these commands.",
                status=2,
            )
        click.confirm(
            f"Run {'this command' if len(actions) == 1 else f'these {len(actions)} commands'}?", abort=True
        )
    output = sys.stderr.buffer if as_json else sys.stdout.buffer
    run_actions(actions, os.environ, output)
    finding = step.look(site)
    click.echo(json.dumps([finding.as_json()]) if as_json else line(finding))
    return 0 if finding.verdict in ("ok", "warning") else 1
