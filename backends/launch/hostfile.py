"""The syntax of Open MPI's hostfile, which lists nodes and the number of processes on each: parsed and checked by line.

    NAME [slots=N] [max_slots=N]        # a comment

Source: mpirun(1) of Open MPI 4 and 5, "hostfile". A node without slots counts as one process, as `mpirun --host NAME` does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from backends.text import clean_line

NAME = re.compile(r"(?:[\w.\-]+@)?[A-Za-z0-9_](?:[\w.\-]*[A-Za-z0-9_])?")
EQUALS = re.compile(r"\s*=\s*")
KEYS = ("slots", "max_slots", "max-slots")
UNUSED = (
    "username",
    "user_name",
    "user-name",
    "port",
    "count",
    "cpus",
)  # keys of Open MPI's that are ignored here


@dataclass(frozen=True, slots=True)
class Host:
    """A node. `slots`: the number of processes that it takes, None if the file does not say. `line` counts from 1."""

    name: str
    slots: int | None
    line: int

    @property
    def word(self) -> str:
        """The node as `mpirun --host` takes it."""
        return self.name if self.slots is None else f"{self.name}:{self.slots}"


@dataclass(frozen=True, slots=True)
class LineNote:
    """A problem of one line. Only an error prevents a launch."""

    line: int
    severity: Literal["warning", "error"]
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Hostfile:
    """The nodes of a hostfile, and the notes about its lines."""

    hosts: tuple[Host, ...]
    notes: tuple[LineNote, ...]

    @property
    def slots(self) -> int:
        """The number of processes that all nodes take."""
        return sum(host.slots or 1 for host in self.hosts)

    @property
    def error(self) -> LineNote | None:
        return next((note for note in self.notes if note.severity == "error"), None)


class _LineError(Exception):
    """A line that names no node: message, remedy."""


def parse(text: str) -> Hostfile:
    """The nodes of `text` and the notes about its lines. Never fails."""
    hosts: list[Host] = []
    notes: list[LineNote] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = EQUALS.sub("=", line.partition("#")[0]).split()
        if not words:
            continue
        try:
            host = _host(words, number)
        except _LineError as error:
            notes.append(LineNote(number, "error", error.args[0], error.args[1]))
            continue
        hosts.append(host)
        notes += _odd_words(words, number)
    notes += _between_lines(hosts)
    return Hostfile(tuple(hosts), tuple(sorted(notes, key=lambda note: note.line)))


def _host(words: list[str], line: int) -> Host:
    name, values = words[0], dict[str, int]()
    if not NAME.fullmatch(name):
        stem, colon, slots = name.partition(":")
        if colon and slots.isdigit() and NAME.fullmatch(stem):
            raise _LineError(f"{name!r} is how other MPIs write it.", f"Write: {stem} slots={slots}")
        raise _LineError(f"{clean_line(name, 60)!r} names no node.", "Write: NAME slots=GPUS")
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key in UNUSED:
            continue
        if key not in KEYS or not equals:
            near = difflib.get_close_matches(key, KEYS, n=1)
            raise _LineError(
                f"{clean_line(word, 60)!r} is not understood.", f"Write: {near[0] if near else 'slots'}=N"
            )
        if not (value.isascii() and value.isdigit() and 0 < int(value) <= 1_000_000):
            raise _LineError(
                f"{key} must be a whole number from 1 on, not {clean_line(value, 40)!r}.",
                f"Write: {name} {key}=8",
            )
        values[key.replace("-", "_")] = int(value)
    slots, most = values.get("slots"), values.get("max_slots")
    if most is not None and most < (slots or 1):
        raise _LineError(f"max_slots={most} is less than slots={slots or 1}.", "Leave max_slots out.")
    return Host(name, slots, line)


def _odd_words(words: list[str], line: int) -> Iterator[LineNote]:
    for word in words[1:]:
        if (key := word.partition("=")[0]) in UNUSED:
            yield LineNote(
                line, "warning", f"{key} is not used here.", "Put it into ~/.ssh/config, or take it out."
            )
    if not any(word.startswith("slots=") for word in words):
        yield LineNote(
            line, "warning", "It does not say slots: one process is started there.", "Write slots=GPUS."
        )


def _between_lines(hosts: list[Host]) -> Iterator[LineNote]:
    first: dict[str, Host] = {}
    usual = hosts[0].slots if hosts else None
    for host in hosts:
        if (before := first.setdefault(host.name, host)) is not host:
            message = f"{host.name} is in line {before.line} already: mpirun would add up the slots."
            yield LineNote(host.line, "error", message, "Take one of the lines out.")
        elif host.slots and usual and host.slots != usual:
            message = f"{host.slots} slots, but {hosts[0].name} has {usual}."
            yield LineNote(host.line, "warning", message, "Give each node as many slots as it has GPUs.")
        if len(hosts) > 1 and host.name.startswith(("localhost", "127.")):
            message = (
                f"{host.name} means another machine on each node, and becomes MASTER_ADDR if it is first."
            )
            yield LineNote(host.line, "error", message, "Write the name that the other nodes know it by.")
