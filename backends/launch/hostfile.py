"""Open MPI's hostfile: which nodes, how many processes on each. Read, checked line by line, found, written.

    NAME [slots=N] [max_slots=N]        # a comment

(Open MPI 4 and 5, mpirun(1), "hostfile".) A node without slots counts as one process here, as with `mpirun --host NAME`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backends.errors import UserError
from backends.files import write_atomic
from backends.settings import MpiSettings, write_setting
from backends.text import clean_line
from backends.workspace import Workspace

SITE = Path("/opt/faib/etc/hostfile.txt")  # where these servers keep the nodes that a job may use
OWN = "hostfile.txt"  # in the workspace, where the site's cannot be written
NONE = "none"  # as --hostfile or setting: this machine alone, whatever the site has
NAME = re.compile(r"(?:[\w.\-]+@)?[A-Za-z0-9_](?:[\w.\-]*[A-Za-z0-9_])?")
EQUALS = re.compile(r"\s*=\s*")
KEYS = ("slots", "max_slots", "max-slots")
UNUSED = ("username", "user_name", "user-name", "port", "count", "cpus")  # Open MPI's own, of no account here
NODELIST = re.compile(r"([^\[\],]+)(?:\[([^\]]*)\])?([^\[\],]*)")
REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")
MAX_NODES = 4096


@dataclass(frozen=True, slots=True)
class Host:
    """A node. `slots`: processes that it takes, None where the file does not say. `line` counts from 1."""

    name: str
    slots: int | None
    line: int

    @property
    def word(self) -> str:
        """As `mpirun --host` takes it."""
        return self.name if self.slots is None else f"{self.name}:{self.slots}"


@dataclass(frozen=True, slots=True)
class LineNote:
    """What is wrong with a line, or odd about it. Only an error forbids to launch."""

    line: int
    severity: Literal["warning", "error"]
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Hostfile:
    hosts: tuple[Host, ...]
    notes: tuple[LineNote, ...]

    @property
    def slots(self) -> int:
        """Processes that all nodes take."""
        return sum(host.slots or 1 for host in self.hosts)

    @property
    def error(self) -> LineNote | None:
        return next((note for note in self.notes if note.severity == "error"), None)


@dataclass(frozen=True, slots=True)
class FoundHostfile:
    """`why` says who named it; `path` is None for a list that Slurm made."""

    why: Literal["asked for", "settings", "site", "Slurm"]
    path: Path | None
    text: str

    @property
    def name(self) -> str:
        return str(self.path) if self.path else "the nodes of this Slurm allocation"


class _LineError(Exception):
    """A line that names no node: message, remedy."""


def parse(text: str) -> Hostfile:
    """Every node of `text`, and what there is to say about each line. Never fails."""
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


def read_text(path: Path) -> str:
    """Raises UserError when there is no such text."""
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        remedy = "Check --hostfile, or hostfile in [mpi] of mdk.toml."
        raise UserError(f"The hostfile {path} cannot be read: {why}.", remedy, status=2) from None


def hosts_of(found: FoundHostfile) -> tuple[str, ...]:
    """`NAME:SLOTS` of each node, or `NAME`, as `mpirun --host` takes them.

    Raises UserError for a text that names none, and for the first line that is wrong.
    """
    read = parse(found.text)
    if read.error is not None:
        note = read.error
        raise UserError(f"{found.name}, line {note.line}: {note.message}", note.remedy, status=2)
    if not read.hosts:
        raise UserError(
            f"The hostfile {found.name} names no node.", "Write one a line: NAME slots=GPUS", status=2
        )
    return tuple(host.word for host in read.hosts)


def find_hostfile(
    workspace: Workspace,
    settings: MpiSettings,
    environment: Mapping[str, str],
    given: Path | None = None,
    site: Path = SITE,
) -> FoundHostfile | None:
    """The hostfile that counts: the one asked for, that of the settings, the site's, the nodes of the Slurm allocation.

    None: there is none, or `none` was asked for. Raises UserError for one that is named and cannot be read.
    """
    named = str(given) if given else settings.hostfile
    if named == NONE:
        return None
    if named:
        path = given.expanduser() if given else workspace.root / Path(named).expanduser()
        return FoundHostfile("asked for" if given else "settings", path, read_text(path))
    if site.is_file():
        return FoundHostfile("site", site, read_text(site))
    text = allocation_text(environment)
    return FoundHostfile("Slurm", None, text) if text else None


def allocation_text(environment: Mapping[str, str]) -> str:
    """The nodes of the Slurm allocation that we run in, as a hostfile; "" outside of one."""
    names = expand_nodelist(environment.get("SLURM_JOB_NODELIST", ""))
    gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    slots = (
        [int(gpus)] * len(names)
        if gpus.isdigit()
        else expand_counts(environment.get("SLURM_TASKS_PER_NODE", ""))
    )
    slots += [1] * (len(names) - len(slots))
    return "".join(f"{name} slots={max(1, count)}\n" for name, count in zip(names, slots, strict=False))


def expand_nodelist(text: str) -> list[str]:
    """`n[01-03,7],x` → n01 n02 n03 n7 x, as `scontrol show hostnames` does for one pair of brackets a name."""
    names: list[str] = []
    for prefix, ranges, suffix in NODELIST.findall(text):
        for part in ranges.split(",") if ranges else [""]:
            low, dash, high = part.partition("-")
            if dash and low.isdigit() and high.isdigit():
                numbers = range(int(low), min(int(high), int(low) + MAX_NODES) + 1)
                names += [f"{prefix}{number:0{len(low)}d}{suffix}" for number in numbers]
            else:
                names.append(f"{prefix}{part}{suffix}")
    return names[:MAX_NODES]


def expand_counts(text: str) -> list[int]:
    """`8(x2),4` → 8 8 4, as in SLURM_TASKS_PER_NODE."""
    return [
        int(count) for count, times in REPEATED.findall(text) for _ in range(min(int(times or 1), MAX_NODES))
    ]


def target_of(found: FoundHostfile | None, workspace: Workspace) -> Path:
    """Where an edited hostfile goes: into the file itself, links followed, or into the workspace's where that may not be."""
    if found is not None and found.path is not None and found.why != "site":
        return found.path.resolve()
    if found is not None and found.path is not None and os.access(found.path, os.W_OK):
        return found.path.resolve()
    return workspace.root / OWN


def save_hostfile(path: Path, text: str, workspace: Workspace, found: FoundHostfile | None) -> Path | None:
    """Write `text` to `path` whole or not at all; what was there is kept beside it, and that path is returned.

    A hostfile of the workspace's own is named in mdk.toml, else nobody would find it. Raises UserError.
    """
    if not text.endswith("\n"):
        text += "\n"
    previous = path.with_name(f"{path.name}.previous") if path.exists() else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if previous is not None:
            with contextlib.suppress(FileNotFoundError):
                previous.unlink()
            shutil.copy2(path, previous)
        write_atomic(path, text)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", "Check the permissions of its folder."
        ) from None
    if found is None or found.path is None or found.path.resolve() != path:
        write_setting(
            workspace.settings, "mpi", "hostfile", OWN if path == workspace.root / OWN else str(path)
        )
    return previous
