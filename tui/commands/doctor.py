"""`mdk-tui doctor`: everything a run needs of this machine."""

from __future__ import annotations

import os

import click

from backends.programs import RealPrograms
from backends.settings import read_settings
from backends.setup.doctor import check_up
from backends.setup.step import Site
from backends.workspace import Workspace
from tui.commands.setup import told


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
@click.option("--check", is_flag=True, help="Exit 3 when something needs attention.")
@click.pass_obj
def command(workspace: Workspace, as_json: bool, check: bool) -> int:
    """Check workspace, Megatron-LM, image, MPI, data, patches, GPUs, ports, limits and logout, with remedies."""
    site = Site(workspace, read_settings(workspace.settings), os.environ, RealPrograms(os.environ))
    findings = told(check_up(site), as_json)
    return 3 if check and any(f.verdict in ("warning", "failed") for f in findings) else 0
