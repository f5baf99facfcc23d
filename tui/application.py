"""Opens the application in this terminal, for `mdk-tui`, `watch`, `attach`, `compare` and `demo`."""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backends.errors import UserError
from backends.text import clean_line
from backends.workspace import Workspace, find_workspace
from tui.appearance import APPEARANCE, Appearance, appearance

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo
    from backends.runs.side_by_side import Subject


def run_application(
    workspace: Workspace,
    *,
    screen: str = "home",
    run: str | None = None,
    source: Path | int | None = None,
    compared: Sequence[Subject] = (),
) -> None:
    """Open `screen`; returns when the user leaves. `run`: DATE/TIME or a path; `source`: a log, or a pipe's descriptor;
    `compared`: what the comparison is of.

    Raises UserError where no screen can be shown, naming what works without one, and where the application breaks.
    """
    refuse_without_screen(os.environ, sys.stdout.isatty(), source)
    folder = None
    if run is not None:
        from backends.runs.catalog import find_run

        folder = find_run(workspace, run)
    context = click.get_current_context(silent=True)
    look: Appearance = (context.meta if context else {}).get(APPEARANCE) or appearance(os.environ)
    from tui.app import MdkApp, Opening

    app = MdkApp(workspace, look, Opening(screen, folder, source, compared))
    check_theme(look.theme, sorted(app.available_themes))
    app.run()
    if app.broken is not None:
        raise app.broken
    if words := farewell([seen.info for seen in app.runs or ()], workspace, os.environ, Path.cwd()):
        click.echo(words)
    for step in running_steps(workspace):
        click.echo(f"the set-up step {step} continues: mdk-tui -w {shlex.quote(str(workspace.root))} setup")


def running_steps(workspace: Workspace) -> list[str]:
    """The steps of the set-up that continue without the screen."""
    from backends.setup.job import JobFolder

    jobs = [JobFolder(file.parent) for file in sorted(workspace.outputs.glob("setup/*/state.json"))]
    states = {job.path.name: job.state() for job in jobs}
    return [
        clean_line(name) for name, state in states.items() if state is not None and state.phase == "running"
    ]


def refuse_without_screen(
    environment: Mapping[str, str], to_terminal: bool, source: Path | int | None
) -> None:
    """Raises UserError if the output is not a terminal that can show screens."""
    log = shlex.quote(str(source)) if isinstance(source, Path) else "LOG"
    instead = (
        f"Without one: mdk-tui runs, mdk-tui status, mdk-tui summary {log}, mdk-tui compare A B --json, "
        "mdk-tui demo --headless."
    )
    if not to_terminal:
        raise UserError("The application needs a terminal, but its output goes elsewhere.", instead)
    if (term := environment.get("TERM") or "dumb") in ("dumb", "unknown"):
        raise UserError(f"This terminal cannot show screens (TERM={term}).", instead)


def check_theme(name: str, known: Sequence[str]) -> None:
    """Raises UserError for an unknown theme."""
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
    raise UserError(f"There is no theme {clean_line(name, 60)!r}.", remedy, status=2)


def farewell(
    runs: Sequence[RunInfo], workspace: Workspace, environment: Mapping[str, str], here: Path
) -> str:
    """What is printed after the application has closed: which runs continue, and how to stop them."""
    alive = [info for info in runs if not info.over]
    if not alive:
        return ""
    option = (
        ""
        if find_workspace(None, environment, here) == workspace
        else f"-w {shlex.quote(str(workspace.root))} "
    )
    words = "the run goes on" if len(alive) == 1 else f"{len(alive)} runs go on"
    what = {"train": "the training", "serve": "the text server"}
    ends = "\n".join(
        f"  end {what.get(info.kind or '', 'it')}: mdk-tui {option}stop {info.run}" for info in alive[:5]
    )
    return f"{words}: mdk-tui {option}attach\n{ends}"
