"""`mdk-tui parse LOG|-`: the events of a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from backends.errors import UserError
from backends.megatron.diagnosis import NOTHING
from backends.megatron.event_json import in_order, json_lines
from backends.megatron.events import Event
from backends.megatron.log_file import open_log, read_chunks
from backends.megatron.parser import Parser
from backends.text import clean_line
from tui.commands.options import json_option


@click.command()
@click.argument("log", metavar="LOG|-")
@json_option("One JSON object a line.")
def command(log: str, as_json: bool) -> None:
    """Print the events of LOG ("-": standard input) as they come."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 still shows the rest
    parser, understood = Parser(), False
    try:
        for data in log_chunks(log):
            understood |= _print(parser.feed(data), as_json)
    finally:  # where reading fails, what came before it is shown
        understood |= _print(parser.finish(), as_json)
    if not understood:
        click.echo(NOTHING, err=True)


def log_chunks(name: str) -> Iterator[bytes]:
    """The bytes of the log called `name`, or of standard input for "-". Raises UserError."""
    if name == "-":
        if sys.stdin is None:
            raise UserError("Standard input is closed.", "Pipe a log into it, or name a file.", status=2)
        yield from read_chunks(sys.stdin.buffer, "Standard input")  # type: ignore[arg-type]
    else:
        with open_log(Path(name).expanduser()) as file:
            yield from read_chunks(file, name)


def _print(events: list[Event], as_json: bool) -> bool:
    """Whether there was anything to print."""
    if as_json:
        sys.stdout.buffer.write(b"".join([line + b"\n" for line in json_lines(events)]))
    else:
        sys.stdout.writelines(f"{_readable(row)}\n" for row in in_order(events))
    sys.stdout.flush()
    return bool(events)


def _readable(row: dict[str, Any]) -> str:
    head = f"{row['line']:>8}  {row['event']:<11}"
    rest = {name: value for name, value in row.items() if name not in ("line", "event") and value is not None}
    if "values" in rest:
        rest.update(rest.pop("values"))
    return clean_line(f"{head} " + "  ".join(f"{name}={value}" for name, value in rest.items()))
