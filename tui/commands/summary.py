"""`mdk-tui summary LOG|RUN`: last values, totals, alerts and diagnosis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from backends.files import existing
from backends.megatron.summary import read_record, summary
from backends.text import clean_line
from backends.ticks import duration
from backends.workspace import Workspace
from tui.commands.options import ATTENTION, CHECK, json_option
from tui.commands.parse import log_chunks

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo

WIDTH = 34  # cells of the names
RANKS_SHOWN = 4


@click.command()
@click.argument("name", metavar="[LOG|RUN]", required=False)
@json_option("One JSON object.")
@CHECK
@click.pass_obj
def command(workspace: Workspace, name: str | None, as_json: bool, check: bool) -> int:
    """Print last values, totals, alerts and diagnosis of a log ("-": standard input) or a run (default: the newest)."""
    log, info = (name, None) if name is not None and _is_log(name) else _log_of_run(workspace, name)
    found = summary(read_record(log_chunks(log), curves=False))
    if info is not None:
        found = of_run(found, info)
    click.echo(json.dumps(found) if as_json else "\n".join(lines(found)))
    return ATTENTION if check and found["attention"] else 0


def _is_log(name: str) -> bool:
    return name == "-" or ((path := existing(name)) is not None and not path.is_dir())


def _log_of_run(workspace: Workspace, name: str | None) -> tuple[str, RunInfo | None]:
    # This import takes a third of the start-up time, and the summary of a log does not need it.
    from backends.runs.catalog import describe, find_log

    log, run = find_log(workspace, name)
    return str(log), describe(run) if run is not None else None


def of_run(found: dict[str, Any], info: RunInfo) -> dict[str, Any]:
    """`found` with what the run's state knows better than its log: whether it runs, and how it ended."""
    over = {"hanging": False, "seconds_left": None} if info.over else {}
    failed = info.phase in ("failed", "lost")
    nothing = found["phase"] == "unknown"  # then the run's state says more than its log
    kept = [kind for kind in found["attention"] if kind != "unknown" and (kind != "hanging" or not info.over)]
    attention = kept if kept or not failed else [info.phase]
    return {
        **found,
        **over,
        "run": info.run,
        "phase": info.phase,
        "reason": info.reason,
        "attention": attention,
        "advice": None if nothing else found["advice"],
    }


def lines(found: dict[str, Any]) -> list[str]:
    """`found` as text: facts in two columns, then errors, then alerts."""
    shown = [
        f"{clean_line(name, WIDTH - 1):<{WIDTH}}{clean_line(value, 300)}" for name, value in _facts(found)
    ]
    for row in found["errors"]:
        ranks = f", {row['ranks']} ranks, first rank {row['first_rank']}" if row["ranks"] > 1 else ""
        shown += ["", f"{row['kind']} (line {row['line']}{ranks}): {clean_line(row['explanation'], 300)}"]
        shown += [f"  {clean_line(row['message'], 300)}", f"  {row['remedy']}"]
    for row in sorted(found["alerts"], key=lambda row: row["severity"] == "info"):
        at = f"iteration {row['iteration']}" if row["iteration"] is not None else f"line {row['line']}"
        shown += ["", f"{row['kind']} ({row['severity']}, {at}): {clean_line(row['message'], 300)}"]
        shown += [f"  {row['remedy']}"]
    return [*shown, "", found["advice"]] if found["advice"] else shown


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    hanging = " and hanging: nothing that ends the job followed the error" if found["hanging"] else ""
    if found.get("run"):
        yield "run", found["run"]
    yield "phase", found["phase"] + hanging
    if found.get("reason"):
        yield "reason", found["reason"]
    elif found["phase"] in ("stopped", "failed") and not found["cause"] and found["exits"]:
        yield "reason", found["exits"][-1]["reason"]
    if found["iteration"] is not None:
        yield "iteration", f"{_number(found['iteration'])} / {_number(found['train_iters'])}"
    if len(found["segments"]) > 1:
        yield "attempts", " ".join(f"{s['first']}…{s['last']}" for s in found["segments"][-10:])
    if found["time"]:
        yield "at", found["time"].replace("T", " ")
    yield from ((name, _number(value)) for name, value in found["last"].items())
    if found["tokens"]:
        yield "tokens", _number(found["tokens"])
    if found["tokens_per_second"]:
        yield "tokens/s", _number(round(found["tokens_per_second"]))
    if found["seconds_left"]:
        yield "time left", duration(found["seconds_left"])
    if found["parameter_count"]:
        yield "parameters", _number(found["parameter_count"])
    for row in found["memory"][:RANKS_SHOWN]:
        if "max allocated" in row["values"]:
            of_rank = "" if row["rank"] is None else f" of rank {row['rank']}"
            yield f"memory{of_rank} (MiB, maximum)", _number(row["values"]["max allocated"])
    for row in found["validations"][-1:]:
        values = "  ".join(f"{name} {_number(value)}" for name, value in row["values"].items())
        yield f"{row['set']} at {row['iteration']}", values
    for row in found["checkpoints"][-1:]:
        at = "" if row["iteration"] is None else f" {_number(row['iteration'])}"
        yield "checkpoint", f"{row['action']}{at} {row['path']}"


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return clean_line(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
