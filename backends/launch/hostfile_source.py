"""Which hostfile a launch uses, and where an edited one is saved."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backends.errors import UserError
from backends.files import write_atomic
from backends.launch.hostfile import parse
from backends.launch.slurm_allocation import allocation_text
from backends.settings import MpiSettings, write_setting
from backends.workspace import Workspace

SITE = Path("/opt/faib/etc/hostfile.txt")  # where these servers keep the nodes that a job may use
OWN = "hostfile.txt"  # name in the workspace, used when the site's hostfile is read-only
NONE = "none"  # value of --hostfile or the setting: only this machine, without the site's hostfile


@dataclass(frozen=True, slots=True)
class FoundHostfile:
    """A hostfile and who named it. `path` is None for the node list of Slurm."""

    why: Literal["asked for", "settings", "site", "Slurm"]
    path: Path | None
    text: str

    @property
    def name(self) -> str:
        return str(self.path) if self.path else "the nodes of this Slurm allocation"


def read_text(path: Path) -> str:
    """Raises UserError if the file cannot be read."""
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        remedy = "Check --hostfile, or hostfile in [mpi] of mdk.toml."
        raise UserError(f"The hostfile {path} cannot be read: {why}.", remedy, status=2) from None


def hosts_of(found: FoundHostfile) -> tuple[str, ...]:
    """The nodes as `mpirun --host` takes them: `NAME:SLOTS`, or `NAME`.

    Raises UserError for the first wrong line, and if there is no node.
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
    """The hostfile of a launch: `given`, else that of the settings, else the site's, else the Slurm allocation.

    None: there is none, or NONE was given. Raises UserError for a named file that cannot be read.
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


def target_of(found: FoundHostfile | None, workspace: Workspace) -> Path:
    """The path for an edited hostfile: the file itself (links followed), or one in the workspace if it is not writable."""
    if found is not None and found.path is not None and found.why != "site":
        return found.path.resolve()
    if found is not None and found.path is not None and os.access(found.path, os.W_OK):
        return found.path.resolve()
    return workspace.root / OWN


def save_hostfile(path: Path, text: str, workspace: Workspace, found: FoundHostfile | None) -> Path | None:
    """Write `text` to `path` atomically. The previous file is kept beside it, and its path is returned.

    A new path is written to mdk.toml, so that the next launch finds it. Raises UserError.
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
