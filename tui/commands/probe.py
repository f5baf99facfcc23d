"""`mdk-tui probe`: asks every node whether a run can start on it."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from backends.errors import UserError
from backends.nodes.allreduce import tried
from backends.nodes.survey import LIMIT, named_nodes, nodes_of, own_allocation, probe
from backends.nodes.verdicts import NodeVerdict
from backends.runs.plan import RunPlan
from backends.runs.ports import MASTER_PORT, with_master_port
from backends.setup.step import site_of
from backends.text import clean_line
from backends.workspace import Workspace
from tui.commands.findings import line, troubled
from tui.commands.options import ATTENTION, CHECK, PATH, json_option


@click.command()
@click.option(
    "--hostfile", type=PATH, help="Nodes, one per line: NAME slots=N (default: what mpirun takes by itself)."
)
@click.option(
    "--limit", type=click.FloatRange(1), default=LIMIT, show_default=True, help="Seconds for each node."
)
@click.option("--path", "paths", type=PATH, multiple=True, help="Another folder that every node must see.")
@click.option(
    "--all-reduce",
    "reduce_too",
    is_flag=True,
    help="Also test all-reduce over all GPUs, in the image: bandwidth, slowest node.",
)
@json_option("The verdicts as JSON.")
@CHECK
@click.pass_obj
def command(
    workspace: Workspace,
    hostfile: Path | None,
    limit: float,
    paths: tuple[Path, ...],
    reduce_too: bool,
    as_json: bool,
    check: bool,
) -> int:
    """Ask every node through mpirun, and compare image, folders, Open MPI, GPUs, driver, network, clock and disk.

    Without a hostfile, mpirun is asked first which nodes it takes: a site's default may span several.
    """
    site = site_of(workspace)
    nodes = nodes_of(site, hostfile)
    if not as_json:
        click.echo(f"{len(nodes.hosts)} node{'s' * (len(nodes.hosts) != 1)}: {clean_line(nodes.source)}")
    verdicts: list[NodeVerdict] = []
    for verdicts in probe(site, nodes, limit, [path.absolute() for path in paths]):
        if not as_json and sys.stderr.isatty():
            click.echo(f"\r{len(verdicts)} of {len(nodes.hosts)} have answered", err=True, nl=False)
    if not as_json and sys.stderr.isatty():
        click.echo("\r", err=True, nl=False)
    if not as_json:
        click.echo(table(verdicts))
    findings = [verdict.finding for verdict in verdicts]
    if reduce_too:
        findings.append(tried(site, nodes, verdicts))
        if not as_json:
            click.echo(line(findings[-1]))
    if as_json:
        more = [finding.as_json() for finding in findings[len(verdicts) :]]
        click.echo(json.dumps([*(verdict.as_json() for verdict in verdicts), *more]))
    return ATTENTION if check and troubled(findings) else 0


def check_nodes(plan: RunPlan, workspace: Workspace) -> RunPlan:
    """Ask the nodes of `plan`, else those that mpirun takes. Returns `plan` with a MASTER_PORT that is free on the first.

    Raises UserError when a node would stop the run.
    """
    if plan.launcher != "mpirun":
        raise UserError(f"The launcher {plan.launcher} has no nodes to ask.", "Leave --probe out.", status=2)
    site = site_of(workspace)
    nodes = named_nodes(plan.hosts) if plan.hosts else own_allocation(site)
    chosen = with_master_port(plan, workspace).environment.get(MASTER_PORT, "")
    *_, verdicts = probe(site, nodes, port=int(chosen) if chosen.isdigit() else None)
    findings = [verdict.finding for verdict in verdicts]
    if any(finding.verdict != "ok" for finding in findings):
        click.echo(table(verdicts), err=True)
    if bad := next((finding for finding in findings if finding.verdict == "failed"), None):
        raise UserError(f"Nothing was started: {bad.name} would stop it. {bad.evidence}", bad.remedy)
    port = verdicts[0].port if verdicts else None
    return (
        plan
        if port is None
        else dataclasses.replace(plan, environment={**plan.environment, MASTER_PORT: str(port)})
    )


def table(verdicts: list[NodeVerdict]) -> str:
    """A line per node, its remedies below it."""
    width = max((len(verdict.name) for verdict in verdicts), default=0)
    lines: list[str] = []
    for verdict in verdicts:
        finding = verdict.finding
        lines.append(f"{verdict.name:<{width}}  {finding.verdict:<8}{clean_line(finding.evidence)}".rstrip())
        remedies = dict.fromkeys(check.remedy for check in verdict.checks if check.remedy)
        lines += [f"{'':<{width}}  {'':<8}{clean_line(remedy)}" for remedy in remedies]
    return "\n".join(lines)
