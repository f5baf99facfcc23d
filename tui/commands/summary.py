"""`mdk-tui summary LOG|RUN`: last values, totals, alerts and diagnosis."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from backends.megatron.summary import read_record, summary
from backends.runs.catalog import find_run
from backends.text import clean_line
from backends.workspace import Workspace
from tui.commands.parse import open_log


@click.command()
@click.argument("name", metavar="[LOG|RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--check", is_flag=True, help="Exit 3 when something needs attention.")
@click.pass_obj
def command(workspace: Workspace, name: str | None, as_json: bool, check: bool) -> int:
    """Last values, totals, alerts and diagnosis of a log or a run (left out: the newest run)."""
    path = name if name == "-" or (name and Path(name).expanduser().is_file()) else None
    if path is None:
        path = name if name and Path(name).suffix == ".log" else str(find_run(workspace, name).log)
    with open_log(path) as file:
        found = summary(read_record(file))
    click.echo(json.dumps(found) if as_json else "\n".join(_lines(found)))
    sys.stdout.flush()
    serious = [a for a in found["alerts"] if a["severity"] in ("error", "critical")]
    return 3 if check and (found["errors"] or serious or found["hanging"]) else 0


def _lines(found: dict[str, Any]) -> list[str]:
    phase = found["phase"] + (
        " and hanging: nothing that ends the job followed the error" if found["hanging"] else ""
    )
    lines = [f"{'phase':<34}{phase}"]
    if found["iteration"] is not None:
        lines.append(f"{'iteration':<34}{found['iteration']:,} / {found['train_iters']:,}")
    if found["time"]:
        lines.append(f"{'at':<34}{found['time'].replace('T', ' ')}")
    lines += [f"{clean_line(name, 33):<34}{_number(value)}" for name, value in found["last"].items()]
    if found["tokens"]:
        lines.append(f"{'tokens':<34}{found['tokens']:,}")
    if found["seconds_left"]:
        lines.append(f"{'time left':<34}{duration(found['seconds_left'])}")
    for row in found["validations"][-1:]:
        shown = "  ".join(f"{name} {_number(value)}" for name, value in row["values"].items())
        lines.append(f"{row['set'] + ' at ' + str(row['iteration']):<34}{clean_line(shown)}")
    for kind in ("errors", "alerts"):
        for row in found[kind]:
            ranks = (
                f", {row['ranks']} ranks, first rank {row['first_rank']}"
                if kind == "errors" and row["ranks"] > 1
                else ""
            )
            lines.append(
                f"\n{row['kind']} (line {row['line']}{ranks}): {clean_line(row.get('explanation') or row['message'], 300)}"
            )
            if kind == "errors":
                lines.append(f"  {clean_line(row['message'], 300)}")
            lines.append(f"  {row['remedy']}")
    if found["advice"]:
        lines.append(f"\n{found['advice']}")
    return lines


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return clean_line(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def duration(seconds: float) -> str:
    """ "2 h 13 m", "41 m", "12 s": two units at most."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if n]
    return " ".join(parts[:2]) or "0 s"
