"""What may still be written to a disk: what its file system has free, and what a quota leaves of that.

`quota` knows the quotas of local disks and of NFS, `lfs quota` those of Lustre; both print a table in kbytes. Project
quotas of ext4 and XFS need no question: statvfs tells them as the size of the disk. Other kinds show on writing only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from backends.files import existing_parent, free_bytes
from backends.programs import Programs

KIB = 1024
LIMIT = 5.0  # s for a file server to tell a quota
OWNER = re.compile(r"Disk quotas for (usr|user|grp|group|prj|project) (\S+)")
KINDS = {"usr": "user", "grp": "group", "prj": "project"}
COUNT = re.compile(r"\[?(\d+)k?\]?\*?")  # "*": more than allowed; in brackets: as far as the servers answered


@dataclass(frozen=True, slots=True)
class Quota:
    """Bytes. `whose` as in "user alice" or "group hpc"."""

    whose: str
    used: int
    limit: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class Mount:
    folder: Path
    filesystem: str  # "ext4", "nfs4", "lustre"


def mount_of(folder: Path) -> Mount | None:
    """The mount that holds `folder`; None when it cannot be told."""
    found: Mount | None = None
    path = folder.resolve()
    for partition in psutil.disk_partitions(all=True):
        mount = Path(partition.mountpoint)
        inside = mount == path or mount in path.parents
        if inside and (found is None or len(mount.parts) >= len(found.folder.parts)):
            found = Mount(mount, partition.fstype)
    return found


def tightest_quota(folder: Path, programs: Programs) -> Quota | None:
    """The quota that leaves least where `folder` is; None where there is none, or nobody tells."""
    place = existing_parent(folder)
    mount = mount_of(place)
    if mount is None:
        return None
    questions = _of_lustre(place, programs) if mount.filesystem == "lustre" else _of_others(mount)
    found: list[Quota] = []
    for argv in questions:
        if programs.find(argv[0]) is not None:
            found += read_quotas(programs.ask(argv, timeout=LIMIT).stdout)
    return min(found, key=lambda quota: quota.left, default=None)


def room(folder: Path, programs: Programs) -> int | None:
    """Bytes that may still be written to `folder` (there yet or not); None where the file system does not say."""
    free, quota = free_bytes(folder), tightest_quota(folder, programs)
    return free if free is None or quota is None else min(free, quota.left)


def read_quotas(report: str) -> list[Quota]:
    """The limits on space in what `quota -w` or `lfs quota` print; a soft limit where there is no hard one."""
    found: list[Quota] = []
    whose = "you"
    for line in report.splitlines():
        if (owner := OWNER.match(line)) is not None:
            whose = f"{KINDS.get(owner[1], owner[1])} {owner[2]}"
            continue
        words = line.split()
        if words and not COUNT.fullmatch(words[0]):
            words = words[1:]  # the name of the disk; Lustre's long ones have a line of their own
        counts = [COUNT.fullmatch(word) for word in words[:3]]
        if len(counts) == 3 and all(counts):
            used, soft, hard = (int(count[1]) * KIB for count in counts if count)
            if hard or soft:
                found.append(Quota(whose, used, hard or soft))
    return found


def _of_others(mount: Mount) -> Iterator[Sequence[str]]:
    yield ("quota", "-w", "-u", "-g", "-f", str(mount.folder))


def _of_lustre(folder: Path, programs: Programs) -> Iterator[Sequence[str]]:
    yield ("lfs", "quota", "-u", str(os.getuid()), str(folder))
    yield ("lfs", "quota", "-g", str(os.getgid()), str(folder))
    project = programs.ask(("lfs", "project", "-d", str(folder)), timeout=LIMIT).stdout.split()
    if project and project[0].isdigit() and project[0] != "0":
        yield ("lfs", "quota", "-p", project[0], str(folder))
