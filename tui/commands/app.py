"""Opening the application from any command, and what is said when it is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from backends.errors import UserError
from backends.workspace import Workspace


def run_application(
    workspace: Workspace, *, screen: str = "home", run: str | None = None, source: Path | int | None = None
) -> None:
    """Run the application until it is left. Raises UserError where no screen can be drawn."""
    if os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty():
        raise UserError(
            "This terminal cannot show the application.",
            "Without a screen: mdk-tui status, mdk-tui summary LOG, mdk-tui demo --headless.",
        )
    from tui.app import MdkApp

    folder = None
    if run is not None:
        from backends.runs.catalog import find_run

        folder = find_run(workspace, run)
    context = click.get_current_context(silent=True)
    options = context.find_root().params if context else {}
    MdkApp(
        workspace,
        first=screen,
        run=folder,
        source=source,
        environment=os.environ,
        ascii_only=bool(options.get("ascii_only")),
        theme=options.get("theme"),
    ).run()
    _say_what_goes_on(workspace)


def _say_what_goes_on(workspace: Workspace) -> None:
    from backends.runs.catalog import runs

    alive = [info for info in runs(workspace) if not info.over]
    for info in alive[:5]:
        click.echo(
            f"{info.kind or 'run'} {info.run} goes on: mdk-tui attach {info.run} (end it: mdk-tui stop {info.run})"
        )
