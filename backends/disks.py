"""What may still be written to a disk: what its file system has free, and what a quota leaves of that.

`quota` knows the quotas of local disks and of NFS, `lfs quota` those of Lustre, `mmlsquota` those of GPFS; they print
kbytes. `beegfs-ctl` prints bytes. Project quotas of ext4 and XFS need no question: statvfs reports them as the size of the
disk. Those of btrfs only root may read; they show on writing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from backends.files import existing_parent, free_bytes
from backends.programs import Programs

KIB = 1024
LIMIT = 5.0  # s for a file server to tell a quota
OWNER = re.compile(r"Disk quotas for (usr|user|grp|group|prj|project) (\S+)")
KINDS = {"usr": "user", "grp": "group", "prj": "project"}
GPFS = "/usr/lpp/mmfs/bin/mmlsquota"  # seldom in PATH
BEEGFS = re.compile(r"([^,]+),\d+,(\d+),([1-9]\d*),")  # name, id, used, limit, ...; a limit of 0 is none
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
    """A mounted file system: where it is mounted, its type and its device."""

    folder: Path
    filesystem: str  # "ext4", "nfs4", "lustre"
    device: str = ""


def mount_of(folder: Path) -> Mount | None:
    """The mount that holds `folder`; None when it is not known."""
    found: Mount | None = None
    path = folder.resolve()
    for partition in psutil.disk_partitions(all=True):
        mount = Path(partition.mountpoint)
        inside = mount == path or mount in path.parents
        if inside and (found is None or len(mount.parts) >= len(found.folder.parts)):
            found = Mount(mount, partition.fstype, partition.device)
    return found


def tightest_quota(folder: Path, programs: Programs) -> Quota | None:
    """The quota that leaves least where `folder` is; None where there is none or it is not known."""
    place = existing_parent(folder)
    mount = mount_of(place)
    if mount is None:
        return None
    match mount.filesystem:
        case "lustre":
            questions = _of_lustre(place, programs)
        case "gpfs":
            questions = iter([(GPFS, "-Y", mount.device.removeprefix("/dev/"))])
        case "beegfs":
            ids = ("--uid", str(os.getuid())), ("--gid", str(os.getgid()))
            questions = (
                ("beegfs-ctl", "--getquota", "--csv", f"--mount={mount.folder}", *one) for one in ids
            )
        case _:
            questions = iter([("quota", "-w", "-u", "-g", "-f", str(mount.folder))])
    found: list[Quota] = []
    for argv in questions:
        if programs.find(argv[0]) is not None:
            found += read_quotas(programs.ask(argv, timeout=LIMIT).stdout)
    return min(found, key=lambda quota: quota.left, default=None)


def room(folder: Path, programs: Programs) -> int | None:
    """Bytes that may still be written to `folder`, which need not exist. None: not known."""
    free, quota = free_bytes(folder), tightest_quota(folder, programs)
    return free if free is None or quota is None else min(free, quota.left)


def read_quotas(report: str) -> list[Quota]:
    """The limits on space in what one of the programs prints; a soft limit where there is no hard one."""
    found: list[Quota] = []
    whose, columns = "you", list[str]()
    for line in report.splitlines():
        if line.startswith("mmlsquota:"):
            cells = line.split(":")
            if "HEADER" in cells:
                columns = cells
            elif (quota := _of_gpfs(dict(zip(columns, cells, strict=False)))) is not None:
                found.append(quota)
            continue
        if (row := BEEGFS.match(line)) is not None:
            found.append(Quota(row[1], int(row[2]), int(row[3])))
            continue
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


def _of_gpfs(row: Mapping[str, str]) -> Quota | None:
    """A row of `mmlsquota -Y` by the names of its columns; None when it sets no limit on space."""
    counts = [row.get(name, "") for name in ("blockUsage", "blockQuota", "blockLimit")]
    if not all(count.isdecimal() for count in counts):
        return None
    used, soft, hard = (int(count) * KIB for count in counts)
    kind = {"USR": "user", "GRP": "group"}.get(row.get("quotaType", ""), "fileset")
    return Quota(f"{kind} {row.get('name', '')}", used, hard or soft) if hard or soft else None


def _of_lustre(folder: Path, programs: Programs) -> Iterator[Sequence[str]]:
    yield ("lfs", "quota", "-u", str(os.getuid()), str(folder))
    yield ("lfs", "quota", "-g", str(os.getgid()), str(folder))
    project = programs.ask(("lfs", "project", "-d", str(folder)), timeout=LIMIT).stdout.split()
    if project and project[0].isdigit() and project[0] != "0":
        yield ("lfs", "quota", "-p", project[0], str(folder))
