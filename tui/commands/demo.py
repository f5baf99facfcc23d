"""`mdk-tui demo`: train a tiny GPT on the CPU and prompt it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click

from backends.errors import UserError
from backends.inference.megatron_api import MegatronClient
from backends.inference.readiness import temporary_server
from backends.inference.request import Request, complete
from backends.inference.serving import serve_plan
from backends.inference.trained_and_served import start_both, tiny_plan
from backends.launch.start import start
from backends.runs.catalog import RunInfo, describe
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.ports import free_port
from backends.text import clean_line
from backends.workspace import Workspace

POLL = 0.2  # s
READY_LIMIT = 300.0  # s for the text server to load and listen
PROMPT = "The "
TOKENS = 48


@click.command()
@click.option("--iters", type=click.IntRange(1), help="Iterations to train (default: the preset's).")
@click.option(
    "--headless", is_flag=True, help="Without the screen: train, serve, prompt once, stop, print a summary."
)
@click.option(
    "--save", "base", type=click.Path(path_type=Path), help="Checkpoints go to a dated folder below BASE."
)
@click.pass_obj
def command(workspace: Workspace, iters: int | None, headless: bool, base: Path | None) -> int:
    """Train the preset tiny, and serve it as soon as it has a checkpoint. Both continue without this terminal."""
    plan = tiny_plan(base or workspace.checkpoints, datetime.now(), iters)
    if headless:
        return _headless(workspace, plan)
    if not sys.stdout.isatty():
        raise UserError(
            "The demo's monitor needs a terminal.", "Without one: mdk-tui demo --headless", status=2
        )
    from tui.application import run_application

    run_application(workspace, screen="monitor", run=str(start_both(workspace, plan).path))
    return 0


def _headless(workspace: Workspace, plan: RunPlan) -> int:
    train = start(plan, workspace)
    click.echo(f"The training {train.name} has started; it does not depend on this terminal.")
    trained = _follow(train)
    save = _save_of(train)
    tracked = read_tracker(save).iteration
    plan = serve_plan(workspace, save, port=free_port())
    with temporary_server(plan, workspace, READY_LIMIT) as (server, address):
        click.echo(f"The text server {server.name} answers at {address}.")
        request = Request(PROMPT, tokens=TOKENS, temperature=0.8, seed=1234)
        answer = complete(MegatronClient(address), request)
    click.echo(f"prompt      {PROMPT!r}")
    click.echo(f"completion  {clean_line(answer.continuation, 200)!r}")
    click.echo(f"trained     {trained.run}: iteration {trained.iteration} of {trained.train_iters}")
    click.echo(f"checkpoint  iteration {tracked} in {clean_line(str(save))}")
    click.echo(f"served      {server.name}: {describe(server).phase}")
    click.echo(f"See it again: mdk-tui attach {trained.run}. Train longer: mdk-tui resume -- --train-iters N")
    return 0


def _follow(folder: RunFolder) -> RunInfo:
    """Print the iteration and validation lines as they come, until the run has ended. Raises UserError unless it finished."""
    for line in _lines(folder):
        if (" iteration " in line and "|" in line) or "validation loss at" in line:
            click.echo(line.strip())
    info = describe(folder)
    if info.phase != "finished":
        raise _failure(info)
    return info


def _lines(folder: RunFolder) -> Iterator[str]:
    """The lines of the log until the run has ended."""
    with folder.log.open("rb") as file:
        rest, over = b"", False
        while True:
            data = file.read(1 << 20)
            *lines, rest = (rest + data).split(b"\n")
            yield from (clean_line(line.decode(errors="replace")) for line in lines)
            if not data and over:
                return
            if not data:
                over = describe(folder).over
                time.sleep(0 if over else POLL)


def _failure(info: RunInfo) -> UserError:
    return UserError(
        f"{info.run} {info.phase}. {info.reason or ''}".strip(), f"See {info.path / 'output.log'}"
    )


def _save_of(folder: RunFolder) -> Path:
    return Path(folder.plan().save or "")
