"""Which text server to talk to."""

from __future__ import annotations

from backends.errors import UserError
from backends.inference.connect import connect
from backends.inference.megatron_api import MegatronClient
from backends.inference.request import TextClient
from backends.runs.catalog import RunInfo, runs
from backends.settings import read_settings
from backends.workspace import Workspace


def text_servers(workspace: Workspace) -> list[RunInfo]:
    """The servers that are not over, newest first. Those that can answer have an address."""
    return [info for info in runs(workspace) if info.kind == "serve" and not info.over]


def ready_server(workspace: Workspace) -> RunInfo:
    """The newest server that can answer. Raises UserError that names the servers that run but cannot answer yet."""
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


def clients(workspace: Workspace, urls: tuple[str, ...]) -> list[TextClient]:
    """Clients for `urls`; by default for `prompt.url` of the settings, else for the workspace's newest ready server.

    Raises UserError.
    """
    settings = read_settings(workspace.settings).prompt
    wait = 60 * settings.wait_minutes
    named = urls or ((settings.url,) if settings.url else ())
    if named:
        return [connect(url, wait) for url in named]
    return [MegatronClient(ready_server(workspace).address or "", wait)]
