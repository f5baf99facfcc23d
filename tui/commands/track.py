"""`mdk-tui track RUN|LOG`: send a run or a log to MLflow, or what is missing there."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import click

from backends.errors import UserError
from backends.files import hold_lock, named_errors
from backends.megatron.diagnosis import diagnose
from backends.megatron.parser import Parser
from backends.runs.catalog import describe, find_log
from backends.runs.folder import RunFolder
from backends.settings import read_settings
from backends.text import clean_line
from backends.tracking.lineage import subject_of_log
from backends.tracking.mlflow_sidecar import LOCK, ending_of, track_run
from backends.tracking.mlflow_store import MlflowStore
from backends.tracking.place import Place, has_mlflow, tracking_place
from backends.tracking.sending import Ending, send
from backends.tracking.tracker import Progress, Tracker
from backends.workspace import Workspace
from tui.commands.options import json_option

PATIENCE = 10.0  # s for a server that is away
NEWS = 2.0  # s between two lines about how far it is
CHUNK = 1 << 16  # bytes
QUIET = 600.0  # s without growth after which a log counts as ended


@click.command()
@click.argument("name", metavar="[RUN|LOG]", required=False)
@json_option("One object.")
@click.pass_obj
def command(workspace: Workspace, name: str | None, as_json: bool) -> None:
    """Send RUN (default: the newest training run), or a log of Megatron-LM, to MLflow.

    Runs are tracked while they run; this command sends logs of other jobs, and what a server missed while it was away.
    Nothing is sent twice. MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME, or [mlflow] in mdk.toml, name the server; the
    default is outputs/mlflow.db in the workspace: see `mdk-tui mlflow`.
    """
    if not has_mlflow():
        raise UserError("MLflow is not installed.", "pip install 'mdk-tui[mlflow]'")
    place = tracking_place(read_settings(workspace.settings).mlflow, workspace, os.environ)
    log, run = find_log(workspace, name, training=True)
    news = _News(quiet=as_json)
    complete = _track_run(run, workspace, place, news) if run else _track_log(log, place, news)
    last = news.last
    if not complete:
        raise UserError(
            f"MLflow at {place.shown} did not take everything: {clean_line(last.trouble or 'interrupted', 300)}",
            "What arrived stays; the same command sends the rest.",
        )
    if as_json:
        value = {
            "run_id": last.run_id,
            "address": place.shown,
            "experiment": place.experiment,
            "sent": last.sent,
        }
        click.echo(json.dumps(value))
    else:
        what = f"{last.sent:,} points sent" if last.sent else "nothing new"
        click.echo(f"{what}; MLflow run {last.run_id} of experiment {place.experiment} at {place.shown}")


class _News:
    """Prints on stderr how far it is, every few seconds; `last` is the newest progress."""

    def __init__(self, quiet: bool) -> None:
        self.last = Progress(None, 0, 0)
        self._quiet = quiet or not sys.stderr.isatty()
        self._due = time.monotonic() + NEWS

    def __call__(self, progress: Progress) -> None:
        self.last = progress
        if not self._quiet and time.monotonic() >= self._due:
            self._due = time.monotonic() + NEWS
            click.echo(f"{progress.sent:,} points sent {progress.trouble or ''}".rstrip(), err=True)


def _speaks_of_megatron(log: Path) -> bool:
    """Whether the parser understands anything: any other text would make an empty run in MLflow. Raises OSError."""
    parser = Parser()
    with log.open("rb") as file:
        while chunk := file.read(CHUNK):
            if parser.feed(chunk):
                return True
    return bool(parser.finish())


def _track_run(run: RunFolder, workspace: Workspace, place: Place, news: _News) -> bool:
    if not hold_lock(run.path / LOCK):
        raise UserError(f"{run.name} is being sent already.", f"How far it is: {run.tracking}")
    return track_run(
        run,
        workspace,
        place,
        MlflowStore(place),
        threading.Event(),
        patience=PATIENCE,
        tell=news,
        ended=lambda: ending_of(describe(run)),
    )


def _track_log(log: Path, place: Place, news: _News) -> bool:
    with named_errors(log):
        if not log.is_file() or not _speaks_of_megatron(log):
            raise UserError(
                f"{log} holds nothing that Megatron-LM prints.", "Name the log of a training run."
            )
        tracker = Tracker(subject_of_log(log), MlflowStore(place))
        quiet = time.time() - log.stat().st_mtime > QUIET

    def ending() -> Ending:
        phase = diagnose(tracker.record).phase
        if phase in ("finished", "stopped", "failed"):
            return Ending("FAILED" if phase == "failed" else "FINISHED")
        return Ending("KILLED" if quiet else "RUNNING")

    return send(tracker, ending, threading.Event(), news, patience=PATIENCE)
