"""The workspace folder: whether it is writable, has room, and is visible on all nodes."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from backends.disks import mount_of, tightest_quota
from backends.files import existing_parent
from backends.models.configuration import read_configuration
from backends.models.estimate import estimate
from backends.models.presets import find
from backends.setup.step import Action, Finding, Site, StepFindings
from backends.ticks import GIB, size_words

RECIPE, RECIPE_GPUS = "gpt3-7b", 8
SAVES = 2  # checkpoints that a run needs room for: the newest, and the next while it is written
IMAGE_AND_BUILD = 60 * GIB  # the built image (about 20 GiB) and its unpacked tree while building
SHARED_FILESYSTEMS = {
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "wekafs",
    "fuse.sshfs",
    "cifs",
    "panfs",
}


class WorkspaceStep(StepFindings):
    name = "workspace"
    title = "workspace"

    def look(self, site: Site) -> Finding:
        outputs = site.workspace.outputs
        if not outputs.is_dir():
            return self.pending(f"{outputs} is not there yet.", "Make it.")
        if (refused := write_refused(outputs)) is not None:
            remedy = (
                "Remove files of yours there, ask for a larger quota" if refused.errno == errno.EDQUOT else ""
            )
            remedy = f"{remedy or 'Check its owner and whether the disk is full'}, or choose another folder with -w DIR."
            return self.failed(f"{outputs} cannot be written: {refused.strerror}.", remedy)
        mount, quota = mount_of(outputs), tightest_quota(outputs, site.programs)
        free = shutil.disk_usage(outputs).free
        kind = mount.filesystem if mount else None
        evidence = f"{size_words(free)} free, {kind or 'unknown file system'}"
        if quota is not None:
            evidence += f", {size_words(quota.used)} of {size_words(quota.limit)} that {quota.whose} may use"
            free = min(free, quota.left)
        several = site.choices.nodes > 1 or bool(site.settings.mpi.hostfile)
        if several and kind not in SHARED_FILESYSTEMS:
            return self.warning(
                f"{evidence}, which does not look shared",
                "Every node must see the same folder: put the workspace on the shared file system.",
            )
        return self._with_room(site, evidence, free)

    def _with_room(self, site: Site, evidence: str, free: int) -> Finding:
        """Whether `free` bytes are enough for the image and for the checkpoints of a run."""
        if not site.image.exists() and free < IMAGE_AND_BUILD:
            evidence = f"{evidence}; building the image takes about {size_words(IMAGE_AND_BUILD)}"
            return self.warning(evidence, "Make room, or set APPTAINER_TMPDIR to a larger disk.")
        recipe = find(RECIPE)
        size = estimate(read_configuration(recipe.arguments, RECIPE_GPUS)).training.checkpoint_bytes
        words = f"a checkpoint of {recipe.name} takes {size_words(size)}: room for {free // size or 'none'}"
        if free < SAVES * size:
            remedy = "Runs of it need more: make room, or have them save elsewhere (--save BASE)."
            return self.warning(f"{evidence}; {words}", remedy)
        return self.ok(evidence, details=(words,))

    def actions(self, site: Site) -> Sequence[Action]:
        if site.workspace.outputs.is_dir():
            return []
        return [
            Action(
                "make the folder",
                ("mkdir", "-p", str(site.workspace.outputs)),
                existing_parent(site.workspace.root),
            )
        ]


def write_refused(folder: Path) -> OSError | None:
    """Why nothing can be written into `folder`; None when a test file was written. Some quotas show on writing only."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".mdk-write-test-") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
