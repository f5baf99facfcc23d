"""Which text server to talk to."""

from __future__ import annotations

from backends.errors import UserError
from backends.runs.catalog import RunInfo, runs
from backends.workspace import Workspace


def text_servers(workspace: Workspace) -> list[RunInfo]:
    """Servers that are not over, newest first; those that listen have an address."""
    return [info for info in runs(workspace) if info.kind == "serve" and not info.over]


def ready_server(workspace: Workspace) -> RunInfo:
    """The newest that listens. Raises UserError that says what there is instead."""
    servers = text_servers(workspace)
    for info in servers:
        if info.address:
            return info
    if servers:
        raise UserError(
            f"The text server {servers[0].run} is still loading.",
            "Try again soon; `mdk-tui status` shows it.",
        )
    raise UserError("No text server runs.", "Start one: mdk-tui serve CHECKPOINT, or name one with --url.")
