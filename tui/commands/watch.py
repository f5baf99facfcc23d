"""`mdk-tui watch LOG|-`: the monitor on any Megatron log, or on TensorBoard's event files, read-only."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import click

from backends.errors import UserError
from backends.tracking.event_paths import event_files, is_event_path
from backends.workspace import Workspace

LOOKED_AT = 4096  # bytes at the start of a file that tell text from anything else


@click.command()
@click.argument("log", metavar="LOG|-")
@click.pass_obj
def command(workspace: Workspace, log: str) -> None:
    """Watch LOG, written by whomever, live. `-`: standard input, as in `ssh node tail -f train.log | mdk-tui watch -`.

    Without its log a run can be watched by TensorBoard's event files: give one, or the folder that holds them.
    """
    source = keyboard_from_terminal() if log == "-" else readable_log(Path(log).expanduser())
    from tui.commands.app import run_application

    run_application(workspace, screen="monitor", source=source)


def readable_log(path: Path) -> Path:
    """`path`, if it is a log that can be read, or holds event files. Raises UserError."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode) and event_files(path):
            return path
        if stat.S_ISDIR(mode):
            raise UserError(f"{path} is a folder.", _candidates(path), status=2)
        if not stat.S_ISREG(mode):
            raise UserError(
                f"{path} is no file.", f"A pipe can be watched as: mdk-tui watch - < {path}", status=2
            )
        with path.open("rb") as file:
            start = file.read(LOOKED_AT)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", _candidates(path.parent), status=2) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from None
    except ValueError:
        raise UserError("A file name cannot hold a null character.", status=2) from None
    if b"\0" in start and not is_event_path(path):
        raise UserError(f"{path} is no text.", "Name the file into which the job's output goes.", status=2)
    return path


def _candidates(folder: Path) -> str:
    """A remedy that names the newest logs in `folder`."""
    try:
        logs = [
            path for pattern in ("*.log", "*.out", "*.txt") for path in folder.glob(pattern) if path.is_file()
        ]
        newest = sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True)[:3]
    except OSError:
        newest = []
    names = ", ".join(path.name for path in newest)
    return f"Logs in {folder}: {names}." if newest else "Name the file into which the job's output goes."


def keyboard_from_terminal() -> int:
    """Move standard input, the log, to another descriptor and put the terminal in its place, for the keys."""
    if sys.stdin is None or os.isatty(0):
        raise UserError(
            "Standard input is the keyboard, no log.", "Pipe one in: tail -f LOG | mdk-tui watch -", status=2
        )
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        raise UserError(
            "There is no terminal for the keys.", "Without a screen: mdk-tui parse -, or mdk-tui summary LOG."
        ) from None
    log = os.dup(0)
    os.dup2(terminal, 0)
    os.close(terminal)
    return log
