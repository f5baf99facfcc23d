"""`mdk-tui watch LOG|-`: the monitor on a Megatron-LM log, or on TensorBoard event files. It only reads them."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import click

from backends.errors import UserError
from backends.megatron.log_file import LOOKED_AT, is_text, open_log
from backends.text import clean_line
from backends.tracking.event_paths import event_files, is_event_path
from backends.workspace import Workspace


@click.command()
@click.argument("log", metavar="LOG|-")
@click.pass_obj
def command(workspace: Workspace, log: str) -> None:
    """Open the monitor on LOG and follow it. `-` is standard input: `ssh node tail -f train.log | mdk-tui watch -`.

    LOG may also be a TensorBoard event file, or a folder of them.
    """
    source = keyboard_from_terminal() if log == "-" else readable_log(Path(log).expanduser())
    from tui.application import run_application

    run_application(workspace, screen="monitor", source=source)


def readable_log(path: Path) -> Path:
    """`path`, if it is a log or an event file, or a folder of event files. Raises UserError."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        mode = 0  # opening it says why
    if stat.S_ISDIR(mode) and event_files(path):
        return path
    if stat.S_ISFIFO(mode):
        shown = clean_line(str(path), 300)
        raise UserError(f"{shown} is a pipe.", f"It can be watched as: mdk-tui watch - < {shown}", status=2)
    with open_log(path) as file:
        start = file.peek(LOOKED_AT)[:LOOKED_AT]
    if not is_text(start) and not is_event_path(path):
        raise UserError(
            f"{path} is not a text file.", "Name the file that the job's output goes to.", status=2
        )
    return path


def keyboard_from_terminal() -> int:
    """Move standard input, the log, to another descriptor and put the terminal in its place, for the keys."""
    if sys.stdin is None or os.isatty(0):
        raise UserError(
            "Standard input is the keyboard, not a log.",
            "Pipe one in: tail -f LOG | mdk-tui watch -",
            status=2,
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
