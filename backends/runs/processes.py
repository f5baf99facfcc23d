"""Processes as Linux shows them in /proc: which one it is, whether it lives, to which session and run it belongs.

A process id alone says little: it is used again. With the start time in clock ticks and the boot id it names one process.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

PROC = Path("/proc")
MARK = "MDK_RUN"  # the environment variable that every process of a run carries


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `session` is the id of its session, `start_ticks` its start in clock ticks since boot."""

    pid: int
    session: int
    start_ticks: int

    @classmethod
    def from_json(cls, value: object) -> Process | None:
        if not isinstance(value, Mapping):
            return None
        numbers = [cast("Mapping[str, Any]", value).get(key) for key in ("pid", "session", "start_ticks")]
        valid = [number for number in numbers if type(number) is int and number >= 0]
        return cls(*valid) if len(valid) == len(numbers) else None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where process ids mean something: one host between two boots."""

    host: str
    boot_id: str


def this_machine(proc: Path = PROC) -> Machine:
    """This host since its last boot. The boot id is "" where it cannot be read."""
    try:
        boot_id = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    return Machine(platform.node(), boot_id)


def user_name() -> str:
    """The name of this user, or the user id where it has no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def find_process(pid: int, proc: Path = PROC) -> Process | None:
    """The process `pid` if it lives. A zombie does not: it only waits for its parent to ask."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold blanks and brackets
    if len(fields) < 20 or fields[0] in "ZXx":
        return None
    return Process(pid, session=int(fields[3]), start_ticks=int(fields[19]))


def is_alive(process: Process | None, proc: Path = PROC) -> bool:
    """Whether this very process lives, and not a later one with its number."""
    if process is None:
        return False
    found = find_process(process.pid, proc)
    return found is not None and found.start_ticks == process.start_ticks


def living_processes(proc: Path = PROC) -> Iterator[Process]:
    """All processes of this machine, without zombies."""
    for folder in proc.iterdir():
        if folder.name.isdigit() and (process := find_process(int(folder.name), proc)):
            yield process


def carries_mark(pid: int, mark: str, proc: Path = PROC) -> bool:
    """Whether the environment that `pid` was started with holds MDK_RUN=`mark`. False where it may not be read."""
    if not mark:
        return False
    try:
        environment = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def marked_processes(mark: str, proc: Path = PROC) -> list[Process]:
    """The processes whose environment carries `mark`."""
    return [process for process in living_processes(proc) if carries_mark(process.pid, mark, proc)]


def session_of_mark(mark: str, proc: Path = PROC) -> tuple[Process | None, Process | None]:
    """(leader, first child) of the session whose processes carry `mark`, for a job whose ids were not recorded."""
    marked = sorted(marked_processes(mark, proc), key=lambda process: process.start_ticks)
    leader = next((process for process in marked if process.pid == process.session), None)
    others = [process for process in marked if process != leader]
    return leader, others[0] if others else None


def job_processes(leader: Process | None, mark: str, proc: Path = PROC) -> list[Process]:
    """Everything that belongs to a job: what carries its mark, and the session of its `leader`.

    Ranks in containers leave the process group but not the session; a process that cleaned its environment lost the
    mark but not the session. The session id counts only while the leader or a marked process proves that it is still
    the job's: a number is used again.
    """
    everything = list(living_processes(proc))
    marked = [process for process in everything if carries_mark(process.pid, mark, proc)]
    if leader is None:
        return marked
    if not is_alive(leader, proc) and all(process.session != leader.session for process in marked):
        return marked
    return [p for p in everything if p.session == leader.session or p in marked]
