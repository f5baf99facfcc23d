"""`mdk-tui doctor`: checks everything that a run needs on this machine."""

from __future__ import annotations

import click

from backends.setup.doctor import check_up
from backends.setup.step import site_of
from backends.workspace import Workspace
from tui.commands.findings import told, troubled
from tui.commands.options import ATTENTION, CHECK, json_option


@click.command()
@json_option("The findings as JSON.")
@CHECK
@click.pass_obj
def command(workspace: Workspace, as_json: bool, check: bool) -> int:
    """Check workspace, Megatron-LM, image, MPI, data, patches, GPUs, ports, limits and logout, and name remedies."""
    findings = told(check_up(site_of(workspace)), as_json)
    return ATTENTION if check and troubled(findings) else 0
