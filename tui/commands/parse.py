"""`mdk-tui parse LOG|-`: the events of a log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, cast

import click

from backends.megatron import log_file
from backends.megatron.diagnosis import NOTHING
from backends.megatron.event_json import in_order, json_lines
from backends.megatron.events import Event
from backends.megatron.parser import Parser
from backends.text import clean_line

CHUNK = 2**20  # bytes


@click.command()
@click.argument("log", metavar="LOG|-")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(log: str, as_json: bool) -> None:
    """The events of a log ("-": standard input), as they come."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 still shows the rest
    with open_log(log) as file:
        parser, understood = Parser(), False
        while data := file.read1(CHUNK):
            understood |= _print(parser.feed(data), as_json)
        understood |= _print(parser.finish(), as_json)
    if not understood:
        click.echo(NOTHING, err=True)


@contextlib.contextmanager
def open_log(name: str) -> Iterator[BufferedReader]:
    """The log called `name`, or standard input for "-". Raises UserError."""
    if name == "-":
        yield cast("BufferedReader", sys.stdin.buffer)
        return
    with log_file.open_log(Path(name).expanduser()) as file:
        yield file


def _print(events: list[Event], as_json: bool) -> bool:
    """Whether there was anything to print."""
    if as_json:
        sys.stdout.write(b"".join([line + b"\n" for line in json_lines(events)]).decode())
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
