"""The room on a disk, from the output of `quota` and `lfs quota`, and how set-up and launch use it."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fake_setup import FakePrograms, fake_site, says

from backends import disks
from backends.disks import Mount, Quota, mount_of, read_quotas, room, tightest_quota
from backends.setup import workspace_step
from backends.setup.workspace_step import WorkspaceStep
from backends.workspace import Workspace

KIB, GIB = 2**10, 2**30
QUOTA = """\
Disk quotas for user alice (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/export/home  1048576* 1000000 2097152   6days    3210       0       0
Disk quotas for group hpc (gid 2000): none
"""
LUSTRE = """\
Disk quotas for usr 1000 (uid 1000):
      Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
/lustre/very/long/name
                 [524288]       0 1048576       -      10       0       0       -
Some errors happened when getting quota info. Some devices may be not working or deactivated.
"""
NONE = """\
Disk quotas for grp 2000 (gid 2000):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
        /lustre  524288       0       0       -      10       0       0       -
"""


GPFS = """\
mmlsquota::HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:blockQuota:blockLimit:blockInDoubt:
mmlsquota::0:1:::gpfs0:USR:1000:alice:1048576:1048576:2097152:0:
mmlsquota::0:1:::gpfs0:GRP:2000:hpc:1048576:0:0:0:
mmlsquota::0:1:::gpfs0:FILESET:7:work:1048576:2097152:0:0:
"""
BEEGFS = "name,id,size,hard,files,hard\nalice,1000,1073741824,2147483648,12,0\nhpc,2000,5,unlimited,9,unlimited\nx,3,5,0,9,0\n"


def test_limits_of_gpfs_and_beegfs() -> None:
    assert read_quotas(GPFS) == [Quota("user alice", GIB, 2 * GIB), Quota("fileset work", GIB, 2 * GIB)]
    assert read_quotas(BEEGFS) == [Quota("alice", GIB, 2 * GIB)]
    assert read_quotas("mmlsquota::0:1:::gpfs0\nmmlsquota: no\n") == []


def test_limits_are_read_as_the_programs_print_them() -> None:
    assert read_quotas(QUOTA) == [Quota("user alice", GIB, 2 * GIB)]
    assert read_quotas(LUSTRE) == [Quota("user 1000", GIB // 2, GIB)]
    assert read_quotas(NONE) == [] and read_quotas("quota: no such device\n") == []
    soft = QUOTA.replace("2097152", "0")
    assert read_quotas(soft) == [Quota("user alice", GIB, 1_000_000 * KIB)]
    assert read_quotas(soft)[0].left == 0, "more is used than allowed, not less than nothing"


def test_the_mount_of_a_folder(tmp_path: Path) -> None:
    mount = mount_of(tmp_path)
    assert mount is not None and mount.folder in (tmp_path, *tmp_path.parents)
    proc = mount_of(Path("/proc/self"))
    assert proc is not None and proc.filesystem == "proc"


def test_the_tightest_quota_leaves_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "mount_of", lambda folder: Mount(tmp_path, "lustre"))
    group = LUSTRE.replace("usr", "grp").replace("524288", "1048000")
    programs = FakePrograms(
        ["lfs"],
        {
            f"lfs quota -u {os.getuid()} ": says(LUSTRE),
            f"lfs quota -g {os.getgid()} ": says(NONE),
            "lfs project": says(f"  1001 P {tmp_path}\n"),
            "lfs quota -p 1001": says(group),
        },
    )
    assert tightest_quota(tmp_path / "not yet", programs) == Quota("group 1000", 1_048_000 * KIB, GIB)
    assert room(tmp_path, programs) == 576 * KIB
    monkeypatch.setattr(disks, "mount_of", lambda folder: Mount(tmp_path, "nfs4"))
    assert room(tmp_path, FakePrograms(["quota"], {f"quota -w -u -g -f {tmp_path}": says(QUOTA)})) == GIB
    assert tightest_quota(tmp_path, FakePrograms()) is None
    monkeypatch.setattr(disks, "mount_of", lambda folder: Mount(tmp_path, "gpfs", "/dev/gpfs0"))
    assert room(tmp_path, FakePrograms([disks.GPFS], {f"{disks.GPFS} -Y gpfs0": says(GPFS)})) == GIB
    monkeypatch.setattr(disks, "mount_of", lambda folder: Mount(tmp_path, "beegfs", "beegfs_nodev"))
    question = f"beegfs-ctl --getquota --csv --mount={tmp_path} --uid {os.getuid()}"
    assert room(tmp_path, FakePrograms(["beegfs-ctl"], {question: says(BEEGFS)})) == GIB


def test_the_workspace_step_compares_the_quota_with_the_needs_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(workspace_step.shutil, "disk_usage", lambda folder: usage._replace(free=9000 * GIB))
    Workspace(tmp_path).outputs.mkdir()
    site = fake_site(tmp_path, FakePrograms(["quota"], {"quota": says(QUOTA)}))
    found = WorkspaceStep().look(site)
    assert found.verdict == "warning" and "1 GiB of 2 GiB that user alice may use" in found.evidence
    assert "building the image takes about 60 GiB" in found.evidence
    site.image.parent.mkdir(parents=True)
    site.image.touch()
    found = WorkspaceStep().look(site)
    assert found.verdict == "warning" and "room for none" in found.evidence and "--save" in found.remedy
    found = WorkspaceStep().look(replace(site, programs=FakePrograms()))
    assert found.verdict == "ok" and "room for 107" in found.details[0]


def test_a_quota_that_only_shows_on_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Workspace(tmp_path).outputs.mkdir()

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(workspace_step.os, "fsync", refuse)
    found = WorkspaceStep().look(fake_site(tmp_path))
    assert found.verdict == "failed" and "Disk quota exceeded" in found.evidence
    assert "ask for a larger quota" in found.remedy
